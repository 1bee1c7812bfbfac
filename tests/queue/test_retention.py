"""What retention takes, what it leaves, and that no source can tell the difference."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.queue.build import Instance, Node, sender
from tests.support.examples import examples
from tests.support.stored import empty_store
from wsrm_mq.queue.arrival import MessageReceipt
from wsrm_mq.queue.creation import create
from wsrm_mq.queue.operate import skip
from wsrm_mq.queue.ownership import Claim, claim
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.queue.retention import BATCH, GRACE, Batch, Kept, Pruned, batches
from wsrm_mq.queue.settle import ServiceReply, settlement
from wsrm_mq.sequence.elements import CloseSequence, CreateSequence, Offer, TerminateSequence
from wsrm_mq.sequence.faults import UnknownSequence
from wsrm_mq.sequence.states import ENDED, Act
from wsrm_mq.store import pruning
from wsrm_mq.store.invariants import all_findings
from wsrm_mq.store.late_index import BY_LANE

HOUR = 3_600_000
KEPT = Kept(settled=HOUR, ended=10 * HOUR)
REPLY = ServiceReply("200 OK", (("Content-Type", "text/xml"),), b"<r/>")


def due(one: Instance, kept: Kept = KEPT, **why: Any) -> Iterator[Batch]:
    @contextmanager
    def reader() -> Iterator[Any]:
        yield one.db

    return batches(reader, lambda _partner: kept, one.clock(), **why)


def prune(one: Instance, kept: Kept = KEPT, **why: Any) -> Pruned:
    pruned = Pruned()
    for batch in due(one, kept, **why):
        pruned = pruned.plus(one.run(batch))
    assert list(all_findings(one.db)) == []
    return pruned


def delivered(one: Instance, *numbers: int, reply: ServiceReply | None = None, **changes: Any) -> str:
    """A sequence whose ``numbers``, in their order, were delivered."""
    identifier = one.create().terms.identifier
    for number in numbers:
        one.take(identifier, number, wants_reply=reply is not None, named=reply is None, **changes)
    for number in sorted(numbers):
        held = claim_of(one, identifier)
        one.settle(held, number, reply=reply, release=True)
    return identifier


def claim_of(one: Instance, identifier: str) -> Claim:
    record = one.record(identifier)
    if record.owner is None:
        taken = one.run(lambda tx: claim(tx, record.id))
        assert taken is not None
        return taken
    return Claim(record.id, record.fence)


def deliver_next(both: tuple[Instance, Instance], identifier: str) -> None:
    """The next message of a sequence, where one of them runs it."""
    owner = both[0].record(identifier).owner
    its = next((each for each in both if each.key == owner), None)
    if its is not None and (runs := its.to_run(held := claim_of(its, identifier), 1)):
        its.settle(held, runs[0])


def count(one: Instance, table: str) -> int:
    return int(one.rows(f"SELECT count(*) AS n FROM {table}")[0]["n"])


# what goes


def test_a_message_goes_when_it_was_settled_long_enough_ago_and_not_before(one: Instance) -> None:
    identifier = delivered(one, 1, 2)
    one.clock.advance(HOUR - 1)
    assert prune(one) == Pruned()
    one.clock.advance(1)
    assert prune(one) == Pruned(messages=2, size=2 * len(b"<Envelope/>"))
    assert (count(one, "entry"), count(one, "message")) == (0, 0)
    assert one.record(identifier).value.received.ranges == ((1, 2),)
    assert one.rows("SELECT pruned FROM lane") == [{"pruned": 2}]


def test_a_batch_leaves_one_row_in_the_ledger_and_none_where_nothing_went(one: Instance) -> None:
    delivered(one, *range(1, BATCH + 2))
    one.clock.advance(HOUR)
    found = list(due(one, actor="alice", reason="disk"))
    assert [batch.expected.messages for batch in found] == [BATCH, 1]
    for batch in found * 2:
        one.run(batch)
    rows = one.ledger("pruned")
    assert [(row["actor"], row["sequence"]) for row in rows] == [("alice", None)] * 2
    assert rows[0]["reason"] == f"{BATCH} messages between positions 1 and {BATCH}, {BATCH * 11} bytes: disk"


def test_a_batch_is_small_where_bodies_are_large(one: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wsrm_mq.queue.retention.BATCH_BYTES", 25)
    delivered(one, 1, 2, 3, 4, 5)
    one.clock.advance(HOUR)
    sizes = []
    for batch in due(one):
        sizes.append(one.run(batch).messages)
    assert sizes == [2, 2, 1]


def test_what_was_settled_in_this_minute_stays_whatever_is_configured(one: Instance) -> None:
    """A request that waits reads the outcome after it is settled."""
    delivered(one, 1)
    one.clock.advance(59_999)
    assert prune(one, Kept(0, 0)) == Pruned()
    one.clock.advance(1)
    assert prune(one, Kept(0, 0)).messages == 1


def test_each_partner_has_his_own_time(one: Instance) -> None:
    for partner in ("short", "long", "ever"):
        identifier = one.create(partner=partner).terms.identifier
        one.take(identifier, 1)
        one.settle(claim_of(one, identifier), 1, release=True)
    terms = {"short": Kept(HOUR, HOUR), "long": Kept(5 * HOUR, HOUR), "ever": Kept(None, None)}
    partners = {1: "short", 2: "long", 3: "ever"}

    def left() -> set[str]:
        @contextmanager
        def reader() -> Iterator[Any]:
            yield one.db

        for batch in batches(reader, lambda partner: terms.get(partner or "", KEPT), one.clock()):
            one.run(batch)
        return {partners[row["lane"]] for row in one.rows("SELECT lane FROM entry")}

    one.clock.advance(HOUR)
    assert left() == {"long", "ever"}
    one.clock.advance(99 * HOUR)
    assert left() == {"ever"}


# what stays


def test_what_is_undelivered_held_or_blocked_stays(one: Instance) -> None:
    waiting = one.create().terms.identifier
    for number in (1, 3):
        one.take(waiting, number)
    stuck = one.create().terms.identifier
    one.take(stuck, 1)
    one.fail(claim_of(one, stuck), 1, QueuePolicy(retry=()))
    one.clock.advance(1000 * HOUR)
    assert prune(one) == Pruned()
    assert count(one, "message") == 3


def test_dead_letters_stay_and_with_them_their_sequence(one: Instance) -> None:
    identifier = one.create().terms.identifier
    one.take(identifier, 1)
    one.fail(claim_of(one, identifier), 1, QueuePolicy(retry=()))
    one.run(lambda tx: skip(tx, identifier, 1, actor="alice", reason="spoiled"))
    one.end(TerminateSequence(identifier))
    one.create()
    one.clock.advance(1000 * HOUR)
    assert prune(one) == Pruned()
    assert one.record(identifier).value.state in ENDED
    assert one.rows("SELECT body FROM message") == [{"body": b"<Envelope/>"}]


@pytest.mark.parametrize("close", [False, True])
def test_a_reply_stays_while_its_request_may_come_again_only_the_request_goes(one: Instance, close: bool) -> None:
    identifier = delivered(one, 1, reply=REPLY)
    if close:
        one.end(CloseSequence(identifier))
    one.clock.advance(HOUR)
    assert prune(one) == Pruned(bodies=1, size=len(b"<Envelope/>"))
    assert prune(one) == Pruned()
    again = one.take(identifier, 1, wants_reply=True)
    assert again.position is not None
    found = settlement(one.db, again.position)
    assert found is not None
    assert found.reply == REPLY
    one.end(TerminateSequence(identifier))
    assert prune(one) == Pruned(messages=1)
    assert count(one, "reply") == 0


def test_a_message_that_another_entry_needs_stays(one: Instance) -> None:
    delivered(one, 1)
    one.db.execute("INSERT INTO entry (queue, message) SELECT queue, message FROM entry")
    one.clock.advance(HOUR)
    assert prune(one) == Pruned(messages=1)
    assert one.rows("SELECT body FROM message") == [{"body": b"<Envelope/>"}]


def test_what_is_received_later_is_not_even_looked_at(one: Instance) -> None:
    delivered(one, *range(1, 40))
    one.clock.advance(HOUR)
    later = delivered(one, *range(1, 40))
    assert prune(one).messages == 39
    assert one.rows("SELECT count(*) AS n FROM entry") == [{"n": 39}]
    assert one.record(later).value.received.ranges == ((1, 39),)


def test_what_is_due_is_found_without_reading_everything(one: Instance) -> None:
    def plan(statement: str, **bounds: int) -> list[str]:
        return [row[3] for row in one.db.execute(f"EXPLAIN QUERY PLAN {statement}", bounds)]

    due = plan(pruning.DUE, after=0, horizon=9, latest=9, count=9)
    assert due[0] == "SEARCH e USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"
    over = plan(pruning.OVER, at=0, key=0, latest=9, settled=9, count=9)
    assert over[0].startswith("SEARCH l USING INDEX lane_ended (")
    assert "SEARCH i USING PRIMARY KEY (lane=?)" in over
    scanned = [step for step in due + over if step.startswith("SCAN") and step != "SCAN a"]  # archives: a row each
    assert not scanned, due + over


# what is forgotten


@pytest.mark.parametrize("is_indexed", [False, True])
def test_a_sequence_is_not_forgotten_while_its_partner_keeps_its_messages(one: Instance, is_indexed: bool) -> None:
    """Who looks for sequences knows the shortest time that any partner keeps messages: the last look is at the end."""
    identifier = one.create(partner="keeps").terms.identifier
    one.take(identifier, 1)
    one.settle(claim_of(one, identifier), 1, release=True)
    one.end(TerminateSequence(identifier))
    one.create()  # the newest sequence stays in any case
    if is_indexed:
        one.run(BY_LANE.bring_forward)
    one.clock.advance(50 * HOUR)

    @contextmanager
    def reader() -> Iterator[Any]:
        yield one.db

    def kept(partner: str | None) -> Kept:
        return Kept(settled=None if partner == "keeps" else HOUR, ended=HOUR)

    found = list(batches(reader, kept, one.clock()))
    assert [batch.sequences for batch in found] == [(1,)]
    assert [one.run(batch) for batch in found] == [Pruned()]
    assert one.record(identifier).id == 1
    assert list(all_findings(one.db)) == []


@pytest.mark.spec("D-TRM-005", versions=("1.1",))
def test_an_ended_sequence_is_remembered_for_its_time_then_it_is_unknown(one: Instance) -> None:
    identifier = delivered(one, 1, 2)
    one.end(TerminateSequence(identifier))
    one.create()
    one.clock.advance(10 * HOUR - 1)
    assert prune(one).messages == 2
    confirmed = one.end(TerminateSequence(identifier))
    assert confirmed.act is Act.CONFIRM
    assert confirmed.acknowledgement is not None
    assert confirmed.acknowledgement.ranges == ((1, 2),)
    one.clock.advance(1)
    assert prune(one) == Pruned(sequences=1)
    assert isinstance(one.end(TerminateSequence(identifier)).fault, UnknownSequence)
    assert isinstance(one.take(identifier, 1).fault, UnknownSequence)
    assert count(one, "range") == 0


def test_a_sequence_is_not_forgotten_before_its_messages_are(one: Instance) -> None:
    identifier = delivered(one, 1)
    one.end(TerminateSequence(identifier))
    one.create()
    one.clock.advance(HOUR)
    assert prune(one, Kept(2 * HOUR, 0)) == Pruned()
    one.clock.advance(HOUR)
    assert prune(one, Kept(2 * HOUR, 0)) == Pruned(messages=1, size=11, sequences=1)


def test_the_key_of_a_forgotten_sequence_is_not_used_again(one: Instance) -> None:
    first = delivered(one, 1)
    one.end(TerminateSequence(first))
    one.clock.advance(100 * HOUR)
    prune(one)
    key = one.record(first).id
    assert one.record(one.create().terms.identifier).id > key
    assert prune(one).sequences == 1


def test_a_process_that_knows_a_sequence_learns_that_another_one_forgot_it(node: Node) -> None:
    one, other = node.start(), node.start()
    identifier = delivered(one, 1)
    one.end(TerminateSequence(identifier))
    one.create()
    one.clock.advance(100 * HOUR)
    prune(other)
    assert isinstance(one.end(TerminateSequence(identifier)).fault, UnknownSequence)


def test_what_two_find_at_once_goes_once(node: Node) -> None:
    one, other = node.start(), node.start()
    delivered(one, 1, 2, 3)
    one.clock.advance(HOUR)
    (first,), (second,) = list(due(one)), list(due(other))
    assert one.run(first).messages == 3
    assert other.run(second) == Pruned()
    assert one.rows("SELECT pruned FROM lane") == [{"pruned": 3}]


def test_a_thousand_dead_letters_do_not_hide_what_is_behind_them(one: Instance) -> None:
    identifier = one.create().terms.identifier
    with one.transaction() as tx:
        from tests.queue.build import arrival
        from wsrm_mq.queue.accept import accept

        for number in range(2, 1002):
            accept(tx, arrival(identifier, number))
    delivered(one, 1, 2)
    one.clock.advance(HOUR)
    assert prune(one).messages == 2


# no source can tell


class Twins:
    """The same conversation with two stores, of which one is pruned."""

    def __init__(self, home: str) -> None:
        self.nodes = []
        for name in ("kept", "pruned"):
            path = Path(home) / name
            path.write_bytes(empty_store())
            self.nodes.append(Node(path))
        self.kept, self.pruned = (node.start() for node in self.nodes)
        for one in (self.kept, self.pruned):
            one.db.execute("PRAGMA synchronous = OFF")
        self.identifiers = [one.create().terms.identifier for one in (self.kept, self.pruned)]

    def close(self) -> None:
        for node in self.nodes:
            node.close()

    def both(self, ask: Any) -> tuple[Any, Any]:
        kept, pruned = (ask(one, name) for one, name in zip((self.kept, self.pruned), self.identifiers, strict=True))
        return kept, pruned

    def advance(self, ms: int) -> None:
        for node in self.nodes:
            node.clock.advance(ms)


def answered(one: Instance, receipt: Any, wants_reply: bool) -> tuple[object, ...]:
    """All that a sender can see of it."""
    said = receipt.acknowledgement
    reply = None
    is_settled = isinstance(receipt, MessageReceipt) and receipt.settled
    if wants_reply and is_settled and receipt.position is not None:
        found = settlement(one.db, receipt.position)
        reply = found.reply if found is not None else "nothing"
    return (
        receipt.act,
        type(receipt.fault),
        said and (said.ranges, said.final),
        receipt.outcome,
        is_settled,
        receipt.claim is not None,
        reply,
    )


def settle_head(one: Instance, identifier: str) -> object:
    record = one.record(identifier)
    if record.owner is None or not (runs := one.to_run(Claim(record.id, record.fence))):
        return None
    entry = one.entry(record.id, runs[0])
    one.settle(Claim(record.id, record.fence), runs[0], reply=REPLY if entry["wants_reply"] else None, release=True)
    return runs[0]


ACTS = st.one_of(
    st.tuples(st.just("send"), st.integers(1, 6), st.booleans()),
    st.tuples(st.just("settle"), st.integers(1, 4), st.none()),
    st.tuples(st.just("wait"), st.sampled_from([GRACE, HOUR]), st.none()),
    st.tuples(st.just("prune"), st.none(), st.none()),
    st.tuples(st.sampled_from(["close", "terminate"]), st.none(), st.none()),
)


@pytest.mark.spec("D-DUR-004", "D-TRM-005", versions="all")
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(acts=st.lists(ACTS, min_size=5, max_size=40))
def test_pruning_changes_no_answer_of_any_sequence_until_it_is_forgotten(acts: list[tuple[str, Any, Any]]) -> None:
    with tempfile.TemporaryDirectory() as home:
        twins = Twins(home)
        try:
            for act, number, two_way in acts:
                converse(twins, act, number, two_way)
            converse(twins, "settle", 6, None)
            converse(twins, "wait", HOUR, None)
            converse(twins, "prune", None, None)
            for number in range(1, 7):
                for two_way in (False, True):
                    converse(twins, "send", number, two_way)
            converse(twins, "terminate", None, None)
        finally:
            twins.close()


def converse(twins: Twins, act: str, number: Any, two_way: Any) -> None:
    if act == "prune":
        prune(twins.pruned, Kept(HOUR, None))
    elif act == "wait":
        twins.advance(number)
    elif act == "settle":
        for _ in range(number):
            kept, pruned = twins.both(settle_head)
            assert kept == pruned
    elif act == "send":
        kept, pruned = twins.both(
            lambda one, name: answered(
                one, one.take(name, number, wants_reply=two_way, named=not two_way, waits=two_way), two_way
            )
        )
        assert kept == pruned
    else:
        element = CloseSequence if act == "close" else TerminateSequence
        kept, pruned = twins.both(lambda one, name: answered(one, one.end(element(name)), False))
        assert kept == pruned


def test_the_ledger_ends_with_what_it_is_about_and_the_rest_after_its_time(one: Instance) -> None:
    policy = QueuePolicy(retry=(1_000,))
    identifier = one.create(policy).terms.identifier
    one.take(identifier, 1)
    held = claim_of(one, identifier)
    one.fail(held, 1, policy)
    one.clock.advance(2_000)
    one.settle(claim_of(one, identifier), 1, release=True)
    one.run(lambda tx: tx.ledger("begun_anew"))
    assert [row["event"] for row in one.ledger()] == ["created", "failed", "begun_anew"]
    one.clock.advance(HOUR)
    prune(one)
    assert [row["event"] for row in one.ledger()] == ["created", "begun_anew", "pruned"]
    one.end(TerminateSequence(identifier))
    one.create()
    one.clock.advance(10 * HOUR)
    prune(one)
    assert [row["event"] for row in one.ledger()] == ["begun_anew", "pruned", "created", "pruned"]
    one.clock.advance(HOUR)
    assert prune(one, KEPT._replace(ledger=2 * HOUR)).ledger == 2
    assert [row["event"] for row in one.ledger()] == ["created", "pruned"]
    assert prune(one, KEPT._replace(ledger=0)).ledger == 1
    assert [row["event"] for row in one.ledger()] == ["created"], "of a sequence that is there"


def test_a_reply_in_an_offered_sequence_is_kept_while_it_may_be_asked_for_and_goes_with_its_request(
    one: Instance,
) -> None:
    request = CreateSequence(None, offer=Offer("urn:offered"))
    made = one.run(lambda tx: create(tx, sender(), request, None, QueuePolicy())).created
    assert made is not None
    identifier = made.terms.identifier
    one.take(identifier, 1, wants_reply=True, named=False)
    one.settle(claim_of(one, identifier), 1, reply=REPLY._replace(place=(0, "utf-8")), release=True)
    one.create()  # the newest sequence stays
    one.clock.advance(100 * HOUR)
    prune(one)
    assert one.rows("SELECT number FROM reply") == [{"number": 1}]
    one.end(TerminateSequence(identifier))
    assert one.rows("SELECT state, unacknowledged FROM outbound_sequence") == [{"state": "closed", "unacknowledged": 1}]
    one.clock.advance(100 * HOUR)
    assert prune(one).sequences == 1
    assert one.rows("SELECT * FROM reply") == one.rows("SELECT * FROM outbound_sequence") == []
