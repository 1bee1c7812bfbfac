"""Any history of the verbs, on one file and by two instances, against a model of a few dictionaries.

The model knows numbers only: what was received, what may be delivered, what became of it. After every step the file is
read afresh, as another process would read it, and held against the model and the invariants of the queues.
"""

from __future__ import annotations

import itertools
import sqlite3
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule

from tests.queue.build import Instance, Node
from tests.support.examples import examples
from tests.support.stored import empty_store
from wsrm_mq.errors import FenceLost
from wsrm_mq.queue.arrival import MessageReceipt
from wsrm_mq.queue.broken_run import take_over
from wsrm_mq.queue.ending import bury_tails
from wsrm_mq.queue.operate import close, force, hold, resume, skip, terminate
from wsrm_mq.queue.ownership import Claim, give_back
from wsrm_mq.queue.policy import OnPoison, QueuePolicy
from wsrm_mq.sequence.elements import CloseSequence, IncompleteSequenceBehavior, TerminateSequence
from wsrm_mq.sequence.inbound import Late
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.sequence.states import Act

NO_DISCARD, ENTIRE, FOLLOWING = IncompleteSequenceBehavior
STEP = 1_000
"""No power cut here, and thousands of commits."""
POLICIES = [
    QueuePolicy(retry=(STEP,) * tries, on_poison=on_poison, behavior=behavior, ordered=ordered)
    for tries, on_poison, behavior, ordered in [
        (1, OnPoison.BLOCK, NO_DISCARD, True),
        (0, OnPoison.DEAD_LETTER, NO_DISCARD, True),
        (1, OnPoison.TERMINATE, NO_DISCARD, True),
        (1, OnPoison.DEAD_LETTER, FOLLOWING, True),
        (0, OnPoison.TERMINATE, FOLLOWING, True),
        (1, OnPoison.BLOCK, ENTIRE, True),
        (1, OnPoison.DEAD_LETTER, NO_DISCARD, False),
        (1, OnPoison.BLOCK, NO_DISCARD, False),
        (2, OnPoison.TERMINATE, NO_DISCARD, False),
    ]
]
NUMBERS = st.integers(1, 8)


STORED = "SELECT lane.*, v.state, v.expected FROM lane JOIN sequences v ON v.key = lane.id WHERE lane.id = ?"


@dataclass
class Model:
    """One sequence as the specification has it."""

    identifier: str
    key: int
    policy: QueuePolicy
    received: set[int] = field(default_factory=set)
    positions: dict[int, int] = field(default_factory=dict)
    outcomes: dict[int, str] = field(default_factory=dict)
    delivered: list[int] = field(default_factory=list)
    given_up: set[int] = field(default_factory=set)
    failures: dict[int, int] = field(default_factory=dict)
    deliveries: dict[int, int] = field(default_factory=dict)
    deaths: dict[int, int] = field(default_factory=dict)
    retry_at: dict[int, int] = field(default_factory=dict)
    blocked: int | None = None
    state: str = "created"
    complete: bool = False
    on_hold: bool = False
    passed: set[int] = field(default_factory=set)
    """What an operator has forced the sequence past."""
    late: Late | None = None
    came_late: set[int] = field(default_factory=set)
    fence: int = 0

    @property
    def prefix(self) -> set[int]:
        return {n for n in self.received if set(range(1, n)) <= self.received | self.passed}

    @property
    def limit(self) -> int:
        """Of an open sequence in order: the first number that delivery waits for."""
        return next(n for n in itertools.count(1) if n not in self.received | self.passed)

    @property
    def has_gap(self) -> bool:
        """Something is held that may be delivered without what is missing."""
        is_open = self.state == "created" and self.policy.ordered and self.policy.behavior is NO_DISCARD
        return is_open and self.prefix != self.received

    @property
    def deliverable(self) -> list[int]:
        """What is unsettled and waits for no missing number."""
        behavior, over = self.policy.behavior, self.state != "created"
        if behavior is ENTIRE:
            open_to = self.received if over and self.complete else set()
        elif behavior is NO_DISCARD and (over or not self.policy.ordered):
            open_to = self.received
        else:
            open_to = self.prefix
        return sorted(open_to - self.given_up - set(self.outcomes))

    def runs_now(self, now: int) -> list[int]:
        """What a holder would be given: in order all from the head on, else what waits for no retry."""
        if self.policy.ordered:
            return self.deliverable
        return [n for n in self.deliverable if self.retry_at.get(n, 0) <= now]

    def can_be_taken(self, now: int) -> bool:
        if self.on_hold or self.blocked is not None or not self.deliverable:
            return False
        return not self.policy.ordered or all(self.retry_at.get(n, 0) <= now for n in self.deliverable)

    def end(self, state: str, last_number: int | None) -> None:
        if self.state == "created":
            highest = max(self.received, default=0)
            gap = max(self.received, default=0) != len(self.received)
            self.complete = not gap and last_number in (None, highest)
            if self.policy.behavior is FOLLOWING and gap:
                self.given_up |= self.received - self.prefix
            if self.policy.behavior is ENTIRE and not self.complete:
                self.given_up |= self.received
        self.state = state

    def settle(self, number: int, outcome: str) -> None:
        assert number not in self.outcomes, f"{number} was settled before"
        self.outcomes[number] = outcome
        self.retry_at.pop(number, None)
        if self.blocked == number:
            self.blocked = None

    def fail(self, number: int, now: int) -> None:
        self.failures[number] = self.failures.get(number, 0) + 1
        if self.failures[number] <= len(self.policy.retry):
            self.retry_at[number] = now + STEP
        elif self.policy.on_poison is OnPoison.BLOCK:
            self.blocked = number
        elif self.policy.on_poison is OnPoison.DEAD_LETTER:
            self.settle(number, "dead")
        else:
            self.state = "ended"
            self.given_up = self.received - set(self.outcomes)
            self.retry_at.pop(number, None)


class Verbs(RuleBasedStateMachine):
    sequences = Bundle("sequences")
    stale = Bundle("stale")

    def __init__(self) -> None:
        super().__init__()
        self._home = tempfile.TemporaryDirectory()
        path = Path(self._home.name) / "store.db"
        path.write_bytes(empty_store())
        self.node = Node(path)
        self.instances = [self.start(), self.start()]
        self.reader = sqlite3.connect(self.node.path, isolation_level=None)
        self.models: list[Model] = []
        self.claims: dict[int, tuple[Instance, Claim]] = {}
        self.highest_position = 0

    def start(self) -> Instance:
        instance = self.node.start()
        instance.db.execute("PRAGMA synchronous = OFF")
        return instance

    def teardown(self) -> None:
        self.reader.close()
        self.node.close()
        self._home.cleanup()

    def claimed(self, model: Model, instance: Instance, claim: Claim | None) -> None:
        if claim is None:
            return
        assert claim.lane == model.key
        assert model.key not in self.claims, "two owners (I5)"
        assert claim.fence > model.fence, "the fence only grows (I3)"
        model.fence = claim.fence
        self.claims[model.key] = instance, claim

    # rules

    @initialize(target=sequences, policy=st.sampled_from(POLICIES))
    def first(self, policy: QueuePolicy) -> Model:
        return self.create(policy)

    @precondition(lambda self: len(self.models) < 3)
    @rule(target=sequences, policy=st.sampled_from(POLICIES))
    def another(self, policy: QueuePolicy) -> Model:
        return self.create(policy)

    def create(self, policy: QueuePolicy) -> Model:
        one = self.instances[0]
        identifier = one.create(policy, partner=str(POLICIES.index(policy))).terms.identifier
        model = Model(identifier, one.record(identifier).id, policy)
        self.models.append(model)
        return model

    @rule(model=sequences, number=NUMBERS, who=st.integers(0, 1))
    def repeat(self, model: Model, number: int, who: int) -> None:
        """A duplicate, and its sender waits for the reply."""
        if number in model.received:
            self.arrives(model, number, self.instances[who], wants_reply=True)

    @rule(model=sequences, number=NUMBERS, who=st.integers(0, 1), run=st.integers(1, 3))
    def arrive(self, model: Model, number: int, who: int, run: int) -> None:
        for n in range(number, number + run):
            self.arrives(model, n, self.instances[who])

    def arrives(self, model: Model, number: int, instance: Instance, *, wants_reply: bool = False) -> None:
        takes = model.can_be_taken(self.node.clock()) or not model.policy.ordered
        receipt = instance.take(model.identifier, number, policy=model.policy, wants_reply=wants_reply)
        if number in model.received and model.state != "ended":
            assert receipt.act is Act.REPEAT
            [settled] = instance.rows(
                "SELECT outcome IS NOT NULL AS it FROM entry WHERE id = ?", model.positions[number]
            )
            assert receipt.settled == settled["it"]
            if receipt.position is None:  # its place is not asked for
                assert receipt.settled
                assert not wants_reply
            else:
                assert receipt.position == model.positions[number]
        elif model.state == "created":
            assert receipt.act is Act.ACCEPT
            assert receipt.position is not None
            assert receipt.position > self.highest_position, "positions grow (I1)"
            self.highest_position = receipt.position
            self.accepted(model, number, receipt)
            takes = model.can_be_taken(self.node.clock())
        else:
            assert receipt.fault is not None
            assert receipt.position is None
            assert receipt.claim is None
            return
        if receipt.claim is not None:
            assert takes
        elif model.key not in self.claims and receipt.act is Act.ACCEPT and number in model.deliverable:
            assert not takes, "a free sequence is taken by the commit that makes a message deliverable"
        self.claimed(model, instance, receipt.claim)

    def accepted(self, model: Model, number: int, receipt: MessageReceipt) -> None:
        assert receipt.position is not None
        model.received.add(number)
        model.positions[number] = receipt.position
        assert receipt.is_late == (number in model.passed)
        assert receipt.settled == (receipt.is_late and model.late is Late.REFUSE)
        if receipt.settled:
            model.outcomes[number] = "dead"
        elif receipt.is_late:
            model.came_late.add(number)

    @rule(who=st.integers(0, 1))
    def poll(self, who: int) -> None:
        instance, now = self.instances[who], self.node.clock()
        free = {m.key for m in self.models if m.key not in self.claims}
        wanted = {m.key for m in self.models if m.key in free and m.can_be_taken(now) and m.runs_now(now)}
        taken = instance.runnable()
        assert wanted <= {claim.lane for claim in taken} <= free
        for claim in taken:
            self.claimed(next(m for m in self.models if m.key == claim.lane), instance, claim)

    def held(self, model: Model, last: bool = False) -> tuple[Instance, Claim, int] | None:
        """Who holds the sequence, and the number to run next; without order it may be any, as the ``last``."""
        if model.key not in self.claims:
            return None
        instance, claim = self.claims[model.key]
        runs = instance.to_run(claim)
        assert runs == model.runs_now(self.node.clock()), "a holder runs what is deliverable, in order (I4, I5)"
        return (instance, claim, runs[-1 if last and not model.policy.ordered else 0]) if runs else None

    @rule(model=sequences, times=st.integers(1, 4), last=st.booleans())
    def settle(self, model: Model, times: int, last: bool) -> None:
        for _ in range(times):
            held = self.held(model, last)
            if held is None:
                return
            instance, claim, number = held
            settled = instance.settle(claim, number, release=True)
            model.deliveries[number] = model.deliveries.get(number, 0) + 1
            model.delivered.append(number)
            model.settle(number, "delivered")
            if settled.released:
                assert model.on_hold or not model.runs_now(self.node.clock())
                del self.claims[model.key]
                return

    @rule(target=stale, model=sequences, times=st.integers(1, 3), last=st.booleans())
    def fail(self, model: Model, times: int, last: bool) -> Any:
        """Answers the claim that is lost by it, if one is."""
        for _ in range(times):
            held = self.held(model, last)
            if held is None:
                return None
            instance, claim, number = held
            failed = instance.fail(claim, number, model.policy)
            model.deliveries[number] = model.deliveries.get(number, 0) + 1
            model.deaths[number] = 0
            model.fail(number, self.node.clock())
            if failed.released:
                del self.claims[model.key]
                return instance, claim, number, model
        return None

    @rule(target=stale, model=sequences, stopping=st.booleans())
    def gives_back(self, model: Model, stopping: bool) -> Any:
        if model.key not in self.claims:
            return None
        instance, claim = self.claims[model.key]
        runs = model.runs_now(self.node.clock())
        given = instance.run(lambda tx: give_back(tx, claim, stopping=stopping))
        assert given == (stopping or model.on_hold or not runs), "given back only where nothing is deliverable"
        if not given:
            return None
        del self.claims[model.key]
        return instance, claim, max(model.received), model

    @rule(target=stale, who=st.integers(0, 1))
    def crash(self, who: int) -> Any:
        """A process dies, another one sees it, a new one starts in its place."""
        dead, survivor = self.instances[who], self.instances[1 - who]
        dead.close()
        lost = [(m, self.claims[m.key][1]) for m in self.models if self.claims.get(m.key, (None,))[0] is dead]
        for model, _ in lost:
            del self.claims[model.key]
            if model.deliverable and model.blocked is None:
                head = model.deliverable[0]
                model.deliveries[head] = model.deliveries.get(head, 0) + 1
                model.deaths[head] = model.deaths.get(head, 0) + 1
                if model.deaths[head] >= 3:
                    model.fail(head, self.node.clock())
        survivor.run(lambda tx: take_over(tx, dead.key, lambda partner: POLICIES[int(partner or 0)]))
        self.instances[who] = self.start()
        if not lost:
            return None
        model, claim = lost[0]
        return self.instances[who], claim, min(model.received), model

    @precondition(lambda self: any(len(model.received) > 2 for model in self.models))
    @rule(model=sequences, terminate=st.booleans(), beyond=st.sampled_from([None, 0, 2, -1]), who=st.integers(0, 1))
    def end(self, model: Model, terminate: bool, beyond: int | None, who: int) -> None:
        instance = self.instances[who]
        if beyond == -1 and model.state == "created":
            return self.is_closed_by_an_operator(model, instance)
        last_number = None
        if beyond is not None and model.received and model.state == "created":
            last_number = max(model.received) + beyond
        element = TerminateSequence if terminate else CloseSequence
        receipt = instance.end(element(model.identifier, last_number))
        if receipt.fault is None and receipt.act in (Act.CLOSE, Act.TERMINATE):
            model.end("ended" if terminate else "closed", last_number)
        else:
            assert receipt.act is Act.CONFIRM or model.state == "ended"
        self.claimed(model, instance, receipt.claim)

    def is_closed_by_an_operator(self, model: Model, instance: Instance) -> None:
        left = instance.run(lambda tx: close(tx, model.identifier, actor="alice", reason=""))
        model.end("closed", None)
        assert left.gives_up == len(model.given_up - set(model.outcomes))
        assert left.delivers == len(model.received - set(model.outcomes)) - left.gives_up

    @rule(count=st.integers(1, 3))
    def bury(self, count: int) -> None:
        one = self.instances[0]
        more = one.run(lambda tx: bury_tails(tx, count))
        buried = left = 0
        for model in self.models:
            doomed = sorted(model.given_up - set(model.outcomes)) if self.gives_tail(model) else []
            outcomes = one.outcomes(model.key)
            dead = [number for number in doomed if outcomes[number] == "dead"]
            assert dead == doomed[: len(dead)], "the lowest first"
            for number in dead:
                model.settle(number, "dead")
            buried += len(dead)
            left += len(doomed) - len(dead)
        assert buried <= count
        assert more or not left

    def gives_tail(self, model: Model) -> bool:
        """Whether nothing keeps what is given up: neither an operator, nor an owner that may be running some of it."""
        row = self.row(STORED, model.key)
        may_run = row["owner"] is not None and (row["discard_from"] or row["limit"]) <= row["cursor"] < row["limit"]
        return not (model.on_hold or may_run)

    @rule(model=sequences, skips=st.booleans())
    def operate(self, model: Model, skips: bool) -> None:
        number = model.blocked
        if number is None or model.key in self.claims or (model.on_hold and not skips):
            return
        one = self.instances[0]
        if skips:
            one.run(lambda tx: skip(tx, model.identifier, number, actor="alice", reason="spoiled"))
            model.settle(number, "dead")
        else:
            assert one.run(lambda tx: resume(tx, model.identifier, actor="alice", reason="")) == number
            model.blocked = None
            model.failures[number] = model.deaths[number] = 0
            model.retry_at.pop(number, None)

    @rule(model=sequences)
    def holds(self, model: Model) -> None:
        one = self.instances[0]
        if not model.on_hold:
            if one.record(model.identifier).is_over:
                return
            runs = one.run(lambda tx: hold(tx, model.identifier, actor="alice", reason=""))
            assert (runs is not None) == (model.key in self.claims and bool(model.deliverable))
            model.on_hold = True
            return
        number = one.run(lambda tx: resume(tx, model.identifier, actor="alice", reason=""))
        assert number == (model.blocked or next(iter(model.deliverable), None))
        model.on_hold = False
        if model.key not in self.claims and number is not None:
            model.blocked = None
            model.failures[number] = model.deaths[number] = 0
            model.retry_at.pop(number, None)
            if model.policy.ordered:
                model.retry_at.clear()

    @precondition(lambda self: any(model.has_gap for model in self.models))
    @rule(late=st.sampled_from(Late), far=st.booleans())
    def forces(self, late: Late, far: bool) -> None:
        """Past the next gap, or past all of them."""
        model = next(model for model in self.models if model.has_gap)
        beyond = model.received - model.prefix
        to = max(beyond) if far else None
        before = model.limit
        forced = self.instances[0].run(
            lambda tx: force(
                tx, model.identifier, past=None if far else before, to=to, late=late, actor="alice", reason=""
            )
        )
        model.passed |= set(range(before, forced.to + 1)) - model.received
        model.late = late
        assert AckRanges.of(model.passed & set(range(before, forced.to + 1))) == forced.missing
        assert forced.to + 1 == model.limit
        assert forced.released == len(beyond & model.prefix)

    @precondition(lambda self: any(len(model.received) > 5 for model in self.models))
    @rule(ends=st.booleans())
    def terminates(self, ends: bool) -> None:
        """At once; what a process ran then ends, or it never will."""
        model = next(model for model in self.models if len(model.received) > 5)
        unsettled = model.received - set(model.outcomes)
        if model.state == "ended" and not unsettled:
            return
        held = self.held(model)
        left = self.instances[0].run(lambda tx: terminate(tx, model.identifier, drain=False, actor="alice", reason=""))
        assert (left.delivers, left.gives_up) == (0, len(unsettled))
        model.state, model.on_hold, model.blocked = "ended", False, None
        model.given_up |= unsettled
        model.retry_at.clear()
        if held is not None and ends:
            instance, claim, number = held
            assert not instance.settle(claim, number, release=True).goes_on
            del self.claims[model.key]
            model.deliveries[number] = model.deliveries.get(number, 0) + 1
            model.delivered.append(number)
            model.given_up.remove(number)
            model.settle(number, "delivered")

    @rule(claim=consumes(stale))
    def an_old_claim_settles_nothing(self, claim: Any) -> None:
        if claim is None:
            return
        instance, old, number, _model = claim
        if instance not in self.instances:
            return
        for late in (lambda: instance.settle(old, number), lambda: instance.fail(old, number, POLICIES[0])):
            try:
                late()
            except FenceLost:
                continue
            raise AssertionError("an old fence settled a message (I3)")

    @rule(milliseconds=st.sampled_from([1, STEP]))
    def time_passes(self, milliseconds: int) -> None:
        self.node.clock.advance(milliseconds)

    # what always holds

    @invariant()
    def the_file_is_what_the_model_says(self) -> None:
        for model in self.models:
            row = self.row(STORED, model.key)
            entries = {e["number"]: e for e in self.rows("SELECT * FROM entry WHERE lane = ?", model.key)}
            self.check_ranges(model, row)
            self.check_entries(model, entries)
            self.check_order(model, row, entries)
            self.check_dead(model, entries)

    def check_ranges(self, model: Model, row: dict[str, Any]) -> None:
        stored = self.rows("SELECT lower, upper FROM range WHERE lane = ? ORDER BY lower", model.key)
        ranges = AckRanges(tuple((r["lower"], r["upper"]) for r in stored))
        assert ranges == AckRanges.of(model.received), "I7: what is acknowledged is stored"
        assert row["expected"] == ranges.expected
        assert row["state"] == model.state

    def check_entries(self, model: Model, entries: dict[int, dict[str, Any]]) -> None:
        assert set(entries) == model.received, "I11: an accepted message has one entry"
        for number, entry in entries.items():
            assert entry["id"] == model.positions[number], "I1"
            assert entry["outcome"] == model.outcomes.get(number), "I2, I6"
            assert (entry["outcome"] is None) == (entry["settled_at"] is None)
            assert entry["deliveries"] == model.deliveries.get(number, 0), "I12"
            assert entry["failures"] == model.failures.get(number, 0), "I12"

    def check_order(self, model: Model, row: dict[str, Any], entries: dict[int, dict[str, Any]]) -> None:
        cursor, limit = row["cursor"], row["limit"]
        upper = limit if row["discard_from"] is None else min(limit, row["discard_from"])
        live = {n for n in entries if entries[n]["outcome"] is None}
        assert cursor <= limit, "I4"
        assert not [n for n in live if n < min(cursor, upper)], "I4: the cursor passes nothing unsettled"
        assert sorted(n for n in live if n < upper) == model.deliverable, "I4: deliverable is what lies below"
        if model.state == "created" and model.policy.ordered and model.policy.behavior is not ENTIRE:
            assert limit == model.limit, "I4"
            assert model.passed or limit == row["expected"], "I4"
        owner = self.claims.get(model.key)
        assert row["owner"] == (owner[0].key if owner else None), "I5"
        assert row["fence"] >= model.fence, "I3"
        if model.policy.ordered:
            in_order = [n for n in model.delivered if n not in model.came_late]
            assert in_order == sorted(in_order), "in order"
            assert len(set(model.delivered)) == len(model.delivered), "each once (I6)"
        blocked = None if row["blocked"] is None else row["blocked"]
        assert blocked == (None if model.blocked is None else model.positions[model.blocked])

    def check_dead(self, model: Model, entries: dict[int, dict[str, Any]]) -> None:
        rows = self.rows("SELECT position FROM ledger WHERE sequence = ? AND event = 'dead'", model.key)
        told = sorted(r["position"] for r in rows)
        dead = [e for e in entries.values() if e["outcome"] == "dead"]
        assert told == sorted(e["id"] for e in dead), "I8, I11: a move and its ledger row"
        for entry in dead:
            home = self.row("SELECT kind, parent FROM queue WHERE id = ?", entry["queue"])
            assert home == {"kind": "dead_letter", "parent": entry["origin"]}
            assert entry["reason"]

    def rows(self, statement: str, *parameters: object) -> list[dict[str, Any]]:
        cursor = self.reader.execute(statement, parameters)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def row(self, statement: str, *parameters: object) -> dict[str, Any]:
        (row,) = self.rows(statement, *parameters)
        return row


def test_the_policies_of_the_machine_cover_every_behavior_and_poison() -> None:
    pairs = {(p.behavior, p.on_poison) for p in POLICIES}
    assert {b for b, _ in pairs} == set(IncompleteSequenceBehavior)
    assert {p for _, p in pairs} == set(OnPoison)
    assert {p.ordered for p in POLICIES} == {True, False}


TestVerbs = pytest.mark.invariant("I1", "I2", "I3", "I4", "I5")(Verbs.TestCase)
TestVerbs.settings = settings(
    max_examples=examples(60),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
