"""A numbered message of this side has left: it leaves again until it is acknowledged."""

from __future__ import annotations

from typing import Final

from wsrm_mq.queue.ownership import Claim, give_back, still_mine
from wsrm_mq.queue.policy import Resend
from wsrm_mq.queue.requests import give_up
from wsrm_mq.queue.settle import Settled
from wsrm_mq.store import channels, entries
from wsrm_mq.store.transaction import Transaction

NOT_ACKNOWLEDGED: Final = "not_acknowledged"
"""Reason of a dead letter: it was sent as often as ``resend`` says."""


def sent(
    tx: Transaction,
    held: Claim,
    position: int,
    number: int,
    attempt: int,
    resend: Resend,
    *,
    release: bool,
    over_at: int | None = None,
) -> Settled:
    """Note that it has left for the ``attempt``-th time, and leaves again as ``resend`` says, or is a dead letter.
    Raises ``FenceLost`` as ``settle`` does."""
    record = still_mine(tx, held)
    wait = resend.wait(attempt)
    if wait is not None:
        wait = tx.round_trips.wait(record.id, wait, attempt)
        tx.execute(channels.SENT, {"key": position, "now": tx.now, "retry_at": tx.now + wait})
    elif not record.is_given_up(number) and tx.execute(entries.IS_LIVE_AT, {"key": position}).fetchone() is not None:
        # else another sequence will carry it on, or the answer has acknowledged it
        give_up(tx, record, position, number, NOT_ACKNOWLEDGED)
    record.running_since = tx.now if over_at is None else min(over_at, tx.now)
    released = release and give_back(tx, held)
    return Settled(released, None, record.has_next, record.cursor)
