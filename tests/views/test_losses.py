"""What is missing or lost is told, whatever else is said: over all that can become of a message and of its sequence."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.cli.conftest import HOUR, Service
from wsrm_mq.queue import dead_letters, operate
from wsrm_mq.queue.adopt import adopt
from wsrm_mq.queue.broken_run import let_go
from wsrm_mq.queue.ending import bury_tails, expire_due
from wsrm_mq.queue.ownership import Claim
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.queue.replaying import add_replay, replays_of
from wsrm_mq.queue.withdrawing import stored
from wsrm_mq.sequence.elements import CloseSequence, IncompleteSequenceBehavior, TerminateSequence
from wsrm_mq.sequence.terms import DeliveryAssurance
from wsrm_mq.store.port import Database
from wsrm_mq.store.sqlite import schema
from wsrm_mq.store.sqlite.connection import connect_reader
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.views.overview import verdicts
from wsrm_mq.views.partner_report import partner_report
from wsrm_mq.views.query import parse
from wsrm_mq.views.reading import judged, sequence
from wsrm_mq.views.sentences import explanation
from wsrm_mq.views.verdict import Verdict, judge

BEGAN: Final = time.time_ns() // 1_000_000 - HOUR
"""A view knows the time that it is."""
BRIEF: Final = QueuePolicy(max_expires=1_000)
ACT: Final = {"actor": "ann", "reason": "seen"}
POISON: Final = QueuePolicy(retry=(), on_poison="dead_letter")


class One(NamedTuple):
    """Numbers 1 and 4 are delivered, but where that says something else; 2 came or did not; 3 has a fate."""

    service: Service
    identifier: str

    def run(self, verb: Callable[[Transaction], object]) -> None:
        self.service.instance.run(verb)

    def position(self, number: int) -> int:
        key = self.service.instance.record(self.identifier).id
        return int(self.service.instance.entry(key, number)["id"])

    def claim(self, identifier: str | None = None) -> Claim:
        """Of its sequence, or of another; a process may have that already."""
        record = self.service.instance.record(identifier or self.identifier)
        return self.service.instance.claim(record.id) or Claim(record.id, record.fence)

    @property
    def replays(self) -> Claim:
        key = self.service.instance.record(self.identifier).id
        (row,) = self.service.instance.rows("SELECT identifier FROM lane WHERE replay_of = ?", key)
        return self.claim(row["identifier"])

    def act(self, verb: dead_letters.Act) -> None:
        position = self.position(3)
        self.run(lambda tx: verb(tx, position, **ACT))

    def deliver(self, *numbers: int) -> None:
        for number in numbers:
            self.service.instance.settle(self.claim(), number, release=True)

    def fail(self, policy: QueuePolicy) -> None:
        self.service.instance.fail(self.claim(), 3, policy)


def delivered(one: One) -> None:
    one.deliver(3)


def stays(_one: One) -> None:
    pass


def runs(one: One) -> None:
    one.claim()


def dead(one: One) -> None:
    one.fail(POISON)


def blocks(one: One) -> None:
    one.fail(QueuePolicy(retry=()))


def is_tried_again(one: One) -> None:
    one.fail(QueuePolicy(retry=(10**9,)))


def skipped(one: One) -> None:
    blocks(one)
    one.run(lambda tx: operate.skip(tx, one.identifier, 3, **ACT))


def confirmed(one: One) -> None:
    skipped(one)
    one.act(dead_letters.confirm)


def discarded(one: One) -> None:
    blocks(one)
    one.act(dead_letters.discard)


def letter_discarded(one: One) -> None:
    skipped(one)
    one.act(dead_letters.discard)


def redriven(one: One) -> None:
    skipped(one)
    one.act(dead_letters.redrive)


def delivered_after_all(one: One) -> None:
    redriven(one)
    one.service.instance.settle(one.replays, 1, release=True)


def dead_again(one: One) -> None:
    redriven(one)
    one.service.instance.fail(one.replays, 1, POISON)


def faulted(one: One) -> None:
    one.service.instance.settle(one.claim(), 3, release=True, remark="Client.x: no such article")


def enter(one: One) -> None:
    position = one.position(3)

    def verb(tx: Transaction) -> None:
        found = stored(tx, position)
        add_replay(tx, position, replays_of(tx, found.lane, found.home))

    one.run(verb)


def replays_before_its_turn(one: One) -> None:
    """What a gap holds is delivered by itself, as a plan does it."""
    enter(one)
    one.service.instance.settle(one.replays, 1, release=True)


def kills(one: One) -> None:
    """Each of three processes that run it dies, which is its last try."""
    for _ in range(3):
        claim = one.claim()
        one.run(lambda tx, claim=claim: let_go(tx, claim, lambda _partner: QueuePolicy(retry=()), "killed"))


def is_held(one: One) -> None:
    one.run(lambda tx: operate.hold(tx, one.identifier, **ACT))


class Fate(NamedTuple):
    befalls: Callable[[One], None]
    is_lost: bool = False
    """It came and is neither delivered nor about to be."""
    is_written_off: bool = False
    """An operator has said so."""
    word: str = ""
    """The verdict that it gives by itself."""


FATES: Final = {
    "delivered": Fate(delivered),
    "runs": Fate(runs, word="running"),
    "dead": Fate(dead, True),
    "blocks": Fate(blocks, word="blocked"),
    "is_tried_again": Fate(is_tried_again, word="blocked"),
    "skipped": Fate(skipped, True),
    "confirmed": Fate(confirmed, True, True),
    "discarded": Fate(discarded, True, True),
    "letter_discarded": Fate(letter_discarded, True, True),
    "redriven": Fate(redriven, True),
    "delivered_after_all": Fate(delivered_after_all),
    "dead_again": Fate(dead_again, True),
    "faulted": Fate(faulted, word="faulted"),
    "kills": Fate(kills, word="blocked"),
    "is_held": Fate(is_held, word="held"),
}


def expired(one: One) -> None:
    one.service.clock.advance(2_000)
    one.run(lambda tx: expire_due(tx, 100))


ENDINGS: Final[dict[str, Callable[[One], object]]] = {
    "open": stays,
    "forced": lambda one: one.run(lambda tx: operate.force(tx, one.identifier, past=2, **ACT)),
    "closed": lambda one: one.service.instance.end(CloseSequence(one.identifier)),
    "closed_by_operator": lambda one: one.run(lambda tx: operate.close(tx, one.identifier, **ACT)),
    "terminated": lambda one: one.service.instance.end(TerminateSequence(one.identifier)),
    "ended_by_operator": lambda one: one.run(lambda tx: operate.terminate(tx, one.identifier, drain=True, **ACT)),
    "expired": expired,
}
"""What becomes of the sequence before number 3 has its fate: else that is held behind the gap."""
GAPS: Final = {"open": (False,), "forced": (True,)}
"""Whether there is one, where there may not be both."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    path = tmp_path_factory.mktemp("losses") / "wsrm.db"
    schema.ensure(path)
    service = Service(path, BEGAN)
    yield service
    service.close()


def look(service: Service, identifier: str) -> tuple[Verdict, str, str]:
    """The verdict, what an operator reads, and what the partner does: in one line each."""
    db = connect_reader(service.path)
    try:
        found = judge(db, sequence(db, identifier), service.clock.now)
        return found, explanation(found).sentence, " ".join(partner_report(found).split())
    finally:
        db.close()


def check(service: Service, identifier: str, never: set[int], lost: set[int], written_off: set[int]) -> str:
    """Nothing is called well that is not, and each number is named to both; answers the word."""
    found, sentence, report = look(service, identifier)
    unconfirmed = lost - written_off
    assert [*found.at.never_came] == [(number, number) for number in sorted(never)]
    assert [*found.at.undelivered.open] == [(number, number) for number in sorted(unconfirmed)]
    assert [*found.at.undelivered.written_off] == [(number, number) for number in sorted(written_off)]
    for number in never | lost:
        assert f"umber {number}" in sentence, sentence
    missing = ", ".join(map(str, sorted(never))) or "none"
    assert f"Numbers missing: {missing} " in report
    for number in lost:
        assert f"put aside: {number} " in report
    if never or lost:
        assert "Nothing is missing" not in report
        assert "no action" not in report
        assert "All that was received is processed" not in report
        assert "nothing needs" not in sentence
    if (never - {number for low, high in found.at.given_up for number in range(low, high + 1)}) or unconfirmed:
        assert found.word != "ok", sentence
    return found.word


@pytest.mark.parametrize(("ending", "has_gap"), [(one, gap) for one in ENDINGS for gap in GAPS.get(one, (False, True))])
@pytest.mark.parametrize("name", FATES)
def test_what_never_came_or_was_not_delivered_is_told_to_operator_and_partner(
    service: Service, name: str, ending: str, has_gap: bool
) -> None:
    fate, received = FATES[name], (1, 3) if has_gap else (1, 2, 3)
    policy = BRIEF if ending == "expired" else QueuePolicy()
    one = One(service, service.sequence(1, policy=policy).terms.identifier)
    one.deliver(1)
    for number in received[1:]:
        service.instance.take(one.identifier, number)
    one.deliver(*([] if has_gap else [2]))
    ENDINGS[ending](one)
    fate.befalls(one)
    lost, written_off = ({3} if fate.is_lost else set()), ({3} if fate.is_written_off else set())
    word = check(service, one.identifier, {2} if has_gap else set(), lost, written_off)
    is_over = ending in ("terminated", "ended_by_operator", "expired")
    is_lossy = (has_gap and ending != "forced") or (fate.is_lost and not fate.is_written_off)
    usual = "ended" if is_over else "incomplete" if is_lossy else "ok"
    assert word == (fate.word or usual)


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_was_replayed_from_behind_a_gap_waits_for_nothing_more(service: Service, ending: str) -> None:
    """It was called ready, and to be run by the next process, once its sequence went past the gap."""
    policy = BRIEF if ending == "expired" else QueuePolicy()
    one = One(service, service.sequence(1, policy=policy).terms.identifier)
    one.deliver(1)
    service.instance.take(one.identifier, 3)
    service.instance.take(one.identifier, 4)
    replays_before_its_turn(one)
    assert "processed yet: 1 " in look(service, one.identifier)[2]
    ENDINGS[ending](one)
    if ending != "open":
        one.deliver(4)
    found, sentence, report = look(service, one.identifier)
    assert (found.at.unsettled, found.at.ready) == ((1, 0) if ending == "open" else (0, 0))
    assert f"processed yet: {found.at.unsettled} " in report
    assert "is ready" not in sentence


@pytest.mark.parametrize("ending", [one for one in ENDINGS if one not in ("open", "forced")])
def test_nothing_is_ready_where_all_was_replayed_before_the_end(service: Service, ending: str) -> None:
    policy = BRIEF if ending == "expired" else QueuePolicy()
    one = One(service, service.sequence(1, policy=policy).terms.identifier)
    one.deliver(1)
    service.instance.take(one.identifier, 3)
    replays_before_its_turn(one)
    ENDINGS[ending](one)
    found, sentence, report = look(service, one.identifier)
    assert found.at.view.delivery == "idle", sentence
    assert "is ready" not in sentence
    assert "processed yet: 0 " in report
    assert "umber 2 never came" in sentence


@pytest.mark.parametrize("behavior", IncompleteSequenceBehavior)
@pytest.mark.parametrize("has_gap", [False, True])
def test_before_its_time_runs_out_the_partner_is_asked_for_what_is_held(
    service: Service, behavior: IncompleteSequenceBehavior, has_gap: bool
) -> None:
    """Of a sequence that is delivered as a whole it was told that nothing is missing, and all of it was lost."""
    policy = QueuePolicy(behavior=behavior, max_expires=1_000)
    one = One(service, service.sequence(1, policy=policy).terms.identifier)
    service.instance.take(one.identifier, 3 if has_gap else 2, policy=policy)
    service.clock.advance(950)
    is_held = has_gap or behavior is IncompleteSequenceBehavior.DISCARD_ENTIRE_SEQUENCE
    if behavior is not IncompleteSequenceBehavior.DISCARD_ENTIRE_SEQUENCE:
        one.deliver(*((1,) if has_gap else (1, 2)))
    found, _sentence, report = look(service, one.identifier)
    assert found.word == "expiring"
    assert ("no action is needed" in report) is not is_held
    assert ("say that the sequence is complete" in report) is (is_held and not has_gap)
    assert ("send the missing numbers again" in report) is has_gap
    service.clock.advance(2_000)
    service.instance.run(lambda tx: expire_due(tx, 100))


HELD: Final = {
    "held": (stays, set[int](), set[int]()),
    "replayed": (replays_before_its_turn, set[int](), set[int]()),
    "is_being_replayed": (enter, {3}, set[int]()),
    "discarded": (lambda one: one.act(dead_letters.discard), {3}, {3}),
}


@pytest.mark.parametrize("name", HELD)
@pytest.mark.parametrize("hours", [0, 3])
def test_a_gap_is_waited_for_whatever_became_of_what_it_holds(service: Service, name: str, hours: int) -> None:
    befalls, lost, written_off = HELD[name]
    one = One(service, service.sequence(1).terms.identifier)
    one.deliver(1)
    service.instance.take(one.identifier, 3)
    befalls(one)
    service.clock.advance(hours * HOUR)
    word = check(service, one.identifier, {2}, lost, written_off)
    assert word == ("silent" if hours else "waiting")
    service.clock.advance(-hours * HOUR)


@pytest.mark.parametrize(
    ("policy", "last_number", "never", "lost", "word"),
    [
        (QueuePolicy(behavior=IncompleteSequenceBehavior.DISCARD_FOLLOWING_FIRST_GAP), None, {2}, {3}, "incomplete"),
        (QueuePolicy(behavior=IncompleteSequenceBehavior.DISCARD_ENTIRE_SEQUENCE), None, {2}, {1, 3}, "incomplete"),
        (QueuePolicy(), 4, {2, 4}, set(), "incomplete"),
    ],
)
def test_what_the_end_gives_up_is_told_before_and_after_it_is_moved(
    service: Service, policy: QueuePolicy, last_number: int | None, never: set[int], lost: set[int], word: str
) -> None:
    one = One(service, service.sequence(1, policy=policy).terms.identifier)
    if 1 not in lost:
        one.deliver(1)
    service.instance.take(one.identifier, 3, policy=policy)
    service.instance.end(CloseSequence(one.identifier, last_number))
    if not lost:
        one.deliver(3)
    found, _sentence, report = look(service, one.identifier)
    assert found.word == word
    assert "Nothing is missing" not in report
    service.instance.run(bury_tails)
    found, sentence, report = look(service, one.identifier)
    assert found.word == word
    assert {n for low, high in found.at.never_came for n in range(low, high + 1)} == never
    assert {n for low, high in found.at.undelivered.open for n in range(low, high + 1)} == lost
    assert "no action" not in report
    assert "never came" in sentence


def test_what_at_most_once_drops_is_not_called_well(service: Service) -> None:
    policy = QueuePolicy(assurance=DeliveryAssurance.AT_MOST_ONCE)
    one = One(service, service.sequence(1, policy=policy).terms.identifier)
    service.instance.take(one.identifier, 3, policy=policy)
    one.deliver(1, 3)
    assert check(service, one.identifier, {2}, set(), set()) == "incomplete"
    service.instance.take(one.identifier, 2, policy=policy)
    assert check(service, one.identifier, set(), {2}, set()) == "incomplete"


def test_a_gap_of_a_sequence_without_order_is_waited_for(service: Service) -> None:
    policy = QueuePolicy(ordered=False)
    one = One(service, service.sequence(1, policy=policy).terms.identifier)
    service.instance.take(one.identifier, 3, policy=policy)
    one.deliver(1, 3)
    assert check(service, one.identifier, {2}, set(), set()) == "waiting"


def test_status_counts_by_the_same_verdicts_as_explain_gives(service: Service) -> None:
    one = One(service, service.sequence(1, 2, 3).terms.identifier)
    one.deliver(1, 2)
    dead(one)
    db: Database = connect_reader(service.path)
    try:
        each = Counter(verdict.word for _view, verdict in judged(db, parse("", service.clock.now)))
        assert verdicts(db, service.clock.now).words == each
        assert each["incomplete"] > 0
        for word in each:
            wanted = [
                view.identifier for view, verdict in judged(db, parse("", service.clock.now)) if verdict.word == word
            ]
            asked = judged(db, parse(f"verdict:{word}", service.clock.now))
            assert [view.identifier for view, _verdict in asked] == wanted
    finally:
        db.close()


def test_a_store_that_is_adopted_has_nothing_ready_that_was_replayed(tmp_path: Path) -> None:
    schema.ensure(tmp_path / "wsrm.db")
    service = Service(tmp_path / "wsrm.db", BEGAN)
    one = One(service, service.sequence(1).terms.identifier)
    one.deliver(1)
    service.instance.take(one.identifier, 3)
    replays_before_its_turn(one)
    service.instance.run(lambda tx: adopt(tx, **ACT))
    found, sentence, _report = look(service, one.identifier)
    service.close()
    assert (found.word, found.at.view.delivery) == ("ended", "idle"), sentence


def test_however_much_was_written_off_what_was_not_is_told(service: Service) -> None:
    """All of ten thousand dead letters are confirmed but for the last."""
    many = 10_001
    one = One(service, service.sequence(1, 2).terms.identifier)
    one.deliver(1)
    service.instance.fail(one.claim(), 2, POISON)
    row = {"first": one.position(2), "many": many, "now": service.clock.now}
    row["message"] = service.instance.entry(service.instance.record(one.identifier).id, 2)["message"]
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :many) "

    def copy(tx: Transaction) -> None:
        for statement in (
            f"INSERT INTO message (id, environ, received_at, body_size) {numbers}"
            "SELECT m.id + 1000 + n.i, m.environ, m.received_at, 0 FROM n, message m WHERE m.id = :message",
            "INSERT INTO entry (id, queue, message, lane, number, outcome, reason, settled_at, confirmed_at) "
            f"{numbers} SELECT e.id + 1000 + n.i, e.queue, e.message + 1000 + n.i, e.lane, 2 + n.i, 'dead', "
            "'skipped', :now, iif(n.i < :many, :now, NULL) FROM n, entry e WHERE e.id = :first",
            "UPDATE entry SET confirmed_at = :now WHERE id = :first",
        ):
            tx.execute(statement, row)

    one.run(copy)
    found, sentence, _report = look(service, one.identifier)
    assert (found.word, [*found.at.undelivered.open]) == ("incomplete", [(many + 2, many + 2)]), sentence
