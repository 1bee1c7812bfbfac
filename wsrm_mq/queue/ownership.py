"""Who may run a sequence: a claim, which only a commit can give.

The commit that makes a message deliverable takes its sequence for this process if it is free; the thread that gets the
claim runs the sequence or hands the claim on. An owner that goes on gives a sequence back only in a transaction that
sees nothing deliverable, so a message that arrives while it is owned is never forgotten: the owner sees it. An owner
that stops, failed or broke off gives it back as it is; then the watch of any process takes it up.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from wsrm_mq.errors import FenceLost
from wsrm_mq.queue.cursor import settle_cursor
from wsrm_mq.sequence.running import DeliveryState
from wsrm_mq.store import entries, queues, sequences
from wsrm_mq.store.channels import LEAVING
from wsrm_mq.store.records import SequenceRecord
from wsrm_mq.store.storable import storable
from wsrm_mq.store.transaction import Transaction

__all__ = [
    "RUN_AHEAD",
    "Claim",
    "claim",
    "free",
    "give_back",
    "leave",
    "runnable",
    "still_mine",
    "take",
    "wait_for_host",
]

RUN_AHEAD: Final = 64
"""How many settlements may be under way. One message more may have been called: so many may be repeated after a
crash."""


class Claim(NamedTuple):
    """The right to run one sequence. ``fence`` proves it: a settlement under an older one is refused (I3)."""

    sequence: int
    fence: int
    is_outgoing: bool = False
    """What it has is sent, not delivered to the application."""


def take(tx: Transaction, record: SequenceRecord, *, has_thread: bool = False) -> Claim | None:
    """Take a free sequence that has something deliverable now; ``None`` where there is nothing to take, or no thread to
    run it: then it stays free for whichever process has one first. ``has_thread``: a request brings one along."""
    if record.owner is not None or record.delivery_state(tx.now) is not DeliveryState.READY:
        return None
    is_outgoing = record.kind == "outgoing"
    if not tx.serves(record.queue) or not (has_thread or (_may_leave(tx, record) if is_outgoing else tx.takes_slot())):
        return None
    record.owner = tx.instance
    record.fence += 1
    record.running_since = tx.now
    if record.retry_at is not None:
        record.wait(tx.now, None)
    return Claim(record.id, record.fence, is_outgoing)


def _may_leave(tx: Transaction, record: SequenceRecord) -> bool:
    """Whether what it has may be sent now; else it waits, and says why. What has waited for too long is taken, to be
    given up."""
    head = tx.execute(LEAVING, {"sequence": record.id, "number": record.cursor}).fetchone()
    if head is None:
        return True
    address, position, received_at = head
    left_alone = tx.left_alone(address, record.sender, (tx.now - received_at) / 1000)
    if left_alone is None or left_alone.is_given_up:
        return True
    wait_for_host(tx, record, position, left_alone.seconds, str(left_alone))
    return False


def wait_for_host(tx: Transaction, record: SequenceRecord, position: int, seconds: float, why: str) -> None:
    """Nothing of a sequence can leave for so long. Long waits end together: the watch looks once for all of them."""
    tx.execute(entries.SAY_WHY, {"key": position, "error": storable(why)})
    until = tx.now + math.ceil(seconds * 1000)
    record.wait(tx.now, until if seconds < 1 else -(-until // 1000) * 1000)


def claim(tx: Transaction, key: int) -> Claim | None:
    record = tx.sequence(key)
    return take(tx, record) if record is not None else None


def still_mine(tx: Transaction, held: Claim) -> SequenceRecord:
    """The sequence of a claim, or ``FenceLost``."""
    record = tx.sequence(held.sequence)
    if record is None or record.owner != tx.instance or record.fence != held.fence:
        raise FenceLost(f"sequence {held.sequence} is no longer run under fence {held.fence}")
    return record


def free(record: SequenceRecord) -> None:
    record.owner = None
    record.running_since = None


def give_back(tx: Transaction, held: Claim, *, stopping: bool = False) -> bool:
    """Give the sequence back if nothing is deliverable now, or in any case when ``stopping``. Answers whether it was
    given back; if not, the claim still holds and there is more to run."""
    record = still_mine(tx, held)
    settle_cursor(tx, record)
    if record.has_next and not stopping:
        waiting_until = _all_wait_until(tx, record)
        if waiting_until is None:
            return False
        record.wait(tx.now, waiting_until)
    free(record)
    return True


def leave(tx: Transaction) -> None:
    """The instance ends in good order: nothing runs here any more, so whatever it still owns is free."""
    owned = {key for (key,) in tx.execute(sequences.OWNED_BY, {"owner": tx.instance})} | tx.changed_sequences
    for key in owned:
        record = tx.sequence(key)
        if record is not None and record.owner == tx.instance:
            free(record)
            settle_cursor(tx, record)
    tx.execute(queues.END_INSTANCE, {"key": tx.instance, "now": tx.now})
    tx.count_now()


def _all_wait_until(tx: Transaction, record: SequenceRecord) -> int | None:
    """Unordered sequences: when the first retry is due if everything deliverable waits for one."""
    if record.value.terms.ordered:
        return None
    bounds = {
        "sequence": record.id,
        "lower": record.cursor,
        "upper": record.value.deliver_below,
        "ordered": 0,
    }
    runs_now = tx.execute(entries.RUN, {**bounds, "now": tx.now, "count": 1}).fetchone()
    if runs_now is not None:
        return None
    due, _count = tx.execute(entries.RETRIES, {**bounds, "now": tx.now}).fetchone()
    return int(due) if due is not None else tx.now


def runnable(tx: Transaction, count: int, after: int = 0, *, sends: bool = False) -> list[Claim]:
    """Take up to ``count`` sequences that are deliverable and have no owner. In turn: those that follow the key
    ``after``, then the others. Those that were freed earlier in this transaction are among them. ``sends``: those that
    are sent, else those that are delivered to the application."""
    tx.write_sequences()
    claims: list[Claim] = []
    statement = sequences.RUNNABLE_SENDS if sends else sequences.RUNNABLE
    for begin in (after, 0) if after else (0,):
        search = {"now": tx.now, "count": count - len(claims), "foreign": tx.foreign(sends=sends), "after": begin}
        keys = [key for (key,) in tx.execute(statement, search)]
        claims += [taken for key in keys if (taken := claim(tx, key)) is not None]
    return claims
