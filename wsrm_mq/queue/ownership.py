"""Who may run a sequence: a claim, which only a commit can give.

The commit that makes a message deliverable takes its sequence for this process if it is free; the thread that gets the
claim runs the sequence or hands the claim on. An owner that goes on gives a sequence back only in a transaction that
sees nothing deliverable, so a message that arrives while it is owned is never forgotten: the owner sees it. An owner
that stops, failed or broke off gives it back as it is; then the watch of any process takes it up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from wsrm_mq.errors import FenceLost
from wsrm_mq.queue.counts import failed
from wsrm_mq.queue.cursor import settle_cursor
from wsrm_mq.queue.poison import after_failure
from wsrm_mq.queue.policy import PolicyOf
from wsrm_mq.sequence.running import DeliveryState
from wsrm_mq.store import statements as sql
from wsrm_mq.store.records import SequenceRecord
from wsrm_mq.store.transaction import Transaction

__all__ = [
    "RUN_AHEAD",
    "Claim",
    "claim",
    "give_back",
    "leave",
    "let_go",
    "let_go_dropped",
    "mark_redelivery",
    "runnable",
    "still_mine",
    "take",
    "take_from_dead",
    "take_over",
]

RUN_AHEAD = 64
"""How many settlements may be under way. One message more may have been called: so many may be repeated after a
crash."""

_DIED: Final = "its holder died while it ran"
_DROPPED: Final = "its run was dropped: an error came where none was expected"
_BROKE_OFF: Final = "broke_off"
_MOST_DEATHS: Final = 3
"""In a row: from then on each is a failed attempt."""


class Claim(NamedTuple):
    """The right to run one sequence. ``fence`` proves it: a settlement under an older one is refused (I3)."""

    sequence: int
    fence: int


def take(tx: Transaction, record: SequenceRecord, *, has_thread: bool = False) -> Claim | None:
    """Take a free sequence that has something deliverable now; ``None`` where there is nothing to take, or no thread to
    run it: then it stays free for whichever process has one first. ``has_thread``: a request brings one along."""
    if record.owner is not None or record.delivery_state(tx.now) is not DeliveryState.READY:
        return None
    if not (tx.serves(record.queue) and (has_thread or tx.takes_slot())):
        return None
    record.owner = tx.instance
    record.fence += 1
    record.running_since = tx.now
    if record.retry_at is not None:
        record.wait(tx.now, None)
    return Claim(record.id, record.fence)


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


def let_go(tx: Transaction, held: Claim, policy_of: PolicyOf, why: str | None) -> None:
    """Give the sequence back after a run that broke off: what it may have called counts as called. ``why`` counts
    against the message that it was at, as a death does: what breaks off every run of it is not repeated for ever.
    ``None``: the store was the reason."""
    record = still_mine(tx, held)
    if why is not None:
        _end_run(tx, record, policy_of, _BROKE_OFF, why)
    else:
        free(record)
        mark_redelivery(tx, record)


def leave(tx: Transaction) -> None:
    """The instance ends in good order: nothing runs here any more, so whatever it still owns is free."""
    owned = {key for (key,) in tx.execute(sql.OWNED_BY, {"owner": tx.instance})} | tx.changed_sequences
    for key in owned:
        record = tx.sequence(key)
        if record is not None and record.owner == tx.instance:
            free(record)
            settle_cursor(tx, record)
    tx.execute(sql.END_INSTANCE, {"key": tx.instance, "now": tx.now})
    tx.count_now()


def let_go_dropped(tx: Transaction, dropped: Iterable[Claim], policy_of: PolicyOf) -> list[Claim]:
    """``let_go`` of claims that no hand has, as far as they are still this instance's. Answers those that were."""
    found = []
    for held in dropped:
        record = tx.sequence(held.sequence)
        if record is not None and record.owner == tx.instance and record.fence == held.fence:
            let_go(tx, held, policy_of, _DROPPED)
            found.append(held)
    return found


def mark_redelivery(tx: Transaction, record: SequenceRecord) -> None:
    """Mark what a run may have called whose process is gone. In order that is the head and what may have run ahead of
    its settlement; without order it may be any."""
    settle_cursor(tx, record)
    beyond = None
    if record.value.terms.ordered:
        bounds = {"sequence": record.id, "lower": record.cursor, "upper": record.value.limit}
        beyond = tx.execute(sql.NTH_LIVE, {**bounds, "skip": RUN_AHEAD + 1}).fetchone()
    record.redelivery_below = max(record.redelivery_below, beyond[0] if beyond else record.value.limit)


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
    runs_now = tx.execute(sql.RUN, {**bounds, "now": tx.now, "count": 1}).fetchone()
    if runs_now is not None:
        return None
    due, _count = tx.execute(sql.RETRIES, {**bounds, "now": tx.now}).fetchone()
    return int(due) if due is not None else tx.now


def runnable(tx: Transaction, count: int, after: int = 0) -> list[Claim]:
    """Take up to ``count`` sequences that are deliverable and have no owner. In turn: those that follow the key
    ``after``, then the others."""
    claims: list[Claim] = []
    for begin in (after, 0) if after else (0,):
        search = {"now": tx.now, "count": count - len(claims), "foreign": tx.foreign, "after": begin}
        keys = [key for (key,) in tx.execute(sql.RUNNABLE, search)]
        claims += [taken for key in keys if (taken := claim(tx, key)) is not None]
    return claims


class Left(NamedTuple):
    """The message that a dead owner was at, and what counts against it."""

    position: int
    number: int
    failures: int
    deaths: int


def take_from_dead(
    tx: Transaction, record: SequenceRecord, event: str = "holder_died", why: str = _DIED
) -> Left | None:
    """Free a sequence whose owner died, or whose run did. What it may have been running is marked as a possible
    redelivery; its death counts as a delivery of the head, from the third in a row also as a failure. ``None`` where
    nothing is deliverable."""
    free(record)
    mark_redelivery(tx, record)
    if not record.has_next:
        return None
    head = tx.execute(sql.ENTRY_BY_NUMBER, {"sequence": record.id, "number": record.cursor}).fetchone()
    if head is None:
        return None
    position = head[0]
    tx.execute(sql.COUNT_DEATH, {"key": position, "error": why})
    failures, deaths, number = tx.execute(sql.ENTRY_COUNTERS, {"key": position}).fetchone()
    tx.ledger(event, record, number=number, position=position, attempt=deaths, reason=why)
    return Left(position, number, failures, deaths)


def _end_run(tx: Transaction, record: SequenceRecord, policy_of: PolicyOf, event: str, why: str) -> None:
    """``take_from_dead``, and what follows where it is a failure."""
    left = take_from_dead(tx, record, event, why)
    if left is not None and left.deaths >= _MOST_DEATHS and tx.serves(record.queue):
        failed(tx, record.queue, event)
        policy = policy_of(record.partner)
        after_failure(tx, record, left.position, left.number, left.failures, policy, why)


def take_over(tx: Transaction, instance: int, policy_of: PolicyOf) -> int:
    """Free what a dead instance ran, and do what follows from its death. Answers how many sequences it had."""
    ended = tx.execute(sql.END_INSTANCE, {"key": instance, "now": tx.now}).rowcount
    keys = [key for (key,) in tx.execute(sql.OWNED_BY, {"owner": instance})]
    for key in keys:
        record = tx.sequence(key)
        if record is None or record.owner != instance:
            continue
        _end_run(tx, record, policy_of, "holder_died", _DIED)
    if ended:
        tx.ledger("instance_gone", reason=f"instance {instance}")
    return len(keys)
