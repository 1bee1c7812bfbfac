"""Which messages came on which connection: an index that is filled later."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from wsrm_mq.queue.late_index import LateIndex

if TYPE_CHECKING:
    from wsrm_mq.store.transaction import Transaction

__all__ = ["BY_CONNECTION", "CONNECTIONS", "forget"]

BY_CONNECTION: Final = LateIndex("connection_message", "message", ("connection", "message"), ("connection", "id"))

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
    SELECT connection, max(id) FROM message WHERE id > {BY_CONNECTION.upto} AND connection IS NOT NULL
    GROUP BY connection
"""
"""Names of connections, and the last message of each. From one name to the next along the index, whatever number of
messages each has; one that is in both parts comes twice, with the later one second."""

_FALL: Final = """
UPDATE watermark SET upto = last.id FROM (SELECT coalesce(max(id), 0) AS id FROM message) AS last
    WHERE name = 'connection_message' AND upto > last.id
"""


def forget(tx: Transaction, gone: Iterable[tuple[str | None, int]]) -> None:
    """These messages, by connection and key, were deleted. The key of the last one may be given again: the watermark
    must not be above the last that is left."""
    BY_CONNECTION.forget(tx, gone)
    tx.execute(_FALL)
