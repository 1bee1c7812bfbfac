"""Retention: how many entries of a sequence were pruned, ended sequences by their end, and which store this is."""

from alembic import op

revision = "0004"
down_revision = "0003"

STATEMENTS = (
    """
    CREATE TABLE identity (
        id TEXT NOT NULL,
        mark INTEGER NOT NULL,
        copied_at INTEGER,
        PRIMARY KEY (id)
    ) STRICT
    """,
    """
    INSERT INTO identity (id, mark) VALUES (lower(hex(randomblob(16))), 0)
    """,
    """
    ALTER TABLE sequence ADD COLUMN pruned INTEGER DEFAULT '0' NOT NULL
    """,
    """
    CREATE INDEX sequence_ended ON sequence (ended_at, id) WHERE ended_at IS NOT NULL
    """,
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
