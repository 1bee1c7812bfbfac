"""The chores of the watch beside its look at lanes, each a function or the ``look`` of a class.

Ends of offered sequences are told, gaps that stay open are told and asked for, late indexes are filled, and a queue
changes its mode.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from wsrm_mq.delivery.outgoing_messages import tell_end_of_outbound
from wsrm_mq.errors import OtherApplication
from wsrm_mq.events.telling import Events
from wsrm_mq.queue import modes
from wsrm_mq.queue.acknowledgement import DueAcknowledgement, tell_gaps
from wsrm_mq.queue.outbound import end_of, end_outbound, is_ended_there
from wsrm_mq.queue.ownership import Claim
from wsrm_mq.queue.policy import PolicyOf
from wsrm_mq.store import late_index
from wsrm_mq.store.lanes import OLD_GAPS
from wsrm_mq.store.late_index import BY_CONNECTION, BY_LANE, LOOK, piece
from wsrm_mq.store.outbound import OVER
from wsrm_mq.store.store import Store
from wsrm_mq.store.transaction import Transaction

_BATCH: Final = 200
"""Sequences told or ended in one turn, each in one transaction."""


def tell_ends(store: Store, give: Callable[[Claim], object]) -> None:
    """End offered sequences, and have that told at their addresses, where no process of the service has noticed: the
    last message of the one that each answers was settled by a consumer, or given up. ``give`` takes the claims on what
    leaves."""
    with store.reader() as db:
        rows = db.execute(OVER, {"count": _BATCH, "foreign": store.foreign(db)}).fetchall()
    if rows:
        for sends in store.call(lambda tx: _end(tx, [key for (key,) in rows])):
            give(sends)


def _end(tx: Transaction, keys: Sequence[int]) -> list[Claim]:
    """Answers the claims on what tells it."""
    claims: list[Claim] = []
    for key in keys:
        outbound = tx.outbound(key)
        if outbound is None or not outbound.value.is_open:
            continue
        end_outbound(tx, outbound)
        if is_ended_there(outbound):
            claims += tell_end_of_outbound(tx, end_of(outbound)).claims
    return claims


# Gaps that stay open for longer than ``hold_timeout`` are told, and asked for where the source has an address.

_LOOKS: Final = 10
"""The number of looks in the time that a gap may stay open."""


class Gaps:
    """Looks for gaps that stay open, for one process. ``look`` is a chore of its watch. ``timeout``: ms that a gap may
    stay open."""

    def __init__(self, store: Store, timeout: int, ask: Callable[[DueAcknowledgement], None] | None) -> None:
        """``ask`` posts a request for missing messages; without it no source is asked."""
        self._store = store
        self._timeout = timeout
        self._ask = ask
        self._next_look = 0.0

    def look(self) -> None:
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + self._timeout / 1000 / _LOOKS
        with self._store.reader() as db:
            look = {"before": self._store.clock() - self._timeout, "count": _BATCH, "foreign": self._store.foreign(db)}
            old = [key for (key,) in db.execute(OLD_GAPS, look).fetchall()]
        if old:
            for nack in self._store.call(lambda tx: tell_gaps(tx, old)):
                if self._ask is not None:
                    self._ask(nack)


# The filling of the late indexes, about a second behind the rows that come.
#
# No request waits for it, so it lingers: it goes along with a commit that a request waits for, a piece in each until
# it has caught up, and no event loop is held for longer than a piece takes. One of several processes does it: each
# leaves it to the one that moved a watermark since it looked last, since a write of one process makes the others
# forget their caches.

LOOK_SECONDS: Final = 0.5
"""The shortest time between two looks."""
FAR_BEHIND: Final = 10 * late_index.BATCH
"""The number of rows behind from which on every process indexes: the process that moves a watermark may be one that
only counts."""
_ROW_BYTES: Final = 1024
"""The bytes that a row adds to the write-ahead log, about: few where many rows are of one connection, else most of a
page."""

Watermarks = tuple[int, ...]


class Indexing:
    """Fills the late indexes (``store.late_index``) of a store, a piece a commit; one of its processes at a time."""

    def __init__(self, store: Store, is_stopping: Callable[[], bool]) -> None:
        self._store = store
        self._is_stopping = is_stopping
        self._look_at = 0.0
        self._left_at: Watermarks | None = None
        """The watermarks when this process saw or moved them last."""
        self._is_at_it = False

    def look(self) -> None:
        """Have the next messages indexed, where there are some and no other process is at it. Cheap to ask for."""
        now = time.monotonic()
        if self._is_at_it or now < self._look_at:
            return
        self._look_at = now + LOOK_SECONDS
        with self._store.reader() as db:
            *watermarks, behind = db.execute(LOOK).fetchone()
        left_at, self._left_at = self._left_at, tuple(watermarks)
        is_ours = left_at == self._left_at
        if behind > FAR_BEHIND or (behind and is_ours):
            self._go_on(behind)

    def _go_on(self, behind: int) -> None:
        self._is_at_it = True
        try:
            self._store.submit(_verb, self._told, size=piece(behind) * _ROW_BYTES, lingers=True)
        except BaseException:
            self._is_at_it = False
            raise

    def _told(self, result: tuple[Watermarks, int] | None, _error: BaseException | None) -> None:
        behind = 0
        if result is not None:  # else the store is in trouble: a later look is soon enough
            self._left_at, behind = result
        if behind and not self._is_stopping():
            self._go_on(behind)
        else:
            self._is_at_it = False


def _verb(tx: Transaction) -> tuple[Watermarks, int]:
    """Bring the indexes forward. Answers the watermarks, and the number of rows left to index; 0 too where only rows
    are left that came meanwhile: a later look is soon enough for them."""
    are_more = [index.bring_forward(tx) for index in (BY_CONNECTION, BY_LANE)]
    *watermarks, behind = tx.execute(LOOK).fetchone()
    return tuple(watermarks), behind if any(are_more) else 0


_MODES_SECONDS: Final = 1.0


def claim_queue(store: Store, name: str) -> None:
    """Have the queue of this name for a service that is called. Raises ``OtherApplication`` where programs have it."""
    if not store.call(lambda tx: modes.claim(tx, name)):
        raise OtherApplication(
            f"{store.path}: programs have declared the queue {name}, and could not consume what is in it once a "
            "service is called with what arrives there.",
            'Give the service\'s `queue` another name, or leave what arrives to the programs by `mode = "pull"`.',
        )


class Modes:
    """A chore of the watch, until nothing is left that another process runs, or a consumer has leased."""

    def __init__(self, policy_of: PolicyOf, *, pulls: bool) -> None:
        self._policy_of = policy_of
        self._pulls = pulls
        self._is_through = False
        self._due = 0.0

    def look(self, store: Store, events: Events) -> None:
        if self._is_through or time.monotonic() < self._due:
            return
        changed = store.call(lambda tx: modes.change_modes(tx, self._policy_of, pulls=self._pulls))
        for one in changed:
            if one.moved or not self._due:
                events.tell("queue.mode_changed", **one._asdict())
        self._is_through = not any(one.left for one in changed)
        self._due = time.monotonic() + _MODES_SECONDS
