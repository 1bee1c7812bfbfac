"""Routes to other nodes: what is known of them, what waits for them or has come from them, and the node's own name."""

from alembic import op

revision = "0020"
down_revision = "0019"

STATEMENTS = (
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
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("a store goes forward only; restore a backup instead")
