"""Where the delivery of a sequence stands: its cursor, the lowest accepted and unsettled number below ``limit``.

It may lag behind over numbers that were settled out of turn; it never passes an unsettled one.
"""

from __future__ import annotations

from wsrm_mq.store import statements as sql
from wsrm_mq.store.records import SequenceRecord
from wsrm_mq.store.transaction import Transaction

__all__ = ["move_past", "settle_cursor"]


def settle_cursor(tx: Transaction, record: SequenceRecord) -> None:
    """Put the cursor exactly on the lowest unsettled number: gaps and early settlements are behind it then."""
    limit = record.value.limit
    bounds = {"sequence": record.id, "lower": record.cursor, "upper": limit}
    (lowest,) = tx.execute(sql.NEXT_LIVE, bounds).fetchone()
    record.cursor = limit if lowest is None else lowest


def move_past(tx: Transaction, record: SequenceRecord, number: int) -> None:
    """``number`` was settled. In order it was the lowest; without order a lower one may still wait for a retry."""
    if record.value.terms.ordered:
        record.passed(number)
    else:
        settle_cursor(tx, record)
