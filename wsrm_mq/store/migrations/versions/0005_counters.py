"""Counters: what was counted, apart from the rows that retention takes."""

from alembic import op

revision = "0005"
down_revision = "0004"

STATEMENTS = (
    """
    CREATE TABLE counter (
        name TEXT NOT NULL,
        queue INTEGER NOT NULL,
        label TEXT NOT NULL,
        value INTEGER NOT NULL,
        PRIMARY KEY (name, queue, label)
    ) WITHOUT ROWID, STRICT
    """,
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("a store goes forward only; restore a backup instead")
