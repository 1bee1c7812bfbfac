"""The net under every wake-up: one thread that looks, when told and at least once a second.

Nothing announces a death, a clock that has run out, or a CLI that wrote to the store; so it looks for dead instances,
sequences without an owner, retries that are due, sequences whose time is over, and tails to bury. It does a bounded
part of each in a turn, deliverable lanes first, and where more is left the next turn follows at once: no amount of one
keeps it from the others, from a stop or from a fork.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from wsrm_mq import tracing
from wsrm_mq.delivery.completion import Waiters
from wsrm_mq.delivery.dispatcher import Dispatcher, Duty
from wsrm_mq.delivery.outgoing_messages import tell_end_of_outbound
from wsrm_mq.errors import OtherApplication, StoreError
from wsrm_mq.events.telling import Events
from wsrm_mq.queue import broken_run, ending, modes, ownership
from wsrm_mq.queue.acknowledgement import DueAcknowledgement, tell_gaps
from wsrm_mq.queue.outbound import end_of, end_outbound, is_ended_there
from wsrm_mq.queue.ownership import Claim
from wsrm_mq.queue.policy import PolicyOf
from wsrm_mq.store import lanes, late_index, queues
from wsrm_mq.store.lanes import OLD_GAPS
from wsrm_mq.store.lasting import Lasting, Repeated
from wsrm_mq.store.late_index import BY_CONNECTION, BY_LANE, LOOK, piece
from wsrm_mq.store.loose import NEXT_LOOSE_RETRY, RUNNABLE_LOOSE
from wsrm_mq.store.outbound import OVER
from wsrm_mq.store.port import Neighbours
from wsrm_mq.store.store import Store
from wsrm_mq.store.transaction import Transaction

POLL_SECONDS: Final = 1.0
BATCH: Final = 200
"""Sequences taken, told or ended in one turn, each in one transaction."""


def _end(tx: Transaction, keys: Sequence[int]) -> list[Claim]:
    """End offered sequences, and have that told at their addresses, where no process of the service has noticed: the
    last message of the one that each answers was settled by a consumer, or given up. Answers the claims on what
    leaves."""
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
            look = {"before": self._store.clock() - self._timeout, "count": BATCH, "foreign": self._store.foreign(db)}
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


# The watch itself.

BURIED: Final = 100
"""Entries moved to the dead letters in one turn."""
_NUDGE_SECONDS: Final = 0.05


@dataclass(eq=False)
class Watch:
    """The net: a thread that looks, at least once a second, for work that no commit and no thread has taken up.

    ``chores`` are done in every turn; ``next_chore`` answers when one of them is due next, in ms since the epoch.
    ``duty`` says whether this process takes deliverable lanes."""

    _store: Store
    _dispatcher: Dispatcher
    _waiters: Waiters
    _policy_of: PolicyOf
    _duty: Duty
    _events: Events
    _chores: Sequence[Callable[[], None]] = ()
    _next_chore: Callable[[], int | None] = lambda: None

    def __post_init__(self) -> None:
        self._stopping = threading.Event()
        self._indexing = Indexing(self._store, self._stopping.is_set)
        self._neighbours = Neighbours(self._store.instances)
        self.turned_at = time.monotonic()
        """When it last began to look or to wait."""
        self._is_counting = False
        self._has_turned = False
        self._busy = False
        """The last turn has left something to do."""
        self.thread = Lasting("wsrm-mq-watch", self._loop, self._broke, self._events)
        self._nudged_at = 0.0
        self._are_left = False
        """Sequences were left to other processes since they were woken last."""
        self._trouble = Repeated()
        self._taken = 0
        """The sequence that was taken last: those behind it have their turn before it."""
        self._sent = 0
        """The lane of messages to send that was taken last."""

    def start(self) -> None:
        """Keep looking, in an own thread."""
        self._stopping.clear()
        self.thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self.nudge()
        self.thread.join()

    def nudge(self, _retry_at: int = 0) -> None:
        """Look again now, to learn when the next retry is due."""
        presence = self._store.presence
        if presence is not None:
            self._store.instances.wake([presence.name])

    def look(self) -> None:
        """Do one turn in this thread: at the start, so that an error of the store ends that."""
        self._busy = self._turn()

    def look_soon(self) -> None:
        """Look soon: something may be wrong with another instance, or a tail waits. Cheap to ask for by every
        request."""
        now = time.monotonic()
        if now - self._nudged_at > _NUDGE_SECONDS:
            self._nudged_at = now
            self.nudge()

    def look_elsewhere(self) -> None:
        """Wake the other processes, since this one has no thread for a message that it has accepted."""
        self._are_left = True
        self.look_soon()

    def _loop(self) -> None:
        presence = self._store.presence
        assert presence is not None
        while not self._stopping.is_set():
            self.turned_at = time.monotonic()
            try:
                tracing.look()
                self._count()
                self._indexing.look()
                self._store.look_after()
                self._store.stay_in_place()
                words = presence.wait(0 if self._busy else self._seconds())
                positions = {word for word in words if word.isdigit()}
                for position in positions:
                    self._waiters.notify(int(position))
                is_told = bool(words - positions)
                if not self._stopping.is_set() and (self._busy or not words or is_told):
                    self.look()
                    self._trouble.over()
            except StoreError as error:
                self._trouble.tell(self._events, "watch.store_error", error)
                self._stopping.wait(POLL_SECONDS)
            except BaseException as error:
                self._broke(error)
                self._stopping.wait(POLL_SECONDS)

    def _broke(self, error: BaseException) -> None:
        self._events.tell("watch.failed", trouble=error)

    def _count(self) -> None:
        """Write the counts that wait: no other commit may come that would take them along."""
        if self._is_counting:
            return
        counts = self._events.take_counts()
        if not counts and not self._store.writer.tally.is_waiting:
            return

        def verb(tx: Transaction) -> None:
            for event, times in counts.items():
                tx.counts["event", 0, event] += times
            tx.count_now()

        def told(_result: None, error: BaseException | None) -> None:
            if error is not None:
                self._events.put_back(counts)
            self._is_counting = False

        self._is_counting = True
        try:
            self._store.submit(verb, told, lingers=True)  # not kept: no stop waits for counts
        except StoreError as error:
            told(None, error)
            raise

    def _seconds(self) -> float:
        """The seconds to sleep: to the next retry, at most one poll."""
        if not self._duty.is_on:  # a retry that is due is left to others
            return min(POLL_SECONDS, max(0.001, self._duty.left))
        with self._store.reader() as db:
            ours = {"foreign": self._store.foreign(db)}
            due = [db.execute(statement, ours).fetchone()[0] for statement in (lanes.NEXT_RETRY, NEXT_LOOSE_RETRY)]
        left = min(map(self._until, due))
        if left <= 0 and self._dispatcher.pool.free <= 0:  # the next thread that comes back takes it
            left = POLL_SECONDS
        return max(0.001, min(left, self._until(self._next_chore())))

    def _until(self, at: int | None) -> float:
        """Seconds, at most one poll."""
        return POLL_SECONDS if at is None else min(POLL_SECONDS, (at - self._store.clock()) / 1000)

    def _turn(self) -> bool:
        """Do a bounded part of the work. Answers whether there is more."""
        self._duty.look(self._bury_instances())
        for chore in self._chores:
            try:
                chore()
            except Exception as error:  # it keeps the turn from nothing else
                self._broke(error)
        self._dispatcher.take_up()
        if self._are_left:
            self._are_left = False
            self._store.wake()
        with self._store.reader() as db:
            look = {"now": self._store.clock(), "count": 1, "after": 0, "foreign": self._store.foreign(db)}
            is_over, has_tails, has_sends = (
                db.execute(statement, look).fetchone() is not None
                for statement in (lanes.DUE, lanes.DISCARDING, lanes.RUNNABLE_SENDS)
            )
            over = [key for (key,) in db.execute(OVER, {**look, "count": BATCH}).fetchall()]
            has_due = is_over and db.execute(lanes.DUE, {**look, "now": self._store.reached()}).fetchone() is not None
            if self._store.serving.sends:
                look["foreign"] = self._store.foreign(db, sends=False)
            runnable = (lanes.RUNNABLE, RUNNABLE_LOOSE, lanes.RUNNABLE_CALLS)
            has_runnable = any(db.execute(statement, look).fetchone() is not None for statement in runnable)
        self._tell_of_jumps(is_over=is_over)
        takes = has_runnable and self._duty.is_on and (self._dispatcher.pool.free > 0 or self._dispatcher.takes_later())
        claims = self._store.call(lambda tx: ownership.runnable(tx, BATCH, self._taken)) if takes else []
        for claim in claims:
            self._taken = claim.lane or self._taken
            self._dispatcher.give(claim)
        if has_sends and self._duty.is_on:
            for claim in self._store.call(lambda tx: ownership.runnable(tx, BATCH, self._sent, sends=True)):
                self._sent = claim.lane
                self._dispatcher.give(claim)
        for claim in self._store.call(lambda tx: _end(tx, over)) if over else ():
            self._dispatcher.give(claim)
        ended = self._store.call(lambda tx: ending.expire_due(tx, BATCH)) if has_due else 0
        more_tails = has_tails and self._store.call(lambda tx: ending.bury_tails(tx, BURIED))
        return len(claims) == BATCH or ended > 0 or more_tails

    def _tell_of_jumps(self, *, is_over: bool) -> None:
        """Tell of jumps of the clock. ``is_over``: the time of a sequence is over by the clock. At a start only that
        makes a jump worth telling, since a time in which nothing ran looks the same."""
        jumps = self._store.believed.jumps
        while jumps:
            jump = jumps.popleft()
            if is_over or self._has_turned or jump < 0:
                self._events.tell("clock.jumped", seconds=round(jump / 1000))
        self._has_turned = True

    def _bury_instances(self) -> bool:
        """Free the lanes of dead instances. Answers whether one lives that is younger than this."""
        with self._store.reader() as db:
            live = db.execute(queues.LIVE_INSTANCES).fetchall()
            ended = list(dict.fromkeys(db.execute(queues.ENDED_OWNERS)))
        dead = [one for one in live if self._neighbours.is_dead(one[1])]
        dead += [one for one in ended if not self._store.instances.lives(one[1])]
        for key, name in dead:
            if key == self._store.instance:
                continue
            freed = self._store.call(lambda tx, key=key: broken_run.take_over(tx, key, self._policy_of))  # type: ignore[misc]
            self._store.instances.bury(name)
            self._store.refusals.take_up_left(self._store.path)
            self._events.tell("instance.gone", name=name, sequences=freed)
        return any(key > self._store.instance and (key, name) not in dead for key, name in live)
