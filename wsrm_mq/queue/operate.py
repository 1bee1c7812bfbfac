"""Acts of an operator on a sequence: each is one transaction and leaves its ledger row.

A process that runs the sequence is not asked: its next commit sees what was changed, so a run stops behind the message
that it is at. The peer learns of an end by the fault that its next message gets.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from wsrm_mq.errors import NotAllowed, NotFound
from wsrm_mq.queue.ending import apply_step, bury, give_up, step_of
from wsrm_mq.queue.idle import make_idle, owner_lives
from wsrm_mq.queue.ownership import count_unsettled, settle_cursor
from wsrm_mq.queue.plans import is_held_by_plan
from wsrm_mq.sequence.elements import IncompleteSequenceBehavior
from wsrm_mq.sequence.inbound import GaveUp, InboundSequence, Late, OperatorClose, forced
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.sequence.states import ENDED, Act, State
from wsrm_mq.store import entries
from wsrm_mq.store.records import Lane, SequenceRecord
from wsrm_mq.store.transaction import Transaction

TERMINATED: Final = "terminated_by_operator"
"""The reason that dead letters are marked with, where the rest of a sequence was given up."""


def hold(tx: Transaction, identifier: str, *, actor: str, reason: str) -> int | None:
    """Deliver nothing more of a sequence until it is resumed, also after its end, or that of a plan that holds it;
    what comes is still accepted. Answers the number that is being run, which is let end."""
    lane = _named(tx, identifier)
    if lane.on_hold_since is not None and not is_held_by_plan(tx, lane):
        raise NotAllowed(f"{identifier} is held already.")
    if lane.is_over:
        raise NotAllowed(f"{identifier} has ended and has nothing left to deliver; there is nothing to hold.")
    lane.on_hold_since = tx.now
    is_run = lane.owner is not None and owner_lives(tx, lane.owner) is not False
    runs = lane.cursor if is_run and lane.is_unsettled else None
    tx.ledger("held", lane, number=runs, reason=reason, actor=actor)
    return runs


def resume(tx: Transaction, identifier: str, *, actor: str, reason: str) -> int | None:
    """Try a sequence again now, from the first step of the ladder: one that is held, is blocked, waits for its next
    retry, or was run by a process that died. Answers the number that will be tried; ``None``: it was held and has
    nothing to deliver now."""
    lane = _named(tx, identifier)
    if lane.on_hold_since is None:
        left_by_dead = make_idle(tx, lane)
        stopper: tuple[int, int] | None = _stopper(tx, lane)
        if lane.blocked is None and lane.retry_at is None and not left_by_dead:
            raise NotAllowed(f"{identifier} is not held, blocked or waiting for a retry; there is nothing to resume.")
    else:
        lane.on_hold_since = None
        stopper = _next(tx, lane)
    position, number = stopper or (None, None)
    if lane.owner is None and position is not None:
        lane.blocked = None
        lane.wait(tx.now, None)
        tx.execute(entries.BEGIN_LADDER, {"key": position})
    tx.ledger("resumed", lane, number=number, position=position, reason=reason, actor=actor)
    return number


def skip(tx: Transaction, identifier: str, number: int, *, actor: str, reason: str) -> int:
    """Send the message that stops a sequence to the dead letters and let the sequence go on. Answers its position."""
    lane = _named(tx, identifier)
    make_idle(tx, lane)
    if number not in lane.numbers:
        raise NotAllowed(
            f"number {number} of {identifier} was never received; only what stops a sequence can be skipped. "
            "A gap is filled by the source; sequence force goes past it."
        )
    position, stopper = _stopper(tx, lane)
    if number != stopper:
        raise NotAllowed(f"number {number} of {identifier} is not what stops it; that is number {stopper}.")
    bury(tx, lane, position, number, "skipped", actor=actor)
    lane.blocked = None
    lane.wait(tx.now, None)
    settle_cursor(tx, lane)
    tx.ledger("skipped", lane, number=number, position=position, reason=reason, actor=actor)
    return position


class Forced(NamedTuple):
    """The result of forcing a sequence past its gap."""

    to: int
    """Held messages are deliverable up to this number."""
    released: int
    """Messages that were held."""
    missing: AckRanges
    """Numbers that delivery goes past."""


def force(
    tx: Transaction,
    identifier: str,
    *,
    past: int | None = None,
    to: int | None = None,
    late: Late | str = Late.ACCEPT,
    actor: str,
    reason: str,
) -> Forced:
    """Deliver what is held across the next gap, of which ``past`` is a number: said twice, it goes past one gap. Or
    across every gap up to number ``to``. What follows without a gap goes along. ``late`` rules the missing numbers of
    the sequence from now on."""
    record = _named(tx, identifier)
    if not isinstance(record, SequenceRecord):
        raise NotAllowed(f"{identifier} holds nothing behind a gap; there is nothing to force.")
    before, held = record.value, record.held
    behavior, highest = before.terms.behavior, before.received.highest
    if behavior is not IncompleteSequenceBehavior.NO_DISCARD:
        raise NotAllowed(
            f"{identifier} was granted with {behavior.value}: its source was told that nothing is delivered across a "
            "gap. Ask for what is missing, or terminate it."
        )
    if not record.held:
        raise NotAllowed(f"{identifier} holds nothing behind a gap; there is nothing to force.")
    if to is None:
        to = _end_of_gap(before, past)
    elif not before.limit <= to <= highest:
        raise NotAllowed(f"what {identifier} holds lies from {before.limit} to {highest}; number {to} does not.")
    step = forced(before, to, Late(late))
    last = step.sequence.limit - 1
    tx.ledger("forced", record, number=last, reason=reason, actor=actor)
    apply_step(tx, record, step)
    return Forced(last, held - record.held, step.released_across)


def _end_of_gap(value: InboundSequence, past: int | None) -> int:
    """The last number of the next gap, where ``past`` lies in it."""
    identifier = value.terms.identifier
    first, last = AckRanges(((value.limit, value.received.highest),)).without(value.received).ranges[0]
    if past is not None and first <= past <= last:
        return last
    if past is None:
        why = f"{identifier}: past which gap?"
    elif past < value.limit:
        why = f"{identifier} has gone past number {past} already."
    elif past in value.received:
        why = f"number {past} of {identifier} has come, and waits for others."
    else:
        why = f"number {past} of {identifier} is not in its next gap."
    gap = f"number {first}" if first == last else f"numbers {first}-{last}"
    raise NotAllowed(f"{why} It waits for {gap}: --past {first} gives that up.")


class Ended(NamedTuple):
    """The rest of a sequence that takes no new number."""

    missing: AckRanges
    """Numbers below the highest received that never came."""
    delivers: int
    """Messages that are not settled and still are delivered."""
    gives_up: int
    """Messages that go to the dead letters, in batches that follow."""


def close(tx: Transaction, identifier: str, *, actor: str, reason: str) -> Ended:
    """Close a sequence in its source's stead: it takes no new number, and its behavior rules what is held."""
    record = _named(tx, identifier)
    if not isinstance(record, SequenceRecord):
        why = "has ended." if record.ended else "is a connection's and has no source that could be told; terminate it."
        raise NotAllowed(f"{identifier} {why}")
    step = step_of(tx, record, OperatorClose())
    if step.act is not Act.CLOSE:
        raise NotAllowed(f"{identifier} {_why_not_closed(record)}")
    apply_step(tx, record, step, reason=reason, actor=actor)
    return _left(tx, record)


def _why_not_closed(record: SequenceRecord) -> str:
    state, rm = record.value.state, record.value.terms.rm
    if state in ENDED:
        return "has ended."
    if state is State.CLOSED:
        return "is closed already."
    if not rm.has_close:
        return f"speaks WS-ReliableMessaging {rm.label}, which has no close; terminate it."
    return "is over: its time has run out."


def terminate(tx: Transaction, identifier: str, *, drain: bool, actor: str, reason: str) -> Ended:
    """End a sequence; its source is told SequenceTerminated. ``drain``: what was accepted is still delivered, as its
    behavior rules; else it goes to the dead letters, but for what is being run."""
    record = _named(tx, identifier)
    unsettled = count_unsettled(tx, record, 1)
    if record.ended is not None and (drain or not unsettled):
        left = f"; what it has left ({unsettled}) is delivered" if unsettled else " and has nothing left to deliver"
        raise NotAllowed(f"{identifier} has ended{left}.")
    if not drain:
        if record.owner is not None and owner_lives(tx, record.owner) is False:
            make_idle(tx, record)
        record.on_hold_since = record.blocked = None
        record.wait(tx.now, None)
    tx.ledger("terminated", record, reason=reason, actor=actor)
    why = None if drain else TERMINATED
    give_up(tx, record, GaveUp(why), reason=why, actor=actor)
    return _left(tx, record)


def note(tx: Transaction, identifier: str, *, actor: str, reason: str) -> None:
    """Write down what is worth knowing about a sequence."""
    tx.ledger("noted", _named(tx, identifier), reason=reason, actor=actor)


def _left(tx: Transaction, lane: Lane) -> Ended:
    gives_up = 0 if lane.discard_from is None else count_unsettled(tx, lane, lane.discard_from)
    return Ended(lane.numbers.gaps(), count_unsettled(tx, lane, 1) - gives_up, gives_up)


def _named(tx: Transaction, identifier: str) -> Lane:
    lane = tx.lane_named(identifier)
    if lane is None:
        raise NotFound(f"There is no sequence {identifier}.")
    return lane


def _stopper(tx: Transaction, lane: Lane) -> tuple[int, int]:
    """Position and number of the message that blocks it, else of the next to be delivered."""
    found = _next(tx, lane)
    if found is None:
        raise NotAllowed(f"{lane.identifier} has nothing to deliver: nothing of it is stopped.")
    return found


def _next(tx: Transaction, lane: Lane) -> tuple[int, int] | None:
    """Without order the two differ: a lower number may wait for its retry."""
    settle_cursor(tx, lane)
    if lane.blocked is not None:
        _failures, _deaths, number = tx.execute(entries.ENTRY_COUNTERS, {"key": lane.blocked}).fetchone()
        return lane.blocked, number
    found = tx.execute(entries.ENTRY_BY_NUMBER, {"lane": lane.id, "number": lane.cursor}).fetchone()
    return None if found is None or not lane.is_unsettled else (found[0], lane.cursor)
