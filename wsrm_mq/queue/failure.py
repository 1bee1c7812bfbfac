"""A failed delivery: wait for the next step of the ladder, or, after the last, what the queue says (``on_poison``)."""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from wsrm_mq.queue.ending import bury, give_up
from wsrm_mq.queue.outbound import reason_of
from wsrm_mq.queue.ownership import Claim, free, give_back, move_past, still_mine, wait_for_host
from wsrm_mq.queue.policy import OnPoison, QueuePolicy
from wsrm_mq.sequence.inbound import GaveUp
from wsrm_mq.store import entries, queues
from wsrm_mq.store.records import Lane
from wsrm_mq.store.sql import storable
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.store.words import ANSWERED_WITH_FAULT

# How an attempt failed, in the few words by which failures are grouped; the text of the error tells the rest.


class Diagnosis(NamedTuple):
    kind: str = ""
    """One of a few words: ``exception``, ``http_error``, ``soap_fault``, ``answered_with_fault``, ``refused``,
    ``unstorable``; ``not_sent`` of what this side sends, ``not_told`` of an end that is not told again,
    ``never_answered`` of what could not be sent for so long that it is given up, ``too_large`` of what its host does
    not read, ``refused_there`` of what a next node will not take, ``not_let_in`` where credentials
    are refused; ``nacked`` by a consumer."""
    code: str | None = None
    """The code of the SOAP fault that the application answered, as it wrote it."""
    exception: str | None = None
    """The type of what was raised, as ``module.name``; one of Python's own goes by its name."""
    place: str | None = None
    """Where in the application that was raised: ``path:line function``."""

    @property
    def columns(self) -> dict[str, str | None]:
        """The columns of the ledger that keep it. A failure without a SOAP fault goes by its kind."""
        return {"fault": self.code or self.kind or None, "exception": self.exception, "place": self.place}


NOT_TOLD: Final = "not_told"
"""The end of a sequence was sent a few times and not taken: the other side is gone, or has forgotten it already."""
NEVER_ANSWERED: Final = "never_answered"
"""Its host has never answered, and left it no room to be tried for a day; or it will never be tried: it cannot be
signed."""
TOO_LARGE: Final = "too_large"
"""Its host does not read a message of this size."""
REFUSED_THERE: Final = "refused_there"
"""The next node will never take it as it is: it is too large there, or cannot be read."""
NOT_LET_IN: Final = "not_let_in"
"""The credentials of this side are refused, in what it says of a sequence: the messages of that are not."""
NACKED: Final = Diagnosis("nacked")
UNKNOWN: Final = Diagnosis()


_PUT_ASIDE: Final = (ANSWERED_WITH_FAULT, NEVER_ANSWERED, REFUSED_THERE)
"""Kinds of failures after which a message is no longer tried."""
_TOO_LARGE_TRIES: Final = 4
"""How often a message is tried that its host does not read. Nothing passes it meanwhile: what came behind the gap that
it will leave would not be delivered there."""
_STEPS_OUTSIDE: Final = 5
"""Steps of the ladder that are taken where credentials are refused: from then on each wait is that of the last."""


class Aftermath(enum.Enum):
    RETRY = "retry"
    BLOCKED = "blocked"
    BURIED = "buried"
    ENDED = "ended"
    SETTLED = "settled"


class Failed(NamedTuple):
    aftermath: Aftermath
    retry_at: int | None
    released: bool
    sends: Claim | None = None
    """The claim on what is to be sent because of it."""


def fail(
    tx: Transaction,
    held: Claim,
    position: int,
    number: int,
    error: str,
    policy: QueuePolicy,
    diagnosis: Diagnosis = UNKNOWN,
    seconds: float | None = None,
) -> Failed:
    """Record a failed attempt, and what follows from it. The claim is given up unless the sequence can go on. What was
    answered with a fault is put aside at once: the application has said that another try would not help."""
    lane = still_mine(tx, held)
    error = storable(error)
    is_live = tx.execute(entries.FAIL, {"key": position, "delivered": 1, "error": error, "retry_at": None}).rowcount
    if lane.kind == "outgoing" and not is_live:  # it was acknowledged while it was under way
        return Failed(Aftermath.SETTLED, None, give_back(tx, held))
    failures, _deaths, _number = tx.execute(entries.ENTRY_COUNTERS, {"key": position}).fetchone()
    tx.ledger(
        "failed", lane, number=number, position=position, attempt=failures, reason=error, failure=diagnosis.columns
    )
    tx.counts.failed(lane.queue, diagnosis.kind, seconds)
    is_too_large = diagnosis.kind == TOO_LARGE
    as_that = {"position": position, "fault": TOO_LARGE}
    unread = tx.execute(queues.FAILED_AS, as_that).fetchone()[0] if is_too_large else 0
    if diagnosis.kind in _PUT_ASIDE or unread >= _TOO_LARGE_TRIES:
        aftermath = _put_aside(tx, lane, position, number, diagnosis.kind)
    elif diagnosis.kind == NOT_TOLD:
        aftermath = _discard(tx, lane, position, number)
    else:
        most = min(_STEPS_OUTSIDE, len(policy.resend.ladder)) or 1
        tries = min(failures, most) if diagnosis.kind == NOT_LET_IN else failures
        aftermath = after_failure(tx, lane, position, number, tries, policy, error)
    if is_too_large and aftermath is Aftermath.RETRY:
        lane.wait(tx.now, tx.now + policy.resend.ladder[failures - 1])
    goes_on = aftermath is Aftermath.BURIED or (aftermath is Aftermath.RETRY and not (lane.ordered or is_too_large))
    if goes_on:
        released = give_back(tx, held)
    else:
        free(lane)
        released = True
    return Failed(aftermath, lane.retry_at, released)


def leave_alone(tx: Transaction, held: Claim, position: int, seconds: float, why: str) -> Failed:
    """Leave a sequence alone for so long: nothing of it can leave, and nothing has failed, so no step of a ladder is
    taken."""
    lane = still_mine(tx, held)
    tx.counts["unanswered", lane.queue, ""] += 1
    wait_for_host(tx, lane, position, seconds, why)
    free(lane)
    return Failed(Aftermath.RETRY, lane.retry_at, released=True)


def after_failure(
    tx: Transaction, lane: Lane, position: int, number: int, failures: int, policy: QueuePolicy, error: str
) -> Aftermath:
    """Decide what happens to the entry at ``position`` that has failed ``failures`` times."""
    if lane.is_given_up(number):  # while it ran: it goes with what is given up
        return Aftermath.ENDED
    ladder = policy.resend.ladder if lane.kind == "outgoing" else policy.retry
    if failures <= len(ladder):
        retry_at = tx.now + ladder[failures - 1]
        tx.execute(entries.RETRY_LATER, {"key": position, "now": tx.now, "retry_at": retry_at})
        if lane.ordered or lane.is_consumed:  # consumers take turns at a lane, in its order
            lane.wait(tx.now, retry_at)
        return Aftermath.RETRY
    match _on_poison(policy, lane):
        case OnPoison.BLOCK:
            lane.blocked = position
            tx.ledger("blocked", lane, number=number, position=position, reason=error)
            return Aftermath.BLOCKED
        case OnPoison.DEAD_LETTER:
            return _put_aside(tx, lane, position, number, "max_failures")
        case OnPoison.TERMINATE:
            tx.execute(entries.FREE_RETRY, {"key": position})
            give_up(tx, lane, GaveUp(), reason=error)
            return Aftermath.ENDED


def _on_poison(policy: QueuePolicy, lane: Lane) -> OnPoison:
    """The policy for a message whose tries are over. A dead letter that fails again is one again, as no operator's
    order depends on it; a plan's does. What is sent, and what is in no lane, has no order."""
    if lane.kind in ("outgoing", "loose"):
        return OnPoison.DEAD_LETTER
    if lane.kind == "replay":
        return OnPoison.DEAD_LETTER if lane.plan is None else OnPoison.BLOCK
    return policy.on_poison if lane.kind == "rm" else policy.connection_on_poison


def _put_aside(tx: Transaction, lane: Lane, position: int, number: int, reason: str) -> Aftermath:
    bury(tx, lane, position, number, reason_of(tx, lane, number, reason))
    move_past(tx, lane, number)
    return Aftermath.BURIED


def _discard(tx: Transaction, lane: Lane, position: int, number: int) -> Aftermath:
    row = {"key": position, "now": tx.now, "outcome": "discarded", "reason": NOT_TOLD, "delivered": 0}
    tx.execute(entries.SETTLE, row)
    tx.ledger("discarded", lane, number=number, position=position, reason=NOT_TOLD)
    move_past(tx, lane, number)
    return Aftermath.BURIED
