"""Taking a message out of its queue that was not delivered, a dead letter or one that is not settled; and back."""

from __future__ import annotations

from typing import NamedTuple

from wsrm_mq.errors import NotAllowed, NotFound
from wsrm_mq.queue.idle import make_idle
from wsrm_mq.queue.ownership import count_again, settle_cursor
from wsrm_mq.queue.reporting import settled
from wsrm_mq.store import entries, repairs
from wsrm_mq.store.entries import LOOSE_NUMBER
from wsrm_mq.store.records import Lane
from wsrm_mq.store.transaction import Transaction


class Stored(NamedTuple):
    """An entry, as far as an operator's act depends on it. ``queue``, ``origin`` and ``message`` are keys."""

    position: int
    lane: Lane
    queue: int
    origin: int | None
    """The queue that a dead letter comes from."""
    number: int
    outcome: str | None
    reason: str | None
    retry_at: int | None
    confirmed_at: int | None
    message: int
    wants_reply: int
    size: int
    """Bytes of its body."""
    failures: int
    cancels: int
    has_body: int

    @property
    def home(self) -> int:
        """Key of the queue that it came into."""
        return self.queue if self.origin is None else self.origin


def stored(tx: Transaction, position: int) -> Stored:
    """The entry at ``position``, or ``NotFound``."""
    found = tx.execute(repairs.STORED, {"key": position}).fetchone()
    if found is None:
        raise NotFound(f"There is no message at position {position}.")
    key, queue, origin, number, *facts = found
    lane = tx.loose_entry(position) if key is None else tx.lane(key)
    assert lane is not None
    return Stored(position, lane, queue, origin, LOOSE_NUMBER if number is None else number, *facts)


def check_body(one: Stored) -> None:
    """Raises ``NotAllowed`` where retention has freed the body: then it cannot be delivered."""
    if not one.has_body:
        raise NotAllowed(f"The message at position {one.position} has no body any more: its `retain` has passed.")


def withdraw(tx: Transaction, one: Stored, reason: str) -> None:
    """Settle what was not delivered as discarded; its sequence goes on past it. What may run now is refused: it would
    be delivered all the same."""
    if one.outcome is None:
        _take_out(tx, one, reason)
    elif one.outcome == "dead":
        tx.execute(repairs.WITHDRAW_DEAD_LETTER, {"key": one.position, "reason": reason, "now": tx.now})
    else:
        raise NotAllowed(f"The message at position {one.position} is {one.outcome} already.")


def put_back(tx: Transaction, one: Stored) -> None:
    """Undo ``withdraw``. Where its sequence has delivered what follows it, that is refused: it would come late."""
    if one.origin is not None:
        tx.execute(repairs.RESTORE_DEAD_LETTER, {"key": one.position})
        return
    lane, number = one.lane, one.number
    instead = f"`wsrm-mq replay plan pos:{one.position} -o plan.json` has it delivered by itself."
    if lane.is_given_up(number):
        raise NotAllowed(f"{lane.identifier} was given up from number {lane.discard_from} on. {instead}")
    is_held = number >= lane.limit
    if not is_held:
        make_idle(tx, lane)
        if lane.ordered and _has_delivered_beyond(tx, lane, number):
            raise NotAllowed(
                f"{lane.identifier} has delivered messages behind number {number}, which would come late. {instead}"
            )
    tx.execute(repairs.UNSETTLE, {"key": one.position})
    count_again(tx, lane, one.position)
    if is_held:
        lane.hold(one.size)
    else:
        lane.cursor = min(lane.cursor, number)


def _has_delivered_beyond(tx: Transaction, lane: Lane, number: int) -> bool:
    search = {"lane": lane.id, "number": number}
    return tx.execute(repairs.DELIVERED_BEYOND, search).fetchone() is not None


def _take_out(tx: Transaction, one: Stored, reason: str) -> None:
    lane, number = one.lane, one.number
    if lane.is_given_up(number):
        raise NotAllowed(f"The message at position {one.position} is on its way to the dead letters; try again then.")
    is_held = number >= lane.limit
    if not is_held:
        make_idle(tx, lane)
    tx.execute(
        entries.SETTLE, {"key": one.position, "now": tx.now, "outcome": "discarded", "reason": reason, "delivered": 0}
    )
    settled(tx, lane, one.position, "discarded", reason)
    lane.name(number, tx.now)
    if is_held:
        lane.held -= 1
        lane.held_bytes = max(0, lane.held_bytes - one.size) if lane.held else 0
        return
    if lane.blocked == one.position:
        lane.blocked = None
    if lane.cursor == number:  # what follows does not wait for its retry
        lane.wait(tx.now, None)
    settle_cursor(tx, lane)
