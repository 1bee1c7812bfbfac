"""Both loops. The first hands an in-order message to the application the moment it is committed; the second replays
what was held the moment its gap closes, a retry is due, or a process has started. They are one loop: a claim comes in,
its sequence's deliverable messages are run in order, each is settled, the claim is given back.

A small pool of threads takes a sequence at a time: at most 64 messages or 50 ms if others wait, then the next. An
operation that blocks delays no connection and no other sequence (see ``pool``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from wsrm_mq import tracing
from wsrm_mq.errors import FenceLost, StoreError
from wsrm_mq.events.telling import Events
from wsrm_mq.queue.answers import Settlement, acknowledged
from wsrm_mq.queue.counts import failed, took
from wsrm_mq.queue.ownership import Claim, give_back, let_go
from wsrm_mq.queue.poison import Aftermath
from wsrm_mq.queue.policy import PolicyOf
from wsrm_mq.queue.settle import Failed, Settled, add_reply, fail, remarked, settle
from wsrm_mq.replay.deliverable import RUN_LENGTH, deliverable
from wsrm_mq.replay.delivery import Call, Delivery, Outcome
from wsrm_mq.replay.duty import Duty
from wsrm_mq.replay.errand import Errand
from wsrm_mq.replay.fresh import Fresh
from wsrm_mq.replay.pipeline import Pipeline
from wsrm_mq.replay.pool import Pace, Pool
from wsrm_mq.replay.waiting import Waiters
from wsrm_mq.sequence.elements import SequenceAcknowledgement
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


class Ran(NamedTuple):
    settlement: Settlement | None
    """What the request is answered with; ``None``: that has to be looked for in the store."""
    left: float
    """Of its patience, seconds."""


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
        self._waiters = waiters
        self._events = events
        self._on_retry = on_retry
        self._duty = duty or Duty(is_asked=True)
        self.pool: Pool[_Run] = Pool(self._work, threads=threads, max_threads=max_threads, events=events)
        self._errands: Pool[_Given] = Pool(
            self._do, threads=threads, max_threads=request_threads, events=events, of="requests"
        )
        """Apart: requests that block leave the sequences their threads, and one-way operations keep their own pace."""
        self._fresh = Fresh()
        self._here = 0
        """How many requests run a message in their own threads."""
        self._changed = threading.Condition()

    def stop(self, timeout: float | None = None) -> bool:
        """Let every thread finish its message, settle it and give its sequence back. Answers whether all did so
        within ``timeout`` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:  # whoever runs one here has begun, or will not
            self.pool.stop()
            self._errands.stop()
        have_ended = self._errands.join(deadline)
        have_ended = self.pool.join(deadline) and have_ended
        with self._changed:
            self._changed.wait_for(lambda: not self._here, None if deadline is None else deadline - time.monotonic())
            return not self._here and have_ended

    def give(self, claim: Claim, first: Delivery | None = None) -> None:
        """Hand a claim to the pool, perhaps with the message that it begins with. Never blocks."""
        if first is not None and (first.body.size > KEPT_BYTES or self.pool.waiting >= KEPT_RUNS):
            first = None  # it is in the store
        self.pool.give(_Run(claim, first))

    def offer(self, sequence: int, delivery: Delivery) -> None:
        """Keep a message whose sequence is being run here, so that the run need not read it. Only a hint: what is not
        found here is in the store."""
        self._fresh.keep(sequence, delivery)

    def run_for(self, claim: Claim, delivery: Delivery, errand: Errand) -> None:
        """``run_here`` for a request that has no thread: one of a pool's runs the message and tells ``errand`` how it
        goes. Never blocks."""
        with self._changed:
            if not self._errands.is_stopping:
                return self._errands.give(_Given(claim, delivery, errand))
        return errand.end(None)

    def run_here(self, claim: Claim, delivery: Delivery, patience: float) -> Ran:
        """Run one message in this thread, and wait for what became of it to be stored, at most ``patience`` seconds:
        that goes on without this thread, whose request must be answered (I16). What else the sequence has goes to the
        pool. The application's own time uses up nothing of ``patience``. After ``stop`` it runs nothing: what came of
        it could not be stored, and the next start delivers it."""
        with self._changed:
            if self.pool.is_stopping:
                return Ran(None, patience)
            self._here += 1
        try:
            return self._run_here(claim, delivery, patience)
        except FenceLost as lost:
            self._tell("delivery.fence_lost", delivery, lost)
        except Exception as error:
            self._let_go(claim, error)
        finally:
            with self._changed:
                self._here -= 1
                if self.pool.is_stopping:
                    self._changed.notify_all()
        return Ran(None, patience)

    def _run_here(self, claim: Claim, delivery: Delivery, patience: float) -> Ran:
        if delivery.at_most_once:
            self._settle_then_call(claim, delivery)
            self._give_back(claim)
            return Ran(None, patience)
        outcome = self._called(delivery, self.pool.pace)
        begun = time.monotonic()
        verb, finish = self._of_request(claim, delivery, outcome)
        stored = threading.Event()
        found: list[Settlement | None] = []

        def told(done: Any, error: BaseException | None) -> None:
            try:
                found.append(finish(done, error))
            finally:
                stored.set()

        self._store.submit(verb, told, keep=True, size=_size(outcome))
        stored.wait(patience)
        return Ran(found[0] if found else None, max(0.0, begun + patience - time.monotonic()))

    def _do(self, given: _Given) -> None:
        will_be_told = False
        try:
            will_be_told = self._did(*given)
        except FenceLost as lost:
            self._tell("delivery.fence_lost", given.delivery, lost)
        except Exception as error:
            self._let_go(given.claim, error)
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
        outcome = self._called(delivery, self._errands.pace)
        errand.storing()
        verb, finish = self._of_request(claim, delivery, outcome)

        def told(done: Any, error: BaseException | None) -> None:
            settlement = None
            try:
                settlement = finish(done, error)
            finally:
                errand.end(settlement)

        errand.submit(verb, told, size=_size(outcome))
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
            self._settlement_told(claim, delivery, done, error, last=True)
            if done is None or done.acknowledgement is None:
                return None
            return Settlement("delivered", outcome.reply, done.acknowledgement)

        def failed(done: Failed | None, error: BaseException | None) -> None:
            if done is None:
                tracing.settle(outcome, error)
                self._not_stored(claim, delivery, error)
            else:
                self._failed(claim, delivery, outcome, done)

        if outcome.error is None:
            return _settling(claim, delivery, outcome, release=True, acknowledge=acknowledge), settled
        return self._failing(claim, delivery, outcome), failed

    def _let_go(self, claim: Claim, error: BaseException) -> None:
        """A run broke off, for no fault of a message: the watch takes the sequence up again, here or elsewhere."""
        self._events.tell("dispatch.failed", key=claim.sequence, error=repr(error), trouble=error)
        self._fresh.forget(claim.sequence)
        try:
            self._store.submit(lambda tx: let_go(tx, claim), lambda _result, _error: None, keep=True)
        except StoreError as closed:  # the next start finds it
            self._events.tell("dispatch.not_given_back", key=claim.sequence, error=closed)

    # what the pool does

    def _work(self, run: _Run) -> None:
        try:
            self._run(run)
        except FenceLost as error:
            self._events.tell("delivery.fence_lost", error=error)
            self._fresh.forget(run.claim.sequence)
        except Exception as error:
            self._let_go(run.claim, error)

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
            if self._gives_back or pipeline.lost:
                break
            if delivery.at_most_once:
                pipeline.drain()
                self._settle_then_call(claim, delivery)
            elif self._one(claim, delivery, pipeline, last=last):
                return
            if self.pool.waiting and (count >= RUN_LENGTH or time.monotonic() - begun > RUN_SECONDS):
                break
        pipeline.drain()
        if pipeline.lost:
            return
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

    def _settlement_told(
        self, claim: Claim, delivery: Delivery, done: Settled | None, error: BaseException | None, *, last: bool
    ) -> None:
        if done is None:
            return self._not_stored(claim, delivery, error)
        self._settled(delivery, done)
        self._fresh.pop(claim.sequence, delivery.number)  # it may have been kept after it was read
        if last and done.released:
            self._fresh.forget(claim.sequence)
        elif last:
            self.give(claim, self._fresh.pop(claim.sequence, done.next_number))

    def _not_stored(self, claim: Claim, delivery: Delivery, error: BaseException | None) -> None:
        self._tell("delivery.not_settled", delivery, error)
        self._fresh.forget(claim.sequence)
        if error is not None and not isinstance(error, FenceLost):
            self._let_go(claim, error)

    def _one(self, claim: Claim, delivery: Delivery, pipeline: Pipeline | None, *, last: bool) -> bool:
        """Deliver one message and submit its settlement. Answers whether the claim has left this run: after a
        failure, and with the ``last`` known message, whose settling commit gives it back or on to the pool. No
        settlement is under way where there is no ``pipeline``."""
        outcome = self._called(delivery, self.pool.pace)
        if outcome.error is not None:
            if pipeline is not None:
                pipeline.drain()
            if pipeline is None or not pipeline.lost:
                self._fail(claim, delivery, outcome)
            return True
        if pipeline is not None:
            pipeline.enter()

        def told(done: Settled | None, error: BaseException | None) -> None:
            if pipeline is not None:
                pipeline.leave(error)
            tracing.settle(outcome, error)
            self._settlement_told(claim, delivery, done, error, last=last)

        self._store.submit(
            _settling(claim, delivery, outcome, release=last),
            told,
            keep=True,
            size=_size(outcome),
            lingers=not delivery.is_waited_for,
        )
        return last

    def _settle_then_call(self, claim: Claim, delivery: Delivery, errand: Errand | None = None) -> None:
        """At most once: a crash from here on loses the message, nothing repeats it."""
        pace = self.pool.pace if errand is None else self._errands.pace
        if errand is not None:
            errand.storing()
        done = self._store.call(_settling(claim, delivery, Outcome(), release=False), keep=True)
        if errand is not None:
            errand.calling()
        outcome = self._called(delivery, pace)
        if errand is not None:
            errand.storing()
        self._fresh.pop(claim.sequence, delivery.number)  # it may have been kept after it was read

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

        if outcome.reply is not None or outcome.error is not None:
            self._store.call(note, keep=True, size=_size(outcome))
        else:
            self._store.submit(note, lambda _result, _error: None, lingers=True)
        if outcome.error is not None:
            self._tell("delivery.lost", delivery, outcome.error)
        tracing.settle(outcome, None)
        self._settled(delivery, done)

    def _called(self, delivery: Delivery, pace: Pace) -> Outcome:
        begun = time.perf_counter()
        outcome = self._call(delivery)
        outcome.seconds = time.perf_counter() - begun
        pace.took(outcome.seconds)
        return outcome

    def _fail(self, claim: Claim, delivery: Delivery, outcome: Outcome) -> None:
        self._failed(claim, delivery, outcome, self._store.call(self._failing(claim, delivery, outcome), keep=True))

    def _failing(self, claim: Claim, delivery: Delivery, outcome: Outcome) -> Verb[Failed]:
        self._fresh.forget(claim.sequence)  # whoever goes on reads what follows
        policy, error = self._policy_of(delivery.partner), outcome.error or ""
        return lambda tx: fail(
            tx, claim, delivery.position, delivery.number, error, policy, outcome.fault, outcome.seconds
        )

    def _failed(self, claim: Claim, delivery: Delivery, outcome: Outcome, done: Failed) -> None:
        self._fresh.forget(claim.sequence)  # this one too: it may have been kept after it was read
        tracing.settle(outcome, None)
        if done.aftermath is not Aftermath.RETRY:
            self._waiters.notify(delivery.position)
        if done.retry_at is not None:
            self._on_retry(done.retry_at)
        if not done.released:
            self.give(claim)

    def _settled(self, delivery: Delivery, done: Settled) -> None:
        self._waiters.notify(delivery.position)
        if done.waiter is not None and self._store.presence is not None and done.waiter != self._store.presence.name:
            self._store.wake(done.waiter, word=str(delivery.position))

    def _tell(self, name: str, delivery: Delivery, error: object) -> None:
        self._events.tell(name, sequence=delivery.identifier, number=delivery.number, error=error)


def _settling(
    claim: Claim,
    delivery: Delivery,
    outcome: Outcome,
    *,
    release: bool,
    acknowledge: Callable[[Transaction, SequenceRecord], SequenceAcknowledgement] | None = None,
) -> Verb[Settled]:
    return lambda tx: settle(
        tx,
        claim,
        delivery.position,
        delivery.number,
        reply=outcome.reply,
        remark=outcome.remark,
        release=release,
        waited_for=delivery.is_waited_for,
        seconds=outcome.seconds,
        is_replay=delivery.is_replay,
        acknowledge=acknowledge,
    )


def _size(outcome: Outcome) -> int:
    return len(outcome.reply.body) if outcome.reply else 0
