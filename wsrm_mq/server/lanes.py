"""Lanes of clients' outboxes: what is sent again is not put again, however long one side or the other was away.

The messages of an outbox have rising numbers, and come in their order. The store has the last number of each for ever,
and moves it in the commit that puts the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from wsrm_mq.errors import LaneGap, QueueChanged, QuotaExceeded, StoreError, WSRMError
from wsrm_mq.node import Node
from wsrm_mq.server.acts import PutOne
from wsrm_mq.store import subscribing
from wsrm_mq.store.port import Database
from wsrm_mq.store.transaction import Transaction as Unit


class Lane(NamedTuple):
    """The lane ``name`` of a principal."""

    principal: str
    name: str

    @property
    def row(self) -> dict[str, str]:
        return {"owner": self.principal, "which": self.name}


class Numbered(NamedTuple):
    number: int
    message: PutOne


class Reached(NamedTuple):
    """How far a lane is there. ``refused``: the message that can never be put, and why; those before it were."""

    last: int
    refused: tuple[Numbered, WSRMError] | None = None


def last_of(db: Database, lane: Lane) -> int:
    """The last number of a lane that the store has; 0: none yet."""
    row = db.execute(subscribing.OUTBOX_LAST, lane.row).fetchone()
    return 0 if row is None else int(row[0])


def take(
    node: Node, lane: Lane, after: int, messages: Sequence[Numbered], check: Callable[[PutOne], object]
) -> Reached:
    """Put those messages of a lane that the store has not, up to the first that can never be put, in one commit.
    ``after``: the number before them, which the client knows to be there. ``check`` raises where one may not be put.
    Raises ``LaneGap`` where the store has less, and where nothing could be put for now, why."""
    while True:
        with node.store.reader() as db:
            last = last_of(db, lane)
        if after > last:
            raise LaneGap(f"The lane is here up to {last}, and these messages come behind {after}.", last)
        fresh = [one for one in messages if one.number > last]
        try:
            return _put(node, lane, last, fresh, check)
        except QueueChanged:  # the same was sent by another connection too
            continue


def _put(node: Node, lane: Lane, last: int, fresh: Sequence[Numbered], check: Callable[[PutOne], object]) -> Reached:
    refused: tuple[Numbered, WSRMError] | None = None
    while fresh:
        begun: list[int] = []
        try:
            _together(node, lane, last, fresh, check, begun)
            return Reached(fresh[-1].number, refused)
        except QueueChanged:
            raise
        except WSRMError as error:
            is_for_now = isinstance(error, StoreError) or (isinstance(error, QuotaExceeded) and not error.lasts)
            if not begun or (is_for_now and len(begun) == 1):
                raise
            at = len(begun) - 1
            refused = None if is_for_now else (fresh[at], error)
            fresh = fresh[:at]
    return Reached(last, refused)


def _together(
    node: Node,
    lane: Lane,
    last: int,
    fresh: Sequence[Numbered],
    check: Callable[[PutOne], object],
    begun: list[int],
) -> None:
    """Put these and move the lane, in one commit. ``begun`` gets the numbers up to the one that failed."""

    def next_is(number: int, _tx: Unit) -> None:
        begun.append(number)

    with node.transaction() as collected:
        collected.add(node, partial(_is_at, lane, last, begun))
        for number, one in fresh:
            begun.append(number)
            check(one)
            collected.add(node, partial(next_is, number))
            one.collect(node)
        collected.add(node, partial(_move, lane, fresh[-1].number))


def _is_at(lane: Lane, last: int, begun: list[int], tx: Unit) -> None:
    begun.clear()  # it begins, perhaps anew
    row = tx.execute(subscribing.OUTBOX_LAST, lane.row).fetchone()
    if (0 if row is None else row[0]) != last:
        raise QueueChanged("The lane has moved meanwhile.")


def _move(lane: Lane, reached: int, tx: Unit) -> None:
    row = {**lane.row, "reached": reached, "now": tx.now}
    if tx.execute(subscribing.MOVE_OUTBOX, row).fetchone() is None:
        tx.execute(subscribing.ADD_OUTBOX, row)
