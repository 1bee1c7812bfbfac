"""The sequences that sources offer with theirs: the replies to theirs go out in them, numbered."""

from alembic import op

revision = "0012"
down_revision = "0011"

STATEMENTS = (
    """
    CREATE TABLE outgoing (
        sequence INTEGER NOT NULL,
        identifier TEXT NOT NULL,
        expires_at INTEGER,
        state TEXT NOT NULL,
        given INTEGER NOT NULL,
        acknowledged TEXT NOT NULL,
        unacknowledged INTEGER NOT NULL,
        last_number INTEGER,
        is_final INTEGER NOT NULL,
        waiting_since INTEGER,
        PRIMARY KEY (sequence),
        CONSTRAINT state_is_a_word CHECK (
            state IN ('created', 'closing', 'closed', 'terminating', 'terminated', 'expired', 'failed')
        ),
        FOREIGN KEY(sequence) REFERENCES sequence (id),
        UNIQUE (identifier)
    ) STRICT
    """,
    "CREATE INDEX outgoing_created ON outgoing (sequence) WHERE state = 'created'",
    "ALTER TABLE reply ADD COLUMN sequence INTEGER",
    "ALTER TABLE reply ADD COLUMN number INTEGER",
    "CREATE UNIQUE INDEX reply_numbered ON reply (sequence, number) WHERE number IS NOT NULL",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("a store goes forward only; restore a backup instead")
