"""Sequences of messages that came without WS-RM: numbered here, in order of receipt on their connection."""

from alembic import op

revision = "0002"
down_revision = "0001"

STATEMENTS = (
    """
    ALTER TABLE sequence ADD COLUMN
        kind TEXT DEFAULT 'rm' NOT NULL CONSTRAINT kind_is_a_word CHECK (kind IN ('rm', 'connection'))
    """,
    """
    ALTER TABLE sequence ADD COLUMN connection TEXT
    """,
    """
    CREATE INDEX sequence_by_connection ON sequence (connection, queue)
        WHERE connection IS NOT NULL AND ended_at IS NULL
    """,
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
