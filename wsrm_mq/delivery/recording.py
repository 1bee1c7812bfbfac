"""What comes of a delivery is recorded, whatever it is.

An outcome is stored by one verb, and what follows is done once that is told: those who wait are told, the claim goes
on. Where the outcome itself is what cannot be stored (a text that is none, an answer that is too large), a second verb
records that, in words that can be: nothing is repeated without being counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from wsrm_mq import tracing
from wsrm_mq.delivery.delivery import Delivery, Outcome
from wsrm_mq.delivery.fresh import Fresh
from wsrm_mq.delivery.waiting import Waiters
from wsrm_mq.errors import FenceLost, StoreError
from wsrm_mq.events.inert import as_error, inert
from wsrm_mq.events.telling import Events
from wsrm_mq.queue.ownership import Claim, let_go, mark_redelivery, still_mine
from wsrm_mq.queue.poison import Aftermath
from wsrm_mq.queue.policy import PolicyOf, QueuePolicy
from wsrm_mq.queue.settle import Failed, Settled, fail, settle
from wsrm_mq.sequence.elements import SequenceAcknowledgement
from wsrm_mq.store.records import SequenceRecord
from wsrm_mq.store.store import Store
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.store.writer import Verb

__all__ = ["UNSTORABLE", "Recording", "Unrecorded", "settling", "size_of", "why_not_stored"]

UNSTORABLE: Final = "unstorable"
"""The kind of a failed attempt whose outcome could not be stored."""
_LONGEST: Final = 500
_TAKEN: Final = "the service took the message, and its answer could not be stored"
_BROKE_OFF: Final = "its run broke off"
_FAILED: Final = "the service failed, and why could not be stored"


class Unrecorded(NamedTuple):
    """An outcome that could not be stored as it is."""

    delivery: Delivery
    outcome: Outcome
    error: BaseException | None


class Give(Protocol):
    def __call__(self, claim: Claim, first: Delivery | None = None) -> None: ...


class Recording:
    """Of one dispatcher. ``give`` hands a claim on, perhaps with its next message."""

    def __init__(
        self,
        store: Store,
        policy_of: PolicyOf,
        waiters: Waiters,
        fresh: Fresh,
        events: Events,
        give: Give,
        on_retry: Callable[[int], None],
    ) -> None:
        self._store = store
        self._policy_of = policy_of
        self._waiters = waiters
        self._fresh = fresh
        self._events = events
        self._give = give
        self._on_retry = on_retry
        self.claims: set[Claim] = set()
        """Those in its hands: they go on when what is to be written with them is."""

    # it is stored

    def settled(self, claim: Claim, delivery: Delivery, done: Settled, *, last: bool) -> None:
        """``last``: the claim goes on from here, where it was not given back."""
        self.is_settled(delivery, done)
        self._fresh.pop(claim.sequence, delivery.number)  # it may have been kept after it was read
        if last and done.released:
            self._fresh.forget(claim.sequence)
        elif last:
            self._give(claim, self._fresh.pop(claim.sequence, done.next_number))

    def is_settled(self, delivery: Delivery, done: Settled) -> None:
        """Tell those who wait for it, here or in another process."""
        self._waiters.notify(delivery.position)
        if done.waiter is not None and self._store.presence is not None and done.waiter != self._store.presence.name:
            self._store.wake(done.waiter, word=str(delivery.position))

    def fail(self, claim: Claim, delivery: Delivery, outcome: Outcome) -> None:
        try:
            done = self._store.call(self.failing(claim, delivery, outcome), keep=True)
        except (FenceLost, StoreError):
            raise
        except Exception as error:
            tracing.settle(outcome, error)
            self.recover(claim, Unrecorded(delivery, outcome, error), ran_ahead=False)
        else:
            self.failed(claim, delivery, outcome, done)

    def failing(self, claim: Claim, delivery: Delivery, outcome: Outcome) -> Verb[Failed]:
        self._fresh.forget(claim.sequence)  # the next run reads what follows
        policy, error = self._policy_of(delivery.partner), outcome.error or ""
        return lambda tx: fail(
            tx, claim, delivery.position, delivery.number, error, policy, outcome.fault, outcome.seconds
        )

    def failed(self, claim: Claim, delivery: Delivery, outcome: Outcome, done: Failed) -> None:
        self._fresh.forget(claim.sequence)  # this one too: it may have been kept after it was read
        tracing.settle(outcome, None)
        if done.aftermath is not Aftermath.RETRY:
            self._waiters.notify(delivery.position)
        if done.retry_at is not None:
            self._on_retry(done.retry_at)
        if not done.released:
            self._give(claim)

    # it is not

    def recover(self, claim: Claim, broken: Unrecorded, *, ran_ahead: bool) -> None:
        """What came of a delivery could not be stored: record that. ``ran_ahead``: messages behind it may have been
        called."""
        delivery, _outcome, error = broken
        self._fresh.forget(claim.sequence)
        if error is not None and not isinstance(error, FenceLost | StoreError):
            self._submit(claim, broken, ran_ahead)
        elif error is not None and not isinstance(error, FenceLost):
            self.let_go(claim, error)
        self.tell("delivery.not_settled", delivery, error)

    def _submit(self, claim: Claim, broken: Unrecorded, ran_ahead: bool) -> None:
        delivery, outcome, _error = broken

        def told(done: Settled | Failed | None, again: BaseException | None) -> None:
            self.claims.discard(claim)
            if isinstance(done, Failed):
                self.failed(claim, delivery, outcome, done)
            elif done is not None:
                self.settled(claim, delivery, done, last=True)
            elif again is not None and not isinstance(again, FenceLost):
                self.let_go(claim, again)

        self.claims.add(claim)
        try:
            verb = _plainly(claim, broken, self._policy_of(delivery.partner), ran_ahead=ran_ahead)
            self._store.submit(verb, told, keep=True)
        except BaseException as closed:
            self.claims.discard(claim)
            self.let_go(claim, closed)

    def let_go(self, claim: Claim, error: BaseException) -> None:
        """A run broke off: the watch takes the sequence up again, here or elsewhere. Whatever is raised here, the claim
        does not stay in these hands: what no hand has the watch gives back."""
        self._fresh.forget(claim.sequence)
        why = None if isinstance(error, StoreError) else f"{_BROKE_OFF}: {inert(as_error(error))[:_LONGEST]}"
        self.claims.add(claim)
        try:
            self._store.submit(
                lambda tx: let_go(tx, claim, self._policy_of, why),
                lambda _result, _error: self.claims.discard(claim),
                keep=True,
            )
        except StoreError as closed:  # the next start finds it
            self.claims.discard(claim)
            self._events.tell("dispatch.not_given_back", key=claim.sequence, error=closed)
        except BaseException:
            self.claims.discard(claim)
            raise
        self._events.tell("dispatch.failed", key=claim.sequence, error=as_error(error), trouble=error)

    def tell(self, name: str, delivery: Delivery, error: object) -> None:
        self._events.tell(name, sequence=delivery.identifier, number=delivery.number, error=error)


def settling(
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


def _plainly(claim: Claim, broken: Unrecorded, policy: QueuePolicy, *, ran_ahead: bool) -> Verb[Settled | Failed]:
    """A one-way message that the service took is settled, with what can be said of its answer. The sender of a two-way
    one waits for that answer: it has failed, as has one whose failure could not be stored."""
    delivery, outcome, _error = broken
    why = why_not_stored(broken)

    def verb(tx: Transaction) -> Settled | Failed:
        record = still_mine(tx, claim)
        done: Settled | Failed
        if outcome.error is None and outcome.remark is not None and not delivery.wants_reply:
            said = Outcome(remark=why, seconds=outcome.seconds)
            done = settling(claim, delivery, said, release=True)(tx)
        else:
            done = fail(tx, claim, delivery.position, delivery.number, why, policy, UNSTORABLE, outcome.seconds)
        if ran_ahead:
            mark_redelivery(tx, record)
        return done

    return verb


def why_not_stored(broken: Unrecorded) -> str:
    """In a text that can be stored."""
    what = _TAKEN if broken.outcome.error is None else _FAILED
    return f"{what}: {inert(as_error(broken.error))[:_LONGEST]}"


def size_of(outcome: Outcome) -> int:
    return len(outcome.reply.body) if outcome.reply else 0
