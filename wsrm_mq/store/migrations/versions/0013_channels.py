"""What this side sends in requests of its own: where to, and when an acknowledgement is due there."""

from alembic import op

revision = "0013"
down_revision = "0012"

STATEMENTS = (
    """
    CREATE TABLE channel (
        sequence INTEGER NOT NULL,
        answers INTEGER NOT NULL,
        address TEXT NOT NULL,
        parameters TEXT NOT NULL,
        is_numbered INTEGER NOT NULL,
        PRIMARY KEY (sequence),
        FOREIGN KEY(sequence) REFERENCES sequence (id),
        FOREIGN KEY(answers) REFERENCES sequence (id)
    ) STRICT
    """,
    "CREATE UNIQUE INDEX channel_by_endpoint ON channel (answers, address, parameters, is_numbered)",
    "CREATE INDEX channel_by_address ON channel (address)",
    "ALTER TABLE sequence ADD COLUMN acks_to TEXT",
    "ALTER TABLE sequence ADD COLUMN ack_due_at INTEGER",
    "CREATE INDEX sequence_ack_due ON sequence (ack_due_at) WHERE ack_due_at IS NOT NULL",
    "ALTER TABLE sequence ADD COLUMN acks_fetched_by TEXT",
    "ALTER TABLE sequence ADD COLUMN ack_waits INTEGER DEFAULT '0' NOT NULL",
    "CREATE INDEX sequence_ack_waits ON sequence (acks_fetched_by) WHERE ack_waits = 1",
    "ALTER TABLE reply ADD COLUMN outgoing_entry INTEGER",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("a store goes forward only; restore a backup instead")
