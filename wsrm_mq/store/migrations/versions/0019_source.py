"""An RM Source offers sequences for replies, acknowledges what comes in them, and heeds the room that its destination says
it has (WCF's BufferRemaining)."""

from alembic import op

revision = "0019"
down_revision = "0018"

STATEMENTS = (
    """
CREATE TABLE new_outbound_sequence (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, answers INTEGER, identifier TEXT NOT NULL, queue INTEGER NOT NULL,
    principal TEXT, peer TEXT, partner TEXT, rm TEXT NOT NULL, soap TEXT NOT NULL, addressing TEXT NOT NULL,
    expires_at INTEGER, state TEXT NOT NULL, given INTEGER NOT NULL, acknowledged TEXT NOT NULL,
    unacknowledged INTEGER NOT NULL, last_number INTEGER, is_final INTEGER NOT NULL, waiting_since INTEGER,
    endpoint TEXT, acks_with_reply INTEGER DEFAULT '0' NOT NULL,
    takes_below INTEGER, offered TEXT, replied TEXT DEFAULT '' NOT NULL,
    CONSTRAINT state_is_a_word CHECK (state IN ('creating', 'created', 'closing', 'closed', 'terminating',
        'terminated', 'expired', 'failed')),
    UNIQUE (answers),
    FOREIGN KEY(answers) REFERENCES sequence (lane),
    UNIQUE (identifier),
    FOREIGN KEY(queue) REFERENCES queue (id)
) STRICT
""",
    "INSERT INTO new_outbound_sequence SELECT *, NULL, NULL, '' FROM outbound_sequence",
    # Keys are given once.
    "DELETE FROM sqlite_sequence WHERE name = 'new_outbound_sequence'",
    "INSERT INTO sqlite_sequence (name, seq) "
    "SELECT 'new_outbound_sequence', seq FROM sqlite_sequence WHERE name = 'outbound_sequence'",
    "DROP TABLE outbound_sequence",
    "ALTER TABLE new_outbound_sequence RENAME TO outbound_sequence",
    "CREATE INDEX outbound_acknowledged ON outbound_sequence (answers) "
    "WHERE state = 'created' AND unacknowledged = 0 AND endpoint IS NOT NULL",
    "CREATE INDEX outbound_own ON outbound_sequence (queue, id) WHERE answers IS NULL",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("a store goes forward only; restore a backup instead")
