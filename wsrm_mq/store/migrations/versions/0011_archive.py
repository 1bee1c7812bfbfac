"""What archives hold of a store: retention may wait for it. And by what a store knows its own past."""

from alembic import op

revision = "0011"
down_revision = "0010"

STATEMENTS = (
    """
    CREATE TABLE epoch (
        mark INTEGER NOT NULL,
        token TEXT NOT NULL,
        PRIMARY KEY (mark)
    ) WITHOUT ROWID, STRICT
    """,
    """
    CREATE TABLE archive (
        id TEXT NOT NULL,
        place TEXT NOT NULL,
        number INTEGER NOT NULL,
        ledger INTEGER NOT NULL,
        read_at INTEGER NOT NULL,
        confirmed_at INTEGER NOT NULL,
        actor TEXT NOT NULL,
        PRIMARY KEY (id)
    ) WITHOUT ROWID, STRICT
    """,
    """
    CREATE TABLE archived (
        archive TEXT NOT NULL,
        kind TEXT NOT NULL,
        lower INTEGER NOT NULL,
        upper INTEGER NOT NULL,
        PRIMARY KEY (archive, kind, lower),
        CONSTRAINT archived_is_a_word CHECK (kind IN ('messages', 'sequences')),
        CONSTRAINT archived_is_not_empty CHECK (lower <= upper),
        FOREIGN KEY(archive) REFERENCES archive (id)
    ) WITHOUT ROWID, STRICT
    """,
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("a store goes forward only; restore a backup instead")
