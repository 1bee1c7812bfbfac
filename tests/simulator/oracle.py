"""What must hold whatever the order of steps, told by what the service saw and what the partners were told.

It knows what was sent, acknowledged and called. Of the store it reads the published facts of an entry (its outcome) and
of a sequence (its state), through a connection of its own.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from wsrm_mq.delivery.delivery import Delivery
from wsrm_mq.queue.policy import Acknowledge, QueuePolicy
from wsrm_mq.sequence.elements import IncompleteSequenceBehavior
from wsrm_mq.sequence.terms import DeliveryAssurance
from wsrm_mq.store import lanes
from wsrm_mq.store.invariants import INVARIANTS, Invariant

NO_DISCARD, ENTIRE, _ = IncompleteSequenceBehavior

_CHECKED: tuple[Invariant, ...] = tuple(one for one in INVARIANTS if one.table in ("sequence", "entry", "message"))


class Violation(AssertionError):
    """What a schedule may not do."""


@dataclass
class Truth:
    """One sequence, as those see it who do not know the store."""

    identifier: str
    policy: QueuePolicy
    is_two_way: bool
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

    @property
    def may_lose(self) -> bool:
        return self.policy.assurance is DeliveryAssurance.AT_MOST_ONCE


class Oracle:
    def __init__(self, reader: sqlite3.Connection) -> None:
        self._reader = reader
        self.truths: dict[str, Truth] = {}
        self.lost: set[str] = set()
        """Processes that were killed, or taken for dead."""

    # what partners are told

    def acknowledged(self, identifier: str, numbers: Iterable[int]) -> None:
        truth = self.truths[identifier]
        new = set(numbers) - truth.acknowledged
        if not new:
            return
        if unknown := new - truth.accepted:
            raise Violation(f"{sorted(unknown)} of {identifier} are acknowledged and were never stored")
        truth.acknowledged |= new
        is_open = self.state(identifier) == "created"  # at the end all that was accepted is named
        if is_open and (truth.is_two_way or truth.policy.acknowledge is Acknowledge.DELIVERED):
            unsettled = {number for number, outcome, *_ in self.entries(identifier) if outcome is None}
            if early := new & unsettled - truth.restored:
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
            outcome = self._reader.execute("SELECT outcome FROM entry WHERE id = ?", (delivery.position,)).fetchone()
            if outcome is None or (outcome[0] is not None and not delivery.at_most_once):
                raise Violation(f"{where} is delivered after it was settled as {outcome and outcome[0]}")
            self._check_order(truth, number, delivery, where)
        truth.called[number].append(None)
        if delivery.source is None:
            truth.running[number] = process

    def _check_order(self, truth: Truth, number: int, delivery: Delivery, where: str) -> None:
        if not truth.policy.ordered or delivery.late:
            return
        if truth.running:
            raise Violation(f"{where} is delivered while {dict(truth.running)} of its sequence run")
        before = {
            earlier
            for earlier, outcome, late, _reason in self.entries(truth.identifier)
            if earlier < number and outcome is None and not late and not truth.was_taken(earlier)
        }
        if before and not truth.may_lose:
            raise Violation(f"{where} is delivered before {sorted(before)}")
        state = self.state(truth.identifier)
        missing = set(range(1, number)) - truth.accepted - truth.passed
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
            outcome = self._reader.execute("SELECT outcome FROM entry WHERE id = ?", (delivery.position,)).fetchone()
            if outcome is None or outcome[0] is not None:
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
        others = self._reader.execute(
            "SELECT e.id FROM entry e JOIN lane s ON s.id = e.lane WHERE e.outcome IS NULL AND s.owner <> ?",
            (instance,),
        ).fetchall()
        yield
        for (position,) in others:
            found = self._reader.execute("SELECT outcome FROM entry WHERE id = ?", (position,)).fetchone()
            if found is not None and found[0] == "delivered":
                raise Violation(f"position {position} was settled by {process}, which had lost it to another")

    # what the store says

    def entries(self, identifier: str) -> list[tuple[int, str | None, int, str | None]]:
        """Number, outcome, lateness and reason of each entry that came in a sequence."""
        return self._reader.execute(
            "SELECT e.number, e.outcome, e.late, e.reason FROM entry e JOIN lane s ON s.id = e.lane "
            "WHERE s.identifier = ?",
            (identifier,),
        ).fetchall()

    def state(self, identifier: str) -> str | None:
        found = self._reader.execute("SELECT state FROM sequences WHERE sequence = ?", (identifier,)).fetchone()
        return None if found is None else found[0]

    def before_retention(self) -> None:
        for identifier, truth in self.truths.items():
            truth.settled |= {number: outcome for number, outcome, *_ in self.entries(identifier) if outcome}

    def is_brought_back(self, position: int) -> None:
        found = self._reader.execute(
            "SELECT s.identifier, e.number FROM entry e JOIN lane s ON s.id = e.lane WHERE e.id = ?",
            (position,),
        ).fetchone()
        if found is not None and found[0] in self.truths:
            self.truths[found[0]].restored.add(found[1])

    def check_store(self) -> None:
        for one in _CHECKED:
            found = self._reader.execute(one.question, {"lower": 0, "upper": 2**62}).fetchone()
            if found is not None:
                raise Violation(f"{one.name}: {one.table} {found[0]}, {found[1]}")

    def check_end(self) -> None:
        """Everything has come to rest: what was acknowledged has come to an end that is told."""
        for identifier, truth in self.truths.items():
            rows = {number: (outcome, reason) for number, outcome, _late, reason in self.entries(identifier)}
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
        if outcome is None and self._is_left(truth.identifier, number):
            raise Violation(f"{where} can be delivered and nobody does")

    def _is_left(self, identifier: str, number: int) -> bool:
        """Whether nothing stops it: no operator, no failure, no gap, no retry that is to come."""
        return bool(
            self._reader.execute(
                'SELECT on_hold_since IS NULL AND blocked IS NULL AND retry_at IS NULL AND ? < "limit" '
                "AND discard_from IS NULL FROM lane WHERE identifier = ?",
                (number, identifier),
            ).fetchone()[0]
        )

    def check_nothing_is_left(self, now: int) -> None:
        """By what was told alone: no free sequence has something to deliver."""
        search = {"now": now, "count": 10, "foreign": "[]", "after": 0}
        left = self._reader.execute(lanes.RUNNABLE, search).fetchall()
        if left:
            raise Violation(f"nobody was told of what can be delivered of the sequences {[key for key, *_ in left]}")
        retry_at = self._reader.execute(lanes.NEXT_RETRY, {"foreign": "[]"}).fetchone()[0]
        if retry_at is not None:
            raise Violation("nobody looks again when a retry is due")
        owned = self._reader.execute("SELECT id FROM lane WHERE owner IS NOT NULL").fetchall()
        if owned:
            raise Violation(f"nobody runs the sequences {[key for (key,) in owned]}, and they are not given back")
