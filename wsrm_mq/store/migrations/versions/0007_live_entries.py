"""Which entries a sequence has: an index of those that are not settled, and of all a table that is filled later.

As with the connections, what is there is filled in at once, in the order of the index that goes.
"""

from alembic import op

revision = "0007"
down_revision = "0006"

STATEMENTS = (
    """
    ALTER TABLE watermark RENAME COLUMN message TO upto
    """,
    """
    CREATE TABLE sequence_entry (
        sequence INTEGER NOT NULL,
        number INTEGER NOT NULL,
        entry INTEGER NOT NULL,
        PRIMARY KEY (sequence, number),
        FOREIGN KEY(sequence) REFERENCES sequence (id),
        FOREIGN KEY(entry) REFERENCES entry (id)
    ) WITHOUT ROWID, STRICT
    """,
    """
    INSERT INTO sequence_entry (sequence, number, entry)
        SELECT sequence, number, id FROM entry INDEXED BY entry_by_number
        WHERE sequence IS NOT NULL AND number IS NOT NULL ORDER BY sequence, number
    """,
    """
    INSERT INTO watermark (name, upto) SELECT 'sequence_entry', coalesce(max(id), 0) FROM entry
    """,
    """
    DROP INDEX entry_by_number
    """,
    """
    CREATE UNIQUE INDEX entry_live ON entry (sequence, number) WHERE outcome IS NULL AND sequence IS NOT NULL
    """,
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
