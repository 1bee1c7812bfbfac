"""Where the delivery of a lane stands: its cursor, the lowest accepted and unsettled number below ``limit``.

It may lag behind over numbers that were settled out of turn; it never passes an unsettled one.
"""

from __future__ import annotations

from wsrm_mq.store import entries
from wsrm_mq.store.entries import LOOSE_NUMBER
from wsrm_mq.store.loose import IS_UNSETTLED, LooseEntry
from wsrm_mq.store.records import Lane
from wsrm_mq.store.transaction import Transaction


def settle_cursor(tx: Transaction, lane: Lane) -> None:
    """Put the cursor exactly on the lowest unsettled number: gaps and early settlements are behind it then."""
    limit = lane.limit
    if isinstance(lane, LooseEntry):
        is_unsettled = tx.execute(IS_UNSETTLED, {"key": lane.position}).fetchone() is not None
        lane.cursor = LOOSE_NUMBER if is_unsettled else limit
        return
    bounds = {"lane": lane.id, "lower": lane.cursor, "upper": limit}
    (lowest,) = tx.execute(entries.NEXT_LIVE, bounds).fetchone()
    lane.cursor = limit if lowest is None else lowest


def count_unsettled(tx: Transaction, lane: Lane, lower: int) -> int:
    """Of the numbers from ``lower`` on."""
    (count,) = tx.execute(entries.COUNT_UNSETTLED, {"lane": lane.id, "lower": lower}).fetchone()
    return int(count)


def move_past(tx: Transaction, lane: Lane, number: int) -> None:
    """``number`` was settled. In order it was the lowest; without order, and where lower ones may come late, another
    may still wait."""
    if lane.in_any_order:
        settle_cursor(tx, lane)
    else:
        lane.passed(number)
