"""Barriers: messages that part those before them from those behind.

A message that fits its queue's ``barrier`` is held until all before it in the queue are settled. Then each subscription
of the queue gets it, and with the last of them it is settled, whatever they do with it; until then nothing behind it is
delivered. Where there is no subscription, the first who receives gets it.
"""

from __future__ import annotations

from typing import Any

from wsrm_mq.queue import settling
from wsrm_mq.queue.declaring import Declared
from wsrm_mq.queue.settling import Lease
from wsrm_mq.store import barriers, consuming
from wsrm_mq.store.transaction import Transaction


def first(tx: Transaction, queue: Declared) -> int | None:
    """The position of the first barrier in a queue: what lies behind it is not delivered. ``None``: there is none."""
    if queue.policy.barrier is None:
        return None
    (position,) = tx.execute(barriers.FIRST_BARRIER, {"queue": queue.key}).fetchone()
    return None if position is None else int(position)


def take(tx: Transaction, queue: Declared, subscription: int | None) -> tuple[Any, ...] | None:
    """The row of the barrier that a subscription gets now, if there is one (``consuming.SEEN_AT``); ``None`` for a
    subscription: a consumer that has none. With the last that gets it, it is settled."""
    position = first(tx, queue)
    which = {"queue": queue.key, "position": position}
    if position is None or tx.execute(barriers.UNSETTLED_BEFORE, which).fetchone() is not None:
        return None
    found = tx.execute(barriers.SUBSCRIBED_WITHOUT, which).fetchall()
    waiting = {key for key, instance in found if tx.instances.lives(instance) is not False}
    had = tx.execute(barriers.WAS_HAD, which).fetchone() is not None
    gets_it = subscription in waiting or (subscription is None and not waiting and not had)
    row: tuple[Any, ...] | None = tx.execute(consuming.SEEN_AT, {"key": position}).fetchone() if gets_it else None
    if subscription in waiting:
        tx.execute(barriers.HAD, {"key": subscription, "position": position})
    if waiting <= {subscription} and (had or gets_it):
        settling.ack(tx, [Lease(position)])
    return row
