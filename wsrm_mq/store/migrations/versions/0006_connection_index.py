"""Which messages came on a connection: a table that is filled later, in place of an index that each commit writes.

What is there is filled in at once: the index that goes has it in the same order, so that takes a second or two for a
million messages.
"""

from alembic import op

revision = "0006"
down_revision = "0005"

STATEMENTS = (
    """
    CREATE TABLE connection_message (
        connection TEXT NOT NULL,
        message INTEGER NOT NULL,
        PRIMARY KEY (connection, message),
        FOREIGN KEY(message) REFERENCES message (id)
    ) WITHOUT ROWID, STRICT
    """,
    """
    CREATE TABLE watermark (
        name TEXT NOT NULL,
        message INTEGER NOT NULL,
        PRIMARY KEY (name)
    ) WITHOUT ROWID, STRICT
    """,
    """
    INSERT INTO connection_message (connection, message)
        SELECT connection, id FROM message INDEXED BY message_by_connection
        WHERE connection IS NOT NULL ORDER BY connection, id
    """,
    """
    INSERT INTO watermark (name, message) SELECT 'connection_message', coalesce(max(id), 0) FROM message
    """,
    """
    DROP INDEX message_by_connection
    """,
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
