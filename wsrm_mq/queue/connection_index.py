"""Which messages came on which connection: an index that is filled later.

Few ask for it, and each connection has a leaf of its own in it: kept with every message it would be a third of what a
commit writes. So it is brought forward afterwards, many messages at a time in its own order. A watermark says how far
it is: what came behind that, which is little, is looked for in the messages themselves. Both parts are read in one
statement or one transaction, so an answer is right at any moment, whoever writes and whoever died.

The statements are plain text: a command line that only looks must not pay for the import of SQLAlchemy.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from wsrm_mq.store.transaction import Transaction

__all__ = ["BATCH", "CONNECTIONS", "INDEXED", "OF_CONNECTION", "WATERMARK", "bring_forward", "forget"]

BATCH: Final = 200
"""Messages in one transaction: about a millisecond, two where each is of another connection."""

INDEXED: Final = "(SELECT message FROM watermark WHERE name = 'connection_message')"
"""The key of the last message that the index has, where it is on a connection."""

WATERMARK: Final = f"SELECT {INDEXED}, coalesce((SELECT max(id) FROM message), 0) - {INDEXED}"
"""It, and how many keys there are behind it."""

OF_CONNECTION: Final = f"""
    SELECT message AS id FROM connection_message WHERE connection = :connection
    UNION ALL
    SELECT id FROM message WHERE id > {INDEXED} AND connection = :connection
"""
"""The keys of a connection's messages, each once."""

CONNECTIONS: Final = f"""
    WITH RECURSIVE each (name) AS (
        SELECT min(connection) FROM connection_message
        UNION ALL
        SELECT (SELECT min(connection) FROM connection_message WHERE connection > each.name)
        FROM each WHERE each.name IS NOT NULL
    )
    SELECT name, (SELECT max(message) FROM connection_message WHERE connection = name) AS last
    FROM each WHERE name IS NOT NULL
    UNION ALL
    SELECT connection, max(id) FROM message WHERE id > {INDEXED} AND connection IS NOT NULL GROUP BY connection
"""
"""Names of connections, and the last message of each. From one name to the next along the index, whatever number of
messages each has; one that is in both parts comes twice, with the later one second."""

_NEXT: Final = f"SELECT max(id), count(*) FROM (SELECT id FROM message WHERE id > {INDEXED} ORDER BY id LIMIT ?)"
_ADD: Final = f"""
INSERT OR IGNORE INTO connection_message (connection, message)
    SELECT connection, id FROM message WHERE id > {INDEXED} AND id <= ? AND connection IS NOT NULL
    ORDER BY connection, id
"""
_MOVE: Final = "UPDATE watermark SET message = ? WHERE name = 'connection_message'"
_DROP: Final = "DELETE FROM connection_message WHERE connection = ? AND message IN (SELECT value FROM json_each(?))"
_FALL: Final = """
UPDATE watermark SET message = last.id FROM (SELECT coalesce(max(id), 0) AS id FROM message) AS last
    WHERE name = 'connection_message' AND message > last.id
"""


def bring_forward(tx: Transaction, most: int = BATCH) -> bool:
    """Index the next ``most`` messages; answers whether there may be more. Writes nothing where there are none."""
    last, count = tx.execute(_NEXT, (most,)).fetchone()
    if count:
        tx.execute(_ADD, (last,))
        tx.execute(_MOVE, (last,))
    return bool(count == most)


def forget(tx: Transaction, gone: Iterable[tuple[str | None, int]]) -> None:
    """These messages, by connection and key, were deleted. The key of the last one may be given again: the watermark
    must not be above the last that is left."""
    keys: dict[str, list[int]] = {}
    for connection, key in gone:
        if connection is not None:
            keys.setdefault(connection, []).append(key)
    for connection, its in keys.items():
        tx.execute(_DROP, (connection, json.dumps(its)))
    tx.execute(_FALL)
