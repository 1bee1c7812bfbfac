"""What must hold whatever the order of steps, told by what the service saw and what the partners were told.

It knows what was sent, acknowledged and called. Of the store it asks the outcome of an entry and the state of a
sequence (``stored``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.simulator.policies import wants_reply
from tests.simulator.stored import Stored
from wsrm_mq.delivery.delivery import Delivery
from wsrm_mq.queue.policy import Acknowledge, QueuePolicy
from wsrm_mq.sequence.elements import IncompleteSequenceBehavior
from wsrm_mq.sequence.terms import DeliveryAssurance

NO_DISCARD, ENTIRE, _ = IncompleteSequenceBehavior


class Violation(AssertionError):
    """What a schedule may not do."""


@dataclass
class Truth:
    """One sequence, as those see it who do not know the store."""

    identifier: str
    policy: QueuePolicy
    partner: str
    accepted: set[int] = field(default_factory=set)
    acknowledged: set[int] = field(default_factory=set)
    passed: set[int] = field(default_factory=set)
    """Missing numbers that an operator has forced it past."""
    called: dict[int, list[bool | None]] = field(default_factory=lambda: defaultdict(list))
    """What came of each call of a number: ``None`` while it runs, and for ever where its process was killed."""
    running: dict[int, str] = field(default_factory=dict)
    """Numbers that the service is at, and in which process."""
    restored: set[int] = field(default_factory=set)
    """Numbers that an operator had given up, which names them, and has brought back."""
    taken_by_lost: set[int] = field(default_factory=set)
    """Numbers that a process had taken which others took for dead: it may have settled them first."""
    settled: dict[int, str] = field(default_factory=dict)
    """Outcomes that were seen before retention could take the entries."""

    def was_taken(self, number: int) -> bool:
        """The service has taken it in its last call."""
        return bool(self.called[number]) and self.called[number][-1] is True

    def waits(self, number: int) -> bool:
        """It is acknowledged when it was taken, with its reply."""
        return self.policy.acknowledge is Acknowledge.DELIVERED or wants_reply(self.partner, number)

    def missing_below(self, number: int) -> set[int]:
        return set(range(1, number)) - self.accepted - self.passed

    @property
    def may_lose(self) -> bool:
        return self.policy.assurance is DeliveryAssurance.AT_MOST_ONCE


class Oracle:
    def __init__(self, stored: Stored) -> None:
        self._stored = stored
        self.truths: dict[str, Truth] = {}
        self.lost: set[str] = set()
        """Processes that were killed, or taken for dead."""

    def summary(self) -> list[object]:
        """What the service saw and the partners were told, without names that are drawn by chance."""
        return [
            (sorted(truth.accepted), sorted(truth.acknowledged), sorted(truth.called.items()))
            for truth in self.truths.values()
        ]

    # what partners are told

    def acknowledged(self, identifier: str, numbers: Iterable[int]) -> None:
        truth = self.truths[identifier]
        new = set(numbers) - truth.acknowledged
        if not new:
            return
        if unknown := new - truth.accepted:
            raise Violation(f"{sorted(unknown)} of {identifier} are acknowledged and were never stored")
        truth.acknowledged |= new
        waits = {number for number in new if truth.waits(number)}
        if waits and self._stored.state(identifier) == "created":  # at the end all that was accepted is named
            unsettled = {number for number, outcome, *_ in self._stored.entries(identifier) if outcome is None}
            if early := waits & unsettled - truth.restored:
                raise Violation(f"{sorted(early)} of {identifier} are acknowledged before their reply is stored")

    # what the service sees

    def called(self, process: str, delivery: Delivery) -> None:
        key = delivery.key
        truth, number = self.truths[key.identifier], key.number
        if process in self.lost:
            return
        where = f"number {number} of {key.identifier} in {process}"
        if number not in truth.accepted:
            raise Violation(f"{where} is delivered and was never accepted")
        if truth.called[number] and not (delivery.redelivery or delivery.attempt > 1):
            raise Violation(f"{where} is delivered again without a mark")
        if truth.called[number] and delivery.at_most_once and delivery.source is None:
            raise Violation(f"{where} is delivered again, and was promised at most once")
        if number in truth.running:
            raise Violation(f"{where} is delivered while {truth.running[number]} is at it")
        if delivery.source is None:
            outcome = self._stored.outcome(delivery.position)
            was_settled_first = delivery.at_most_once and outcome in ("delivered", "nowhere")  # and perhaps pruned
            if outcome is not None and not was_settled_first:
                raise Violation(f"{where} is delivered after it was settled as {outcome}")
            self._check_order(truth, number, delivery, where)
        truth.called[number].append(None)
        if delivery.source is None:
            truth.running[number] = process

    def _check_order(self, truth: Truth, number: int, delivery: Delivery, where: str) -> None:
        if not truth.policy.ordered or delivery.late:
            return
        if truth.running:
            raise Violation(f"{where} is delivered while {dict(truth.running)} of its sequence run")
        self.check_turn(truth, number, where)

    def check_turn(self, truth: Truth, number: int, where: str, beside: Collection[int] = ()) -> None:
        """It is the turn of a number of a sequence, or of those which are delivered ``beside`` it."""
        entries = self._stored.entries(truth.identifier)
        is_late = any(late for one, _outcome, late, _reason in entries if one == number)
        if is_late or not truth.policy.ordered:
            return
        before = {
            earlier
            for earlier, outcome, late, _reason in entries
            if earlier < number and outcome is None and not late and not truth.was_taken(earlier)
        } - set(beside)
        if before and not truth.may_lose:
            raise Violation(f"{where} is delivered before {sorted(before)}")
        state = self._stored.state(truth.identifier)
        missing = truth.missing_below(number)
        if state == "created" and missing and not truth.may_lose:
            raise Violation(f"{where} is delivered across the gap {sorted(missing)}")
        if truth.policy.behavior is ENTIRE and (state == "created" or missing):
            raise Violation(f"{where} is delivered of an incomplete sequence that is delivered as a whole")

    def returned(self, process: str, delivery: Delivery, *, is_taken: bool) -> None:
        truth, number = self.truths[delivery.key.identifier], delivery.key.number
        if process in self.lost:
            truth.taken_by_lost |= {number} if is_taken else set()
            return
        truth.called[number][-1] = is_taken
        truth.running.pop(number, None)
        if not delivery.at_most_once:
            outcome = self._stored.outcome(delivery.position)
            if outcome is not None:
                raise Violation(f"number {number} of {truth.identifier} was given up while the service was at it")

    def killed(self, process: str) -> None:
        """Also taken for dead: what it still does is its own, and it settles nothing."""
        self.lost.add(process)
        for truth in self.truths.values():
            truth.running = {number: name for number, name in truth.running.items() if name != process}

    @contextmanager
    def commit_of(self, process: str, instance: int) -> Iterator[None]:
        """A commit of a process that was taken for dead settles nothing that another has taken (I3)."""
        if process not in self.lost:
            yield
            return
        others = self._stored.unsettled_of_others(instance)
        yield
        for position in others:
            if self._stored.outcome(position) == "delivered":
                raise Violation(f"position {position} was settled by {process}, which had lost it to another")

    # the end

    def before_retention(self) -> None:
        for identifier, truth in self.truths.items():
            truth.settled |= {number: outcome for number, outcome, *_ in self._stored.entries(identifier) if outcome}

    def is_brought_back(self, position: int) -> None:
        found = self._stored.place(position)
        if found is not None and found[0] in self.truths:
            self.truths[found[0]].restored.add(found[1])

    def check_store(self) -> None:
        if (broken := self._stored.broken()) is not None:
            raise Violation(broken)

    def check_end(self) -> None:
        """Everything has come to rest: what was acknowledged has come to an end that is told."""
        for identifier, truth in self.truths.items():
            rows = {number: (outcome, reason) for number, outcome, _late, reason in self._stored.entries(identifier)}
            for number in sorted(truth.accepted):
                outcome, reason = rows.get(number, (truth.settled.get(number), "pruned"))
                self._check_outcome(truth, number, outcome, reason, is_there=number in rows)

    def _check_outcome(
        self, truth: Truth, number: int, outcome: str | None, reason: str | None, *, is_there: bool
    ) -> None:
        where = f"number {number} of {truth.identifier}"
        if outcome is None and not is_there:
            raise Violation(f"{where} was accepted and is nowhere")
        was_taken = True in truth.called[number] or number in truth.taken_by_lost
        if outcome == "delivered" and not truth.may_lose and not was_taken:
            raise Violation(f"{where} is settled as delivered, and the service never took it")
        if outcome in ("dead", "discarded") and not reason:
            raise Violation(f"{where} is {outcome} and nothing says why")
        if outcome is None and self.is_left(truth, number):
            raise Violation(f"{where} can be delivered and nobody does")

    def is_left(self, truth: Truth, number: int) -> bool:
        """Nothing stops it: neither a gap, nor what the store says of its sequence."""
        delivers_below = self._stored.delivers_below(truth.identifier)
        has_gap = truth.policy.behavior is ENTIRE or bool(truth.missing_below(number))
        return number < delivers_below or bool(delivers_below and not has_gap)

    def check_nothing_is_left(self, now: int) -> None:
        """By what was told alone: no free sequence has something to deliver."""
        if left := self._stored.runnable(now):
            raise Violation(f"nobody was told of what can be delivered of the sequences {left}")
        if self._stored.next_retry() is not None:
            raise Violation("nobody looks again when a retry is due")
        if owned := self._stored.owned():
            raise Violation(f"nobody runs the sequences {owned}, and they are not given back")
