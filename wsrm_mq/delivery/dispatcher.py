"""The two loops. The first hands an in-order message to the application the moment it is committed; the second replays
held messages the moment their gap closes, a retry is due, or a process has started. They are one loop: a claim comes
in, its sequence's deliverable messages are run in order, each is settled, the claim is given back.

A small pool of threads takes a sequence at a time: at most 64 messages or 50 ms if others wait, then the next. An
operation that blocks delays no connection and no other sequence (see ``pool``).

Every claim of this process is in some hand: a pool's, or with a settlement that is to be written (``recording``). It is
in the next hand before it leaves the last. An error on the way may drop it all the same, so the hands are compared with
the store in each look of the watch: a claim that no hand has is taken up again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from wsrm_mq import tracing
from wsrm_mq.delivery.completion import Completion, Waiters
from wsrm_mq.delivery.delivery import RUN_LENGTH, Call, Delivery, Outcome, Prefetch, deliverable
from wsrm_mq.delivery.pool import Pool
from wsrm_mq.delivery.recording import Pipeline, Recording
from wsrm_mq.errors import StoreError
from wsrm_mq.events.telling import Events
from wsrm_mq.queue.broken_run import let_go_dropped
from wsrm_mq.queue.ownership import Claim, runnable
from wsrm_mq.queue.policy import PolicyOf
from wsrm_mq.store import lanes
from wsrm_mq.store.cache import MaySend, may_send
from wsrm_mq.store.loose import LOOSE_CLAIMS_OF
from wsrm_mq.store.store import Store

THREADS: Final = 8
"""Threads that a pool keeps."""
RUN_SECONDS: Final = 0.050
LOOK_SECONDS: Final = 0.050
"""The time between two looks of a run whether an operator has stopped its sequence."""


# The duty of a process to deliver messages of other processes: one that only forks workers has none.
#
# A server that preloads the application does so in a process that will never be asked a request. Were it to deliver,
# it would fork in the middle of a call. Python does not say which process that is, so each goes by what it has seen:
# one that was asked delivers; one that was not begins after a short grace, in which a server has forked its workers;
# and one that has forked stands by, as long as an instance lives that is younger, as its workers are. The youngest
# live instance has no younger one, so two that stand by do not wait for each other.

GRACE_SECONDS: Final = 1.0


class Duty:
    """The duty of one process, from its start on. ``is_asked``: a request has come, or the server says that it
    serves."""

    def __init__(self, *, is_asked: bool = False) -> None:
        self.is_asked = is_asked
        self.is_on = is_asked
        self._has_forked = False
        self._begins_at: float | None = time.monotonic() + GRACE_SECONDS
        """``None``: not before a look has put it off."""

    @property
    def left(self) -> float:
        """Seconds until the next look may find it on."""
        return GRACE_SECONDS if self._begins_at is None else max(0.0, self._begins_at - time.monotonic())

    def ask(self) -> None:
        """Note that this process serves: it delivers from now on, even where a younger one lives."""
        self.is_asked = self.is_on = True

    def look(self, younger_lives: bool) -> None:
        """Begin when the time has come; leave it to a younger instance. To be called time and again."""
        if self._begins_at is None or (self._has_forked and younger_lives):
            self.is_on = self.is_asked
            self._begins_at = time.monotonic() + GRACE_SECONDS
        elif not self.left:
            self.is_on = True

    def fork(self) -> None:
        """Stand by, where this process was not asked. Not to be called during a ``look``. The fork may have to wait, so
        the grace runs from the first look after it."""
        self._has_forked = True
        self.is_on = self.is_asked
        self._begins_at = None


class _Run(NamedTuple):
    claim: Claim
    first: Delivery | None
    """The message that it begins with, if that is in memory."""
    completion: Completion | None = None
    """The request that waits for this message; then the run has no other."""


class Dispatcher:
    """Runs sequences. ``policy_of`` answers a partner's policy."""

    def __init__(
        self,
        store: Store,
        call: Call,
        policy_of: PolicyOf,
        waiters: Waiters,
        duty: Duty,
        *,
        max_threads: int = 64,
        request_threads: int = 64,
        send_threads: int = 1,
        events: Events,
        left_alone: MaySend = may_send,
        on_retry: Callable[[int], None] = lambda _at: None,
        on_left: Callable[[], None] = lambda: None,
    ) -> None:
        """``on_left`` is called when deliverable messages were left in the store, for want of a thread. ``left_alone``
        answers why nothing is sent to an address now."""
        self._store = store
        self._call = call
        self._policy_of = policy_of
        self._events = events
        self._duty = duty
        self.pool: Pool[_Run] = Pool(self._work, threads=THREADS, max_threads=max_threads, events=events)
        self.request_pool: Pool[_Run] = Pool(
            self._work, threads=THREADS, max_threads=request_threads, events=events, of="requests"
        )
        """A pool of its own: requests that block leave the sequences their threads."""
        self.send_pool: Pool[_Run] = Pool(
            self._work, threads=THREADS, max_threads=send_threads, events=events, of="messages to send"
        )
        """A pool of its own: endpoints that hang leave the application its threads (SEC-018)."""
        self._prefetch = Prefetch()
        self._recording = Recording(
            store, policy_of, waiters, self._prefetch, events, self._go_on, self._fetch_left, on_retry
        )
        self._on_left = on_left
        self._are_left = False
        """Sequences stand free in the store for which there was no thread."""
        self._is_fetching = False
        self._fetched = 0
        """The sequence that was fetched last."""
        store.writer.bound(self.has_slot, left_alone)
        self._dropped: set[Claim] = set()
        """The claims that no hand had at the last look."""

    def stop(self, timeout: float | None = None) -> bool:
        """Let every thread finish its message, settle it and give its sequence back. Answers whether all did so
        within ``timeout`` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        self.pool.stop()
        self.request_pool.stop()
        self.send_pool.stop()
        have_ended = [pool.join(deadline) for pool in (self.request_pool, self.send_pool, self.pool)]
        return all(have_ended)

    def give(self, claim: Claim, first: Delivery | None = None) -> None:
        """Hand a claim to the pool, perhaps with the message that it begins with. Never blocks. After ``stop`` the end
        of the instance gives it back."""
        (self.send_pool if claim.is_outgoing else self.pool).give(_Run(claim, first))

    def run_for(self, claim: Claim, delivery: Delivery, completion: Completion) -> None:
        """Run one message for a request, and tell it of each step; the rest of the sequence goes to the pool. Never
        blocks. To be called where the commit of the message is told."""
        if not self.request_pool.give(_Run(claim, delivery, completion)):
            completion.complete(None)

    def offer(self, sequence: int, delivery: Delivery) -> None:
        """Keep a message whose sequence is being run here, so that the run need not read it. The messages that are not
        kept are read from the store."""
        self._prefetch.keep(sequence, delivery)

    # slots

    def has_slot(self, taken: int) -> bool:
        """Whether there is a thread for one sequence more, where the transaction that asks has taken so many. If not,
        it stays free in the store: for the next thread here, or for another process."""
        if taken < self.pool.free or self.takes_later(taken):
            return True
        self._on_left()
        return False

    def takes_later(self, taken: int = 0) -> bool:
        """Leave deliverable lanes to the next thread that comes back. Answers whether one has come back by now."""
        self._are_left = True  # before the look: a thread that comes back looks at this after it is free
        return taken < self.pool.free

    def _go_on(self, claim: Claim, first: Delivery | None = None) -> None:
        """The turn of a sequence is over, and it has more: the next one is behind the others, wherever they wait."""
        if claim.is_outgoing:
            self.give(claim, first)
        elif self._are_left or self.pool.free <= 0:
            self._are_left = True
            self._recording.give_back(claim)
        else:
            self.give(claim, first)

    def _fetch_left(self) -> None:
        """A claim has left this process: take lanes that were left in the store, as far as there are threads. Where a
        fetch fails, the watch makes up for it."""
        if not self._are_left or self._is_fetching or self._gives_back or (free := self.pool.free) <= 0:
            return

        def on_commit(claims: list[Claim] | None, error: BaseException | None) -> None:
            self._is_fetching = False
            if claims is None:
                self._are_left = True
                return
            for claim in claims:
                self._fetched = claim.lane or self._fetched
                self.give(claim)
            self._are_left = self._are_left or len(claims) == free
            self._fetch_left()  # for threads that came back meanwhile

        self._is_fetching, self._are_left = True, False
        try:
            self._store.submit(lambda tx: runnable(tx, free, self._fetched), on_commit)
        except BaseException:
            self._is_fetching = False
            raise

    # hands

    def take_up(self) -> None:
        """Give back each claim that no hand has, to be run again, and give threads to the items that wait. To be called
        in each look of the watch."""
        self.pool.look_after()
        self.request_pool.look_after()
        self.send_pool.look_after()
        with self._store.reader() as db:
            owner = {"owner": self._store.instance}
            owned = {Claim(*row) for row in db.execute(lanes.CLAIMS_OF, owner)}
            owned |= {Claim(0, fence, entry=at) for at, fence in db.execute(LOOSE_CLAIMS_OF, owner)}
        dropped = owned - self._in_hand() if owned else owned
        again, self._dropped = dropped & self._dropped, dropped
        if not again:
            return
        # Asked where the commits are made, no claim is on its way from a commit to the first hand.
        for claim in self._store.call(lambda tx: let_go_dropped(tx, again - self._in_hand(), self._policy_of)):
            self._prefetch.drop(claim.lane)
            self._events.tell("dispatch.dropped", key=claim.lane or claim.entry)

    def _in_hand(self) -> set[Claim]:
        """The claims in all hands, in the order in which a claim goes: one that changes hands meanwhile is seen in the
        second, if not in the first. The recording passes its claims on only where commits are made."""
        runs = [*self.request_pool.in_hand(), *self.pool.in_hand(), *self.send_pool.in_hand()]
        return {run.claim for run in runs} | self._recording.claims

    # what the threads do

    def _work(self, run: _Run) -> None:
        try:
            self._run(run)
        except BaseException as error:
            try:
                self._recording.let_go(run.claim, error)
            finally:
                if run.completion is not None:
                    run.completion.complete(None)
        if self._are_left:  # its last commit may be told already, when this thread was not free yet
            self.pool.done()
            with suppress(StoreError):
                self._fetch_left()

    def _run(self, run: _Run) -> None:
        """Run a sequence until nothing is deliverable, its turn is over, or a message fails."""
        claim, completion = run.claim, run.completion
        pipeline: Pipeline | None = None
        begun = looked = time.monotonic()
        for count, (delivery, last) in enumerate(self._messages(run), 1):
            if self._gives_back or (pipeline is not None and (pipeline.broken or pipeline.is_over)):
                break
            if count > 1 and time.monotonic() - looked > LOOK_SECONDS:
                looked = time.monotonic()
                if not self._goes_on(claim, delivery.number):
                    break
            if delivery.at_most_once:
                if not self._settle_then_call(claim, delivery, completion):
                    break
            else:
                if pipeline is None and not last:
                    is_sent = delivery.channel is not None
                    pipeline = Pipeline(self._store.writer.lead) if is_sent else Pipeline()
                if self._call_then_settle(claim, delivery, last, pipeline, completion):
                    return
            is_over = count >= RUN_LENGTH or time.monotonic() - begun > RUN_SECONDS
            if is_over and (self.pool.waiting or self._are_left):
                break
        if pipeline is not None:
            pipeline.drain()
        if completion is not None:
            completion.complete(None)  # before this thread waits for the store
        if pipeline is not None and pipeline.broken:
            self._recording.recover(claim, pipeline.broken, ran_ahead=True)
        elif not self._recording.give_back_now(claim, stopping=self._gives_back):
            self._go_on(claim)

    @property
    def _gives_back(self) -> bool:
        """Whether a lane is given back although it could go on: this process ends, or is not on duty."""
        return self.pool.is_stopping or not self._duty.is_on

    def _goes_on(self, claim: Claim, number: int) -> bool:
        """Whether it is still to be delivered: an operator may have held or terminated its sequence. The settlement
        before it would say so too, and is not waited for."""
        with self._store.reader() as db:
            on_hold_since, discard_from = db.execute(lanes.STOPS, {"key": claim.lane}).fetchone()
        return on_hold_since is None and (discard_from is None or number < discard_from)

    def _messages(self, run: _Run) -> Iterator[tuple[Delivery, bool]]:
        """Yields each message to run, and whether it is the last one known. Messages in memory since their commit are
        not read again (the first loop); without the first one, the store is read (the second loop)."""
        claim, delivery, completion = run
        if completion is not None and delivery is not None:
            yield delivery, True
            return
        if delivery is not None:
            while delivery is not None:
                following = self._prefetch.take(claim.lane, delivery.number + 1)
                yield delivery, following is None
                delivery = following
            return
        after = 0
        while deliveries := deliverable(self._store, claim, after):
            for index, delivery in enumerate(deliveries):
                yield delivery, index == len(deliveries) - 1 and len(deliveries) < RUN_LENGTH
            after = deliveries[-1].number + 1

    def _call_then_settle(
        self,
        claim: Claim,
        delivery: Delivery,
        last: bool,
        pipeline: Pipeline | None,
        completion: Completion | None,
    ) -> bool:
        """Answers whether the claim has left this run: with the ``last`` known message, whose settling commit gives it
        back or on to the pool, and with one that failed."""
        outcome = self._called(delivery, completion)
        if pipeline is None:
            self._recording.record(claim, delivery, outcome, last=last, completion=completion)
        elif outcome.error is None:
            pipeline.enter()
            if outcome.heard is not None:
                outcome.heard.follow(pipeline.heard)
                pipeline.heard = outcome.heard
            self._recording.record(claim, delivery, outcome, last=last, pipeline=pipeline)
            if not last and outcome.heard is not None and not outcome.heard.is_plain:
                pipeline.drain()
            elif not last and delivery.channel is not None:
                pipeline.keep_up(outcome.seconds or 0.0)  # the next one takes as long
        else:
            pipeline.drain()
            if pipeline.broken is not None:
                self._recording.recover(claim, pipeline.broken, ran_ahead=True)
            else:
                self._recording.record(claim, delivery, outcome, last=last)
        return last or outcome.error is not None

    def _settle_then_call(self, claim: Claim, delivery: Delivery, completion: Completion | None) -> bool:
        """At most once: a crash from here on loses the message, nothing repeats it. Answers whether another one may
        follow."""
        done = self._recording.settle_first(claim, delivery)
        outcome = self._called(delivery, completion)
        self._recording.note(claim, delivery, outcome, done)
        return done.goes_on

    def _called(self, delivery: Delivery, completion: Completion | None) -> Outcome:
        if completion is not None:
            completion.calling()
        begun = time.perf_counter()
        spans = tracing.spans
        if spans is None or delivery.channel is not None:
            outcome = self._call(delivery)
        else:
            outcome = spans.process(self._call, delivery)
        outcome.seconds = time.perf_counter() - begun
        if completion is not None:
            completion.storing()
        return outcome
