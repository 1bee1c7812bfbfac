"""Both loops. The first hands an in-order message to the application the moment it is committed; the second replays
what was held the moment its gap closes, a retry is due, or a process has started. They are one loop: a claim comes in,
its sequence's deliverable messages are run in order, each is settled, the claim is given back.

A small pool of threads takes a sequence at a time: at most 64 messages or 50 ms if others wait, then the next. An
operation that blocks delays no connection and no other sequence (see ``pool``).

Every claim of this process is in some hand: a request's (``hands``), a pool's, or with a settlement that is to be
written (``recording``). It is in the next hand before it leaves the last. Whatever is raised on the way may drop it all
the same, so the hands are compared with the store in each look of the watch: what no hand has is taken up again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from wsrm_mq import tracing
from wsrm_mq.delivery.deliverable import RUN_LENGTH, deliverable
from wsrm_mq.delivery.delivery import Call, Delivery, Outcome
from wsrm_mq.delivery.errand import Errand, Ran, ThreadErrand
from wsrm_mq.delivery.fresh import Fresh
from wsrm_mq.delivery.hands import RequestClaims
from wsrm_mq.delivery.pipeline import Pipeline
from wsrm_mq.delivery.pool import Pool
from wsrm_mq.delivery.recording import UNSTORABLE, Recording, Unrecorded, settling, size_of, why_not_stored
from wsrm_mq.delivery.waiting import Signal, Waiters
from wsrm_mq.engine.duty import Duty
from wsrm_mq.errors import FenceLost, StoreError
from wsrm_mq.events.telling import Events
from wsrm_mq.queue.acknowledgement import acknowledged
from wsrm_mq.queue.counts import failed, took
from wsrm_mq.queue.ownership import Claim, give_back, let_go_dropped
from wsrm_mq.queue.policy import PolicyOf
from wsrm_mq.queue.settle import Failed, Settled, add_reply, remarked
from wsrm_mq.queue.settlement import Settlement
from wsrm_mq.sequence.elements import SequenceAcknowledgement
from wsrm_mq.store import statements as sql
from wsrm_mq.store.records import SequenceRecord
from wsrm_mq.store.store import Store
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.store.writer import Verb

__all__ = ["Dispatcher"]

RUN_SECONDS: Final = 0.050
KEPT_RUNS: Final = 1_000
KEPT_BYTES: Final = 16 * 1024
"""Runs that wait for a thread keep their first message in memory: so many, and so large a one."""


class _Run(NamedTuple):
    claim: Claim
    first: Delivery | None
    """The message that it begins with, if that is in memory."""


class _Given(NamedTuple):
    claim: Claim
    delivery: Delivery
    errand: Errand


class Dispatcher:
    """Runs sequences. ``policy_of`` answers a partner's policy."""

    def __init__(
        self,
        store: Store,
        call: Call,
        policy_of: PolicyOf,
        waiters: Waiters,
        *,
        threads: int = 8,
        max_threads: int = 64,
        request_threads: int = 64,
        events: Events,
        on_retry: Callable[[int], None] = lambda _at: None,
        duty: Duty | None = None,
    ) -> None:
        self._store = store
        self._call = call
        self._policy_of = policy_of
        self._events = events
        self._duty = duty or Duty(is_asked=True)
        self.pool: Pool[_Run] = Pool(self._work, threads=threads, max_threads=max_threads, events=events)
        self._errands: Pool[_Given] = Pool(
            self._do, threads=threads, max_threads=request_threads, events=events, of="requests"
        )
        """Apart: requests that block leave the sequences their threads."""
        self._requests = RequestClaims()
        self._fresh = Fresh()
        self._recording = Recording(store, policy_of, waiters, self._fresh, events, self.give, on_retry)
        self._dropped: set[Claim] = set()
        """What no hand had at the last look."""

    def stop(self, timeout: float | None = None) -> bool:
        """Let every thread finish its message, settle it and give its sequence back. Answers whether all did so
        within ``timeout`` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._requests.lock:  # a request that runs one here has begun, or will not
            self.pool.stop()
            self._errands.stop()
        have_ended = self._errands.join(deadline)
        have_ended = self.pool.join(deadline) and have_ended
        return self._requests.wait_for_none(deadline) and have_ended

    def give(self, claim: Claim, first: Delivery | None = None) -> None:
        """Hand a claim to the pool, perhaps with the message that it begins with. Never blocks."""
        if first is not None and (first.body.size > KEPT_BYTES or self.pool.waiting >= KEPT_RUNS):
            first = None  # it is in the store
        self.pool.give(_Run(claim, first))

    def offer(self, sequence: int, delivery: Delivery) -> None:
        """Keep a message whose sequence is being run here, so that the run need not read it. Only a hint: what is not
        found here is in the store."""
        self._fresh.keep(sequence, delivery)

    # hands

    def take_up(self) -> None:
        """For each look of the watch: what no hand has is given back, to be run again; what waits for a thread gets
        one, if there is one by now."""
        for claim in self._requests.overdue():
            self.give(claim)
        self.pool.look_after()
        self._errands.look_after()
        with self._store.reader() as db:
            owned = {Claim(*row) for row in db.execute(sql.CLAIMS_OF, {"owner": self._store.instance})}
        dropped = owned - self._in_hand() if owned else owned
        again, self._dropped = dropped & self._dropped, dropped
        if not again:
            return
        # Asked where the commits are made, no claim is on its way from a commit to the first hand.
        for claim in self._store.call(lambda tx: let_go_dropped(tx, again - self._in_hand(), self._policy_of)):
            self._fresh.forget(claim.sequence)
            self._events.tell("dispatch.dropped", key=claim.sequence)

    def _in_hand(self) -> set[Claim]:
        """In the order in which a claim goes: one that changes hands meanwhile is seen in the second, if not in the
        first. What the recording has goes on only where commits are made."""
        requests = self._requests.all()
        errands = {given.claim for given in self._errands.in_hand()}
        runs = {run.claim for run in self.pool.in_hand()}
        return requests | errands | runs | self._recording.claims

    # what requests wait for

    def expect(self, claim: Claim, _delivery: Delivery) -> None:
        """A request is about to ``run_here``. If it does not, its message is run without it. To be called where its
        commit is told."""
        self._requests.expect(claim)

    def run_for(self, claim: Claim, delivery: Delivery, errand: Errand) -> None:
        """``run_here`` for a request that has no thread: one of a pool's runs the message and tells ``errand`` how it
        goes. Never blocks. To be called where its commit is told."""
        with self._requests.lock:
            if not self._errands.is_stopping:
                return self._errands.give(_Given(claim, delivery, errand))
        return errand.end(None)

    def run_here(self, claim: Claim, delivery: Delivery, patience: float) -> Ran:
        """Run one message in this thread, and wait for what became of it to be stored, at most ``patience`` seconds:
        that goes on without this thread, whose request must be answered (I16). What else the sequence has goes to the
        pool. The application's own time uses up nothing of ``patience``. After ``stop`` it runs nothing: what came of
        it could not be stored, and the next start delivers it. Nor where the watch was first."""
        with self._requests.lock:
            hold = None if self.pool.is_stopping else self._requests.take(claim)
        if hold is None:
            return Ran(None, patience)
        under_way: _UnderWay | ThreadErrand | None = None
        try:
            under_way = self._run_here(claim, delivery)
        except FenceLost as lost:
            self._recording.tell("delivery.fence_lost", delivery, lost)
        except BaseException as error:
            self._recording.let_go(claim, error)
            if not isinstance(error, Exception):  # it is meant for the thread, which is the server's
                raise
        finally:
            self._requests.leave(claim)
        return Ran(None, patience) if under_way is None else under_way.wait(patience)

    def _run_here(self, claim: Claim, delivery: Delivery) -> _UnderWay | ThreadErrand:
        if delivery.at_most_once:  # it is the store's turn before and after: that is left to a thread of the pool
            errand = ThreadErrand(self._store)
            self.run_for(claim, delivery, errand)
            return errand
        outcome = self._called(delivery)
        under_way = _UnderWay()
        verb, finish = self._of_request(claim, delivery, outcome)

        def told(done: Any, error: BaseException | None) -> None:
            self._recording.claims.discard(claim)
            try:
                under_way.settlement = finish(done, error)
            finally:
                under_way.is_stored.set()

        self._recording.claims.add(claim)
        self._store.submit(verb, told, keep=True, size=size_of(outcome))
        return under_way

    def _do(self, given: _Given) -> None:
        will_be_told = False
        try:
            will_be_told = self._did(*given)
        except FenceLost as lost:
            self._recording.tell("delivery.fence_lost", given.delivery, lost)
        except BaseException as error:
            self._recording.let_go(given.claim, error)
        finally:
            if not will_be_told:
                given.errand.end(None)

    def _did(self, claim: Claim, delivery: Delivery, errand: Errand) -> bool:
        """Run one message for a request that waits elsewhere. Answers whether the request will be told."""
        if self._errands.is_stopping:
            return False
        if delivery.at_most_once:
            self._settle_then_call(claim, delivery, errand)
            errand.end(None)  # before this thread waits for the store
            self._give_back(claim)
            return False
        errand.calling()
        outcome = self._called(delivery)
        errand.storing()
        verb, finish = self._of_request(claim, delivery, outcome)

        def told(done: Any, error: BaseException | None) -> None:
            self._recording.claims.discard(claim)
            settlement = None
            try:
                settlement = finish(done, error)
            finally:
                errand.end(settlement)

        self._recording.claims.add(claim)
        errand.submit(verb, told, size=size_of(outcome))
        return True

    def _of_request(
        self, claim: Claim, delivery: Delivery, outcome: Outcome
    ) -> tuple[Verb[Any], Callable[[Any, BaseException | None], Settlement | None]]:
        """What to store of an outcome that a request waits for, and what to do, and answer, once it is."""
        policy = self._policy_of(delivery.partner)

        def acknowledge(tx: Transaction, record: SequenceRecord) -> SequenceAcknowledgement:
            return acknowledged(record, policy, lambda: tx.used_bytes)

        def settled(done: Settled | None, error: BaseException | None) -> Settlement | None:
            tracing.settle(outcome, error)
            if done is None:
                self._recording.recover(claim, Unrecorded(delivery, outcome, error), ran_ahead=False)
                return None
            self._recording.settled(claim, delivery, done, last=True)
            if done.acknowledgement is None:
                return None
            return Settlement("delivered", outcome.reply, done.acknowledgement)

        def failed(done: Failed | None, error: BaseException | None) -> None:
            if done is None:
                tracing.settle(outcome, error)
                self._recording.recover(claim, Unrecorded(delivery, outcome, error), ran_ahead=False)
            else:
                self._recording.failed(claim, delivery, outcome, done)

        if outcome.error is None:
            return settling(claim, delivery, outcome, release=True, acknowledge=acknowledge), settled
        return self._recording.failing(claim, delivery, outcome), failed

    # what the pool does

    def _work(self, run: _Run) -> None:
        try:
            self._run(run)
        except FenceLost as error:
            self._events.tell("delivery.fence_lost", error=error)
            self._fresh.forget(run.claim.sequence)
        except BaseException as error:
            self._recording.let_go(run.claim, error)

    @property
    def _gives_back(self) -> bool:
        """Whether a sequence is given back although it could go on: here it ends, or is left to others."""
        return self.pool.is_stopping or not self._duty.is_on

    def _run(self, run: _Run) -> None:
        """Run a sequence until nothing is deliverable, its turn is over, or a message fails."""
        claim, first = run
        alone = first is not None and not (first.at_most_once or self._fresh.has(claim.sequence, first.number + 1))
        if alone and first is not None and not self._gives_back:
            self._one(claim, first, None, last=True)  # one message, and a commit that gives the sequence back
            return
        pipeline = Pipeline()
        begun = time.monotonic()
        for count, (delivery, last) in enumerate(self._messages(claim, first), 1):
            if self._gives_back or pipeline.broken:
                break
            if delivery.at_most_once:
                pipeline.drain()
                self._settle_then_call(claim, delivery)
            elif self._one(claim, delivery, pipeline, last=last):
                return
            if self.pool.waiting and (count >= RUN_LENGTH or time.monotonic() - begun > RUN_SECONDS):
                break
        pipeline.drain()
        if pipeline.broken:
            self._recording.recover(claim, pipeline.broken, ran_ahead=True)
        else:
            self._give_back(claim)

    def _give_back(self, claim: Claim) -> None:
        stopping = self._gives_back
        if not self._store.call(lambda tx: give_back(tx, claim, stopping=stopping), keep=True):
            self.give(claim)

    def _messages(self, claim: Claim, first: Delivery | None) -> Iterator[tuple[Delivery, bool]]:
        """What to run: each message, and whether it is the last one known. Those in memory since their commit are not
        read again (the first loop); without the first one, the store is read (the second loop)."""
        if first is not None:
            following: Delivery | None = first
            while following is not None:
                delivery = following
                following = self._fresh.pop(claim.sequence, delivery.number + 1)
                yield delivery, following is None
            return
        after = 0
        while deliveries := deliverable(self._store, claim, after):
            for index, delivery in enumerate(deliveries):
                yield delivery, index == len(deliveries) - 1 and len(deliveries) < RUN_LENGTH
            after = deliveries[-1].number + 1

    def _one(self, claim: Claim, delivery: Delivery, pipeline: Pipeline | None, *, last: bool) -> bool:
        """Deliver one message and submit its settlement. Answers whether the claim has left this run: after a
        failure, and with the ``last`` known message, whose settling commit gives it back or on to the pool. No
        settlement is under way where there is no ``pipeline``."""
        outcome = self._called(delivery)
        if outcome.error is not None:
            if pipeline is not None:
                pipeline.drain()
            if pipeline is None or pipeline.broken is None:
                self._recording.fail(claim, delivery, outcome)
            else:
                self._recording.recover(claim, pipeline.broken, ran_ahead=True)
            return True
        if pipeline is not None:
            pipeline.enter()
        recording = self._recording

        def told(done: Settled | None, error: BaseException | None) -> None:
            if last:
                recording.claims.discard(claim)
            tracing.settle(outcome, error)
            broken = Unrecorded(delivery, outcome, error) if done is None else None
            if pipeline is not None:
                pipeline.leave(broken)
                broken = pipeline.broken
            if done is not None:
                recording.settled(claim, delivery, done, last=last and broken is None)
            if last and broken is not None:
                recording.recover(claim, broken, ran_ahead=pipeline is not None)

        verb = settling(claim, delivery, outcome, release=last)
        if last:
            recording.claims.add(claim)
        self._store.submit(
            verb if pipeline is None else pipeline.guarded(verb),
            told,
            keep=True,
            size=size_of(outcome),
            lingers=not delivery.is_waited_for,
        )
        return last

    def _settle_then_call(self, claim: Claim, delivery: Delivery, errand: Errand | None = None) -> None:
        """At most once: a crash from here on loses the message, nothing repeats it."""
        done = self._store.call(settling(claim, delivery, Outcome(), release=False), keep=True)
        if errand is not None:
            errand.calling()
        outcome = self._called(delivery)
        if errand is not None:
            errand.storing()
        self._fresh.pop(claim.sequence, delivery.number)  # it may have been kept after it was read
        self._note(claim, delivery, outcome)
        tracing.settle(outcome, None)
        self._recording.is_settled(delivery, done)

    def _note(self, claim: Claim, delivery: Delivery, outcome: Outcome) -> None:
        """Write down what came of a message that is settled; what of it cannot be stored, in words."""

        def again(error: BaseException) -> None:
            why = why_not_stored(Unrecorded(delivery, outcome, error))
            plain = Outcome(error=why, fault=UNSTORABLE, seconds=outcome.seconds)
            self._store.submit(_noting(claim, delivery, plain), lambda _result, _error: None, keep=True)
            self._recording.tell("delivery.lost", delivery, why)

        def told(_result: None, error: BaseException | None) -> None:
            if error is not None and not isinstance(error, StoreError):
                again(error)

        note = _noting(claim, delivery, outcome)
        if outcome.reply is None and outcome.error is None:
            return self._store.submit(note, told, lingers=True)
        try:
            self._store.call(note, keep=True, size=size_of(outcome))
        except StoreError:
            raise
        except Exception as error:
            return again(error)
        if outcome.error is not None:
            self._recording.tell("delivery.lost", delivery, outcome.error)

    def _called(self, delivery: Delivery) -> Outcome:
        begun = time.perf_counter()
        outcome = self._call(delivery)
        outcome.seconds = time.perf_counter() - begun
        return outcome


class _UnderWay:
    """What a request waits for that has run its message."""

    def __init__(self) -> None:
        self.settlement: Settlement | None = None
        self.is_stored = Signal()
        self._begun = time.monotonic()

    def wait(self, patience: float) -> Ran:
        self.is_stored.wait(patience)
        return Ran(self.settlement, max(0.0, self._begun + patience - time.monotonic()))


def _noting(claim: Claim, delivery: Delivery, outcome: Outcome) -> Verb[None]:
    number, position = delivery.number, delivery.position

    def note(tx: Transaction) -> None:
        record = tx.sequence(claim.sequence)
        queue = record.queue if record is not None else 0
        took(tx, queue, outcome.seconds or 0.0)
        if outcome.reply is not None:
            add_reply(tx, position, outcome.reply)
        if outcome.remark is not None:
            remarked(tx, record, position, number, outcome.remark)
        if outcome.error is not None:
            tx.ledger("failed", record, number=number, position=position, reason=outcome.error, is_told=False)
            failed(tx, queue, outcome.fault)

    return note
