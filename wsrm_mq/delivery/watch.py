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
from wsrm_mq.delivery.chores import Indexing
from wsrm_mq.delivery.completion import Waiters
from wsrm_mq.delivery.dispatcher import Dispatcher, Duty
from wsrm_mq.errors import StoreError
from wsrm_mq.events.telling import Events
from wsrm_mq.queue import broken_run, ending, ownership
from wsrm_mq.queue.policy import PolicyOf
from wsrm_mq.store import lanes, queues
from wsrm_mq.store.lasting import Lasting, Repeated
from wsrm_mq.store.loose import NEXT_LOOSE_RETRY, RUNNABLE_LOOSE
from wsrm_mq.store.port import Neighbours
from wsrm_mq.store.store import Store
from wsrm_mq.store.transaction import Transaction

POLL_SECONDS: Final = 1.0
BATCH: Final = 200
"""Sequences taken or ended in one turn, each in one transaction."""

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
