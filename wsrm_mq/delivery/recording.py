"""The recording of outcomes: the outcome of a delivery is stored, whatever it is.

An outcome is stored by one verb, and the next steps are done on its commit: requests that wait are woken, the claim
goes on. Where the outcome itself cannot be stored (a text with characters that no column takes, an answer that is too
large), a second verb records that, in words that can be: nothing is repeated without being counted.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from wsrm_mq import queue as verbs
from wsrm_mq.delivery.completion import Completion, Waiters
from wsrm_mq.delivery.delivery import Delivery, Heard, Outcome, Prefetch
from wsrm_mq.delivery.outgoing_messages import reply_endpoint, tell_end_of_outbound, tell_undelivered
from wsrm_mq.envelope.stream import content_type_of
from wsrm_mq.errors import FenceLost, StoreError
from wsrm_mq.events.inert import as_error, inert
from wsrm_mq.events.telling import Events
from wsrm_mq.queue.acknowledgement import acknowledged
from wsrm_mq.queue.arrival import Receipt
from wsrm_mq.queue.broken_run import let_go, mark_redelivery
from wsrm_mq.queue.failure import Aftermath, Diagnosis, Failed, fail, leave_alone
from wsrm_mq.queue.ownership import RUN_AHEAD, Claim, give_back, lane_of, still_mine
from wsrm_mq.queue.policy import PolicyOf, QueuePolicy
from wsrm_mq.queue.settle import Done, ServiceReply, Settled, Settlement, add_reply, remarked, settle
from wsrm_mq.sequence.elements import SequenceAcknowledgement
from wsrm_mq.store.group_commit import Verb
from wsrm_mq.store.records import SequenceRecord
from wsrm_mq.store.store import Store
from wsrm_mq.store.transaction import Transaction

R = TypeVar("R")

_UNSTORABLE: Final = Diagnosis("unstorable")
"""The diagnosis of an attempt whose outcome could not be stored."""
_LONGEST: Final = 500
_TAKEN: Final = "the service took the message, and its answer could not be stored"
_BROKE_OFF: Final = "its run broke off"
_FAILED: Final = "the service failed, and why could not be stored"


class Unrecorded(NamedTuple):
    """An outcome that could not be stored as it is, and the error that says why."""

    delivery: Delivery
    outcome: Outcome
    error: BaseException | None


# Settlements in flight: a run may be ahead of its last settled commit, but not far.

_AHEAD_SECONDS: Final = 0.020


class Pipeline:
    """Counts settlements that are submitted and not yet committed; they commit, and are told, in the order they were
    submitted. ``lead``: has this thread write them, where it does so itself."""

    def __init__(self, lead: Callable[[], object] = lambda: None) -> None:
        self._lead = lead
        self._submitted: deque[float] = deque()
        self._lock = threading.Lock()
        """Taken as itself: an error thrown into this thread could leave a condition's own ``with`` locked."""
        self._changed = threading.Condition(self._lock)
        self.broken: Unrecorded | None = None
        """The first that was not settled. Nothing is to follow it."""
        self.heard: Heard | None = None
        """The last answer to what was sent."""
        self.is_over = False
        """A settlement found that nothing may follow it: the sequence was held, or ended, meanwhile."""

    def enter(self) -> None:
        """Wait until one more may be under way."""
        self.keep_up()
        with self._lock:
            while self._is_far_ahead():
                self._changed.wait()
            self._submitted.append(time.monotonic())

    def keep_up(self, seconds: float = 0.0) -> None:
        """Write what will have been under way for too long in so many seconds."""
        with self._lock:
            is_due = self._is_far_ahead(seconds)
        if is_due:
            self._lead()

    def _is_far_ahead(self, seconds: float = 0.0) -> bool:
        since = time.monotonic() + seconds - _AHEAD_SECONDS
        return bool(self._submitted) and (len(self._submitted) >= RUN_AHEAD or self._submitted[0] < since)

    def guarded(self, verb: Verb[R]) -> Verb[R]:
        """Make a verb that settles a message, and is refused behind a message that was not settled: in order it would
        say that those before it are settled too."""

        def settle(tx: Transaction) -> R:
            if self.broken is not None:
                raise FenceLost("a message before it could not be settled")
            return verb(tx)

        return settle

    def leave(self, broken: Unrecorded | None = None) -> Unrecorded | None:
        """One is committed, or ``broken``. Answers the first that is."""
        with self._lock:
            self._submitted.popleft()
            self.broken = self.broken or broken
            self._changed.notify_all()
            return self.broken

    def drain(self) -> None:
        self._lead()
        with self._lock:
            while self._submitted:
                self._changed.wait()


class Give(Protocol):
    def __call__(self, claim: Claim, first: Delivery | None = None) -> object: ...


@dataclass(eq=False)
class Recording:
    """Records outcomes for one dispatcher. ``give`` hands a claim on, perhaps with its next message; ``on_release``:
    one was given back."""

    _store: Store
    _policy_of: PolicyOf
    _waiters: Waiters
    _prefetch: Prefetch
    _events: Events
    _give: Give
    _on_release: Callable[[], None]
    _on_retry: Callable[[int], None]

    def __post_init__(self) -> None:
        self.claims: set[Claim] = set()
        """The claims in its hands: they go on when the verbs that have them are committed."""

    def record(
        self,
        claim: Claim,
        delivery: Delivery,
        outcome: Outcome,
        *,
        last: bool,
        pipeline: Pipeline | None = None,
        completion: Completion | None = None,
    ) -> None:
        """Have the outcome stored. With the ``last`` message that its run knows, and with one that failed, the claim
        leaves the run: it goes on from here. ``pipeline`` has those before it that are not stored yet."""
        leaves = last or outcome.error is not None
        over_at = None if last or pipeline is None else self._store.clock()
        acknowledge = None if completion is None else self._acknowledging(delivery)
        verb = self._storing(claim, delivery, outcome, over_at, release=last, acknowledge=acknowledge)
        heard = outcome.heard

        def on_commit(done: Any, error: BaseException | None) -> None:
            if leaves:
                self.claims.discard(claim)
            if heard is not None and done is not None:
                receipt, done, error = done
                heard.committed(receipt)
            if outcome.settling is not None:
                outcome.settling(error)
            settlement = None
            broken = Unrecorded(delivery, outcome, error) if done is None else None
            try:
                if pipeline is not None:
                    pipeline.is_over = pipeline.is_over or (isinstance(done, Settled) and not done.goes_on)
                    broken = pipeline.leave(broken)
                if isinstance(done, Settled):
                    self.settled(claim, delivery, done, last=last and broken is None)
                    if outcome.reply is not None:
                        self._tell_unsent(delivery, outcome.reply)
                    if done.acknowledgement is not None:
                        reply = outcome.reply and outcome.reply._replace(header=done.reply_header)
                        settlement = Settlement("delivered", reply, done.acknowledgement, done.outgoing_position)
                elif done is not None:
                    self.failed(claim, delivery, done)
                if leaves and broken is not None:
                    self.recover(claim, broken, ran_ahead=pipeline is not None)
            finally:
                if completion is not None:
                    completion.complete(settlement)

        if leaves:
            self.claims.add(claim)
        size = 0 if outcome.reply is None else len(outcome.reply.body)
        if completion is not None:
            return completion.submit(verb, on_commit, size=size)
        verb = verb if pipeline is None else pipeline.guarded(verb)
        if heard is not None:
            verb, size = _with_answer(heard, verb), heard.size
        is_led = delivery.channel is not None
        lingers = outcome.error is None and not delivery.is_waited_for
        self._store.submit(verb, on_commit, keep=True, size=size, lingers=lingers, is_led=is_led)
        if is_led and (leaves or pipeline is None):
            self._store.writer.lead()

    def _storing(
        self,
        claim: Claim,
        delivery: Delivery,
        outcome: Outcome,
        over_at: int | None,
        *,
        release: bool,
        acknowledge: Callable[[Transaction, SequenceRecord], SequenceAcknowledgement] | None,
    ) -> Verb[Any]:
        """The verb that stores an outcome."""
        if outcome.left_alone is not None:
            return _leaving_alone(claim, delivery, outcome.error or "", outcome.left_alone)
        if outcome.error is not None:
            return self._failing(claim, delivery, outcome)
        if outcome.is_sent:
            return self._sending(claim, delivery, outcome, over_at, release=release)
        return _settling(claim, delivery, outcome, over_at, release=release, acknowledge=acknowledge)

    def _acknowledging(self, delivery: Delivery) -> Callable[[Transaction, SequenceRecord], SequenceAcknowledgement]:
        policy, number = self._policy_of(delivery.partner), delivery.number
        return lambda tx, record: acknowledged(tx.db, record, policy, lambda: tx.used_bytes, number)

    def _failing(self, claim: Claim, delivery: Delivery, outcome: Outcome) -> Verb[Failed]:
        self._prefetch.drop(claim.lane)  # the next run reads what follows
        policy, error = self._policy_of(delivery.partner), outcome.error or ""

        def verb(tx: Transaction) -> Failed:
            done = fail(
                tx, claim, delivery.position, delivery.number, error, policy, outcome.diagnosis, outcome.seconds
            )
            if done.aftermath is not Aftermath.BURIED:
                return done
            if delivery.channel is not None:
                verbs.leave_gap(tx, claim.lane, delivery.number)
            return done._replace(sends=tell_undelivered(tx, claim, delivery))

        return verb

    def _sending(
        self, claim: Claim, delivery: Delivery, outcome: Outcome, over_at: int | None, *, release: bool
    ) -> Verb[Settled]:
        resend, heard = self._policy_of(delivery.partner).resend, outcome.heard

        def verb(tx: Transaction) -> Settled:
            return verbs.sent(
                tx,
                claim,
                delivery.position,
                delivery.number,
                delivery.attempt,
                resend,
                why=outcome.remark,
                is_again=outcome.is_again,
                release=release,
                over_at=over_at,
                is_settled=heard is not None and heard.has_settled(delivery.position),
            )

        return verb

    # it is stored

    def settled(self, claim: Claim, delivery: Delivery, done: Settled, *, last: bool) -> None:
        """The settlement is stored. With ``last`` the claim goes on from here, where it was not given back."""
        self.is_settled(delivery, done)
        if done.sends is not None:
            self._give(done.sends)
        if done.needs_watch:
            self._on_retry(0)
        if last and done.released:
            return self._released(claim)
        self._prefetch.take(claim.lane, delivery.number)  # it may have been kept after it was read
        if last:
            self._give(claim, self._prefetch.take(claim.lane, done.next_number))

    def _tell_unsent(self, delivery: Delivery, reply: ServiceReply) -> None:
        """Tell of a reply that is no envelope: it can leave on the response to its request, and in no request of this
        side's own."""
        if not reply.body or reply.outgoing_message is not None or delivery.is_waited_for:
            return
        if reply_endpoint(delivery.environ, is_fault=False) is not None:
            of, number = content_type_of(reply.headers) or None, delivery.number
            self._events.tell("reply.not_soap", sequence=delivery.identifier, number=number, content_type=of)

    def is_settled(self, delivery: Delivery, done: Settled) -> None:
        """Wake the requests that wait for it, here or in another process."""
        self._waiters.notify(delivery.position)
        if done.waiter is not None and self._store.presence is not None and done.waiter != self._store.presence.name:
            self._store.wake(done.waiter, word=str(delivery.position))

    def failed(self, claim: Claim, delivery: Delivery, done: Failed) -> None:
        self._prefetch.drop(claim.lane)  # this one too: it may have been kept after it was read
        if done.aftermath is not Aftermath.RETRY:
            self._waiters.notify(delivery.position)
        if done.retry_at is not None:
            self._on_retry(done.retry_at)
        if done.sends is not None:
            self._give(done.sends)
        if done.released:
            self._on_release()
        else:
            self._give(claim)

    # it is not

    def recover(self, claim: Claim, broken: Unrecorded, *, ran_ahead: bool) -> None:
        """Record that the outcome of a delivery could not be stored. ``ran_ahead``: messages behind it may have been
        called."""
        delivery, _outcome, error = broken
        self._prefetch.drop(claim.lane)
        if error is not None and not isinstance(error, FenceLost | StoreError):
            self._record_plainly(claim, broken, ran_ahead)
        elif error is not None and not isinstance(error, FenceLost):
            self.let_go(claim, error)
        self.tell("delivery.not_settled", delivery, error)

    def _record_plainly(self, claim: Claim, broken: Unrecorded, ran_ahead: bool) -> None:
        delivery = broken.delivery

        def told(done: Settled | Failed | None, again: BaseException | None) -> None:
            if isinstance(done, Failed):
                self.failed(claim, delivery, done)
            elif done is not None:
                self.settled(claim, delivery, done, last=True)
            elif again is not None and not isinstance(again, FenceLost):
                self.let_go(claim, again)

        try:
            policy = self._policy_of(delivery.partner)
            self._write(claim, _plainly(claim, broken, policy, ran_ahead=ran_ahead), told)
        except BaseException as closed:
            self.let_go(claim, closed)

    def give_back(self, claim: Claim) -> None:
        """Give back a claim that could go on: others are to have their turn before it."""

        def told(_result: bool | None, error: BaseException | None) -> None:
            if error is None:
                self._released(claim)
            else:
                self.let_go(claim, error)

        self._write(claim, lambda tx: give_back(tx, claim, stopping=True), told)

    def _write(self, claim: Claim, verb: Verb[R], told: Callable[[R | None, BaseException | None], None]) -> None:
        """Have ``verb`` committed, with the claim in these hands until then. ``told`` gets its result or the error."""

        def on_commit(result: R | None, error: BaseException | None) -> None:
            self.claims.discard(claim)
            told(result, error)

        self.claims.add(claim)
        try:
            self._store.submit(verb, on_commit, keep=True)
        except BaseException:
            self.claims.discard(claim)
            raise

    def give_back_now(self, claim: Claim, *, stopping: bool) -> bool:
        """Give a claim back as ``ownership.give_back`` does, and wait for it."""

        def committed(is_given_back: bool) -> None:
            if is_given_back:
                self._released(claim)

        return self._store.call(lambda tx: give_back(tx, claim, stopping=stopping), keep=True, committed=committed)

    def _released(self, claim: Claim) -> None:
        """The claim was given back: forget the messages of its lane, which another process may run now."""
        self._prefetch.drop(claim.lane)
        self._on_release()

    def let_go(self, claim: Claim, error: BaseException) -> None:
        """Give the lane back of a run that broke off: the watch takes it up again, here or elsewhere. An error that is
        raised here does not keep the claim in these hands: the watch gives back a claim that no hand has."""
        self._prefetch.drop(claim.lane)
        if isinstance(error, FenceLost):  # it is another's by now
            return self._events.tell("delivery.fence_lost", error=error)
        why = None if isinstance(error, StoreError) else f"{_BROKE_OFF}: {_in_short(error)}"

        def told(_result: None, _error: BaseException | None) -> None:
            self._released(claim)

        try:
            self._write(claim, lambda tx: let_go(tx, claim, self._policy_of, why), told)
        except StoreError as closed:  # the next start finds it
            self._events.tell("dispatch.not_given_back", key=claim.lane or claim.entry, error=closed)
        self._events.tell("dispatch.failed", key=claim.lane or claim.entry, error=as_error(error), trouble=error)

    # at most once: it is settled before the call

    def settle_first(self, claim: Claim, delivery: Delivery) -> Settled:
        """Settle a message that is called then: a crash from here on loses it, nothing repeats it."""
        return self._store.call(_settling(claim, delivery, Outcome(), release=False), keep=True)

    def note(self, claim: Claim, delivery: Delivery, outcome: Outcome, done: Settled) -> None:
        """Write down the outcome of a message that is settled already; in words where it cannot be stored."""
        lost: object = outcome.error
        if outcome.reply is None and outcome.error is None and outcome.remark is None and not outcome.is_copied:
            self._store.submit(_noting(claim, delivery, outcome), lambda _result, _error: None, lingers=True)
        else:
            try:
                size = 0 if outcome.reply is None else len(outcome.reply.body)
                sends = self._store.call(_noting(claim, delivery, outcome), keep=True, size=size)
                if sends is not None:
                    self._give(sends)
            except StoreError:
                raise
            except Exception as error:
                lost = _why_not_stored(Unrecorded(delivery, outcome, error))
                plain = Outcome(error=lost, diagnosis=_UNSTORABLE, seconds=outcome.seconds)
                self._store.call(_noting(claim, delivery, plain), keep=True)
        if lost is not None:
            self.tell("delivery.lost", delivery, lost)
        if outcome.reply is not None:
            self._tell_unsent(delivery, outcome.reply)
        if outcome.settling is not None:
            outcome.settling(None)
        self._prefetch.take(claim.lane, delivery.number)  # it may have been kept after it was read
        self.is_settled(delivery, done)

    def tell(self, name: str, delivery: Delivery, error: object) -> None:
        self._events.tell(name, sequence=delivery.identifier, number=delivery.number, error=error)


def _settling(
    claim: Claim,
    delivery: Delivery,
    outcome: Outcome,
    over_at: int | None = None,
    *,
    release: bool,
    acknowledge: Callable[[Transaction, SequenceRecord], SequenceAcknowledgement] | None = None,
) -> Verb[Settled]:
    done = Done(
        reply=outcome.reply,
        remark=outcome.remark,
        diagnosis=outcome.diagnosis,
        is_known=outcome.is_known,
        seconds=outcome.seconds,
        is_replay=delivery.is_replay,
        waited_for=delivery.is_waited_for,
        over_at=over_at,
    )

    def verb(tx: Transaction) -> Settled:
        settled = settle(tx, claim, delivery.position, delivery.number, done, release=release, acknowledge=acknowledge)
        if outcome.is_copied:
            verbs.publish_copy(tx, delivery.position)
        if settled.terminates is None:
            return settled
        return settled._replace(sends=tell_end_of_outbound(tx, settled.terminates).claim or settled.sends)

    return verb


def _with_answer(heard: Heard, verb: Verb[R]) -> Verb[tuple[Receipt, R | None, FenceLost | None]]:
    """Take the answer to a message in the transaction of its outcome: also where that is refused, as another process
    has the lane by now."""

    def both(tx: Transaction) -> tuple[Receipt, R | None, FenceLost | None]:
        receipt = heard.take(tx)
        try:
            return receipt, verb(tx), None
        except FenceLost as error:
            return receipt, None, error

    return both


def _leaving_alone(claim: Claim, delivery: Delivery, why: str, seconds: float) -> Verb[Failed]:
    return partial(leave_alone, held=claim, position=delivery.position, seconds=seconds, why=why)


def _plainly(claim: Claim, broken: Unrecorded, policy: QueuePolicy, *, ran_ahead: bool) -> Verb[Settled | Failed]:
    """Record in plain words an outcome that cannot be stored. A one-way message that the service took is settled. The
    sender of a two-way message waits for the answer: the message has failed, as has one whose failure could not be
    stored."""
    delivery, outcome, _error = broken
    why = _why_not_stored(broken)

    def verb(tx: Transaction) -> Settled | Failed:
        record = still_mine(tx, claim)
        done: Settled | Failed
        if outcome.error is None and outcome.remark is not None and not delivery.wants_reply:
            said = Outcome(remark=why, diagnosis=_UNSTORABLE, seconds=outcome.seconds)
            done = _settling(claim, delivery, said, release=True)(tx)
        else:
            done = fail(tx, claim, delivery.position, delivery.number, why, policy, _UNSTORABLE, outcome.seconds)
        if ran_ahead:
            mark_redelivery(tx, record)
        return done

    return verb


def _noting(claim: Claim, delivery: Delivery, outcome: Outcome) -> Verb[Claim | None]:
    """Make the verb that notes an outcome. It answers the claim on a message that is to be sent because of it."""
    number, position = delivery.number, delivery.position

    def note(tx: Transaction) -> Claim | None:
        sends = None
        lane = lane_of(tx, claim)
        queue = lane.queue if lane is not None else 0
        tx.counts.took(queue, outcome.seconds or 0.0)
        if outcome.is_copied:
            verbs.publish_copy(tx, position)
        if outcome.reply is not None:
            _header, sent = add_reply(tx, lane, position, number, outcome.reply, is_awaited=delivery.is_waited_for)
            sends = sent.claim
        if outcome.remark is not None:
            remarked(tx, lane, position, number, outcome.remark, outcome.diagnosis)
        if outcome.error is not None:
            why, failure = outcome.error, outcome.diagnosis.columns
            tx.ledger("failed", lane, number=number, position=position, reason=why, failure=failure, is_told=False)
            tx.counts.failed(queue, outcome.diagnosis.kind)
        return sends

    return note


def _why_not_stored(broken: Unrecorded) -> str:
    what = _TAKEN if broken.outcome.error is None else _FAILED
    return f"{what}: {_in_short(broken.error)}"


def _in_short(error: BaseException | None) -> str:
    """The error as a text that can be stored."""
    return inert(as_error(error))[:_LONGEST]
