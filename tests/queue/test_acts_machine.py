"""Any history of what arrives, runs and fails, with an operator's acts between: nothing is lost, nothing runs twice."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from contextlib import nullcontext, suppress
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.queue.build import Node
from tests.support.examples import examples
from tests.support.stored import empty_store
from wsrm_mq.errors import NotAllowed
from wsrm_mq.queue import dead_letters
from wsrm_mq.queue.operate import skip
from wsrm_mq.queue.ownership import Claim, give_back
from wsrm_mq.queue.policy import OnPoison, QueuePolicy
from wsrm_mq.queue.retention import Kept, batches
from wsrm_mq.sequence.elements import TerminateSequence
from wsrm_mq.store.invariants import all_findings

POLICIES = {
    partner: QueuePolicy(retry=(1_000,) * tries, on_poison=on_poison, ordered=ordered)
    for partner, (tries, on_poison, ordered) in {
        "blocks": (0, OnPoison.BLOCK, True),
        "waits": (2, OnPoison.BLOCK, True),
        "buries": (0, OnPoison.DEAD_LETTER, True),
        "unordered": (1, OnPoison.DEAD_LETTER, False),
    }.items()
}
ACTS = {
    dead_letters.redrive: "outcome = 'dead'",
    dead_letters.retry: "outcome IS NULL",
    dead_letters.discard: "outcome = 'dead' OR outcome IS NULL",
    dead_letters.restore: "outcome = 'discarded'",
    dead_letters.confirm: "outcome = 'dead'",
}
"""Each act, and what it may fit."""
PLACES = """
SELECT message, count(*) FROM entry WHERE reason IS NOT 'replayed' GROUP BY message HAVING count(*) <> 1
"""
"""Each message is in one place: waiting, delivered, dead or given up."""


class Acts(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._home = tempfile.TemporaryDirectory()
        path = Path(self._home.name) / "store.db"
        path.write_bytes(empty_store())
        self.node = Node(path)
        self.one = self.node.start()
        self.one.db.execute("PRAGMA synchronous = OFF")
        self.sequences = {
            self.one.create(policy, partner=name).terms.identifier: name for name, policy in POLICIES.items()
        }
        self.partners = {self.one.record(identifier).id: name for identifier, name in self.sequences.items()}
        self.claims: dict[int, Claim] = {}
        self.delivered: dict[int, list[int]] = defaultdict(list)

    def teardown(self) -> None:
        self.node.close()
        self._home.cleanup()

    def policy(self, key: int) -> QueuePolicy:
        (row,) = self.one.rows("SELECT partner FROM lane WHERE id = ?", key)
        return POLICIES[row["partner"]]

    @rule(which=st.integers(0, 3), number=st.integers(1, 5), run=st.integers(1, 4))
    def arrive(self, which: int, number: int, run: int) -> None:
        identifier, partner = list(self.sequences.items())[which]
        for following in range(number, number + run):
            receipt = self.one.take(identifier, following, policy=POLICIES[partner])
            if receipt.claim is not None:
                self.claims[receipt.claim.lane] = receipt.claim

    @rule()
    def poll(self) -> None:
        self.claims |= {claim.lane: claim for claim in self.one.runnable()}

    @rule(succeeds=st.booleans())
    def run(self, succeeds: bool) -> None:
        """The heads of all sequences that are run."""
        for held in list(self.claims.values()):
            self.run_head(held, succeeds)

    def run_head(self, held: Claim, succeeds: bool) -> None:
        numbers = self.one.to_run(held)
        if not numbers:
            del self.claims[held.lane]
            self.one.run(lambda tx: give_back(tx, held, stopping=True))
            return
        if succeeds:
            self.delivered[held.lane].append(numbers[0])
            released = self.one.settle(held, numbers[0], release=True).released
        else:
            released = self.one.fail(held, numbers[0], self.policy(held.lane)).released
        if released:
            del self.claims[held.lane]

    @rule(act=st.sampled_from(list(ACTS)), which=st.integers(0, 3))
    def operate(self, act: dead_letters.Act, which: int) -> None:
        positions = [row["id"] for row in self.one.rows(f"SELECT id FROM entry WHERE {ACTS[act]} ORDER BY id")]
        if positions:
            position = positions[which % len(positions)]
            with suppress(NotAllowed):
                self.one.run(lambda tx: act(tx, position, actor="alice", reason="so"))

    @rule()
    def skip_all(self) -> None:
        stopped = "SELECT s.identifier, e.number FROM lane s JOIN entry e ON e.id = s.blocked"
        for row in self.one.rows(stopped):
            self.one.run(lambda tx, row=row: skip(tx, row["identifier"], row["number"], actor="alice", reason="so"))

    @rule(which=st.integers(0, 3))
    def end(self, which: int) -> None:
        receipt = self.one.end(TerminateSequence(list(self.sequences)[which]))
        if receipt.claim is not None:
            self.claims[receipt.claim.lane] = receipt.claim

    @rule(hours=st.sampled_from([0, 2]))
    def time_passes(self, hours: int) -> None:
        """After two hours retention takes what it may."""
        self.node.clock.advance(1_000 + hours * 3_600_000)
        if hours:
            for batch in batches(
                lambda: nullcontext(self.one.db), lambda _: Kept(3_600_000, 3_600_000), self.node.clock()
            ):
                self.one.run(batch)

    @invariant()
    def nothing_is_lost_and_nothing_is_in_two_places(self) -> None:
        assert list(all_findings(self.one.db)) == []
        assert self.one.rows(PLACES) == []

    @invariant()
    def what_has_an_order_is_delivered_in_it_and_once(self) -> None:
        for key, numbers in self.delivered.items():
            assert len(set(numbers)) == len(numbers)
            rows = self.one.rows("SELECT ordered FROM lane WHERE id = ?", key)
            assert not rows or not rows[0]["ordered"] or numbers == sorted(numbers)


TestActs = Acts.TestCase
TestActs.settings = settings(
    max_examples=examples(60),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
