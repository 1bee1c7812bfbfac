"""Messages that may have to go another way since routes have changed are known by their queue, not by their next node."""

from alembic import op

revision = "0024"
down_revision = "0023"

STATEMENTS = (
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
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("a store goes forward only; restore a backup instead")
