"""What one connection may have unsettled in the store at a time.

The store is asked once in a while, not for every message: what is known of a connection grows with what it sends, and
is counted again when it seems full. Settlements need not tell: they only ever make room. What other processes wrote
is found as the writer's cache finds it, by ``PRAGMA data_version``: then it is counted again too.
"""

from __future__ import annotations

from typing import Final

from wsrm_mq.store import statements as sql
from wsrm_mq.store.late_index import BY_CONNECTION
from wsrm_mq.store.transaction import Transaction

__all__ = ["crowded"]

_FEW: Final = 64
"""So many messages that are not in the index are gone through as they are: that costs less than to index them."""


def crowded(tx: Transaction, connection: str | None, bound: int | None, *, always: bool = False) -> str:
    """Why a connection has no room for one message more; empty: it has, or the message is taken ``always``, and it is
    counted in. ``None`` is no bound, and no connection has none."""
    if connection is None or bound is None:
        return ""
    kept = tx.connections
    counted = kept.unsettled.get(connection)
    if counted is None or (counted >= bound and not always and kept.asked_at.get(connection) != tx.now):
        counted = _count(tx, connection, bound)
        kept.asked_at[connection] = tx.now
    if counted >= bound and not always:
        return f"{counted} messages of connection {connection} are undelivered, max_per_connection is {bound}"
    kept.unsettled[connection] = counted + 1
    return ""


def _count(tx: Transaction, connection: str, bound: int) -> int:
    """How many there are, as far as ``bound``. Everything up to the floor is settled, for ever (I6): it is not gone
    through again."""
    (not_indexed,) = tx.execute(sql.NOT_INDEXED).fetchone()
    if not_indexed > _FEW:
        BY_CONNECTION.bring_forward(tx)
    kept = tx.connections
    floor = kept.floors.get(connection, 0)
    (last,) = tx.execute(sql.LAST_OF_CONNECTION, {"connection": connection}).fetchone()
    found: list[tuple[int]] = []
    for part in (sql.UNSETTLED_INDEXED, sql.UNSETTLED_BEHIND):
        which = {"connection": connection, "after": floor, "count": bound - len(found)}
        found += tx.execute(part, which).fetchall()
    kept.set_floor(connection, found[0][0] - 1 if found else last)
    return len(found)
