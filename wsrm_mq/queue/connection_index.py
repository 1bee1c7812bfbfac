"""Which messages came on which connection: an index that is filled later."""

from __future__ import annotations

from typing import Final

from wsrm_mq.queue.late_index import LateIndex

__all__ = ["BY_CONNECTION", "CONNECTIONS"]

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
