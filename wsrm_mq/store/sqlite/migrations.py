"""The way from one schema to the next: the statements that lead to each revision from the one before it.

The read views are in none of them: every upgrade makes them anew.
"""

from __future__ import annotations

from typing import Final

STEPS: Final[dict[str, tuple[str, ...]]] = {
    # Routes to other nodes: what is known of them, what waits for them or has come from them, and the node's own name.
    "0020": (
        "ALTER TABLE identity ADD COLUMN node TEXT",
        """
CREATE TABLE route (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, pattern TEXT NOT NULL, next_hop TEXT NOT NULL,
    cost INTEGER NOT NULL, strip INTEGER NOT NULL, created_at INTEGER NOT NULL) STRICT
""",
        "CREATE UNIQUE INDEX route_by_pattern ON route (pattern, next_hop)",
        """
CREATE TABLE hop (address TEXT NOT NULL, away_since INTEGER, tried_next_at INTEGER, attempts INTEGER DEFAULT '0' NOT
    NULL, last_error TEXT, node TEXT, PRIMARY KEY (address)) WITHOUT ROWID, STRICT
""",
        """
CREATE TABLE routed (message INTEGER NOT NULL, target TEXT NOT NULL, sent_as TEXT, node TEXT NOT NULL, incarnation TEXT
    NOT NULL, position INTEGER NOT NULL, via TEXT NOT NULL, max_hops INTEGER NOT NULL, priority INTEGER NOT NULL,
    lane_group TEXT, asks INTEGER NOT NULL, deliver_at INTEGER, expires_at INTEGER, reach_by INTEGER,
    PRIMARY KEY (message), FOREIGN KEY(message) REFERENCES message (id)) STRICT
""",
        """
CREATE TABLE arrived (queue INTEGER NOT NULL, node TEXT NOT NULL, incarnation TEXT NOT NULL, position INTEGER NOT NULL,
    at INTEGER NOT NULL, PRIMARY KEY (queue, node, incarnation, position)) WITHOUT ROWID, STRICT
""",
        "CREATE INDEX arrived_at ON arrived (at)",
    ),
    # The index by which a message is found again that goes over routes, wherever it was put.
    "0021": ("CREATE INDEX routed_by_origin ON routed (position)",),
    # Next nodes have two facts more: whether what waits for one may have to go another way, since routes have changed,
    # and what one has forgotten that was put back from a copy.
    "0022": (
        "ALTER TABLE hop ADD COLUMN moves INTEGER DEFAULT '0' NOT NULL",
        "ALTER TABLE hop ADD COLUMN forgot TEXT",
        "ALTER TABLE hop ADD COLUMN forgot_at INTEGER",
        "UPDATE hop SET moves = 1",
    ),
    # The sequences that requests go out in have a read view.
    "0023": (),
    # Messages that may have to go another way since routes have changed are known by their queue, not by their next
    # node.
    "0024": (
        """
CREATE TABLE moving (via TEXT NOT NULL, target TEXT NOT NULL, address TEXT NOT NULL, sent_as TEXT NOT NULL,
    leads_to TEXT, leads_as TEXT, PRIMARY KEY (via, target, address, sent_as)) WITHOUT ROWID, STRICT
""",
        """
INSERT INTO moving (via, target, address, sent_as)
    SELECT DISTINCT r.via, r.target, o.peer, r.sent_as
    FROM hop h JOIN outbound_sequence o ON o.peer = h.address JOIN queue q ON q.id = o.queue
        JOIN channel c ON c.outbound = o.id AND c.is_numbered = 1
        JOIN entry e ON e.lane = c.lane AND e.outcome IS NULL JOIN routed r ON r.message = e.message
    WHERE h.moves = 1 AND o.answers IS NULL AND q.name LIKE 'hop/%' AND r.sent_as IS NOT NULL
""",
        "ALTER TABLE hop DROP COLUMN moves",
    ),
}
