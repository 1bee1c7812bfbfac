"""What an archive holds after each of its batches, whatever becomes of the messages between them."""

from __future__ import annotations

import random
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.archive.local import archive, held
from tests.queue.build import Instance, Node
from tests.queue.test_retention import HOUR, claim_of, prune
from tests.support.examples import examples
from wsrm_mq.archive.batches import doomed, forget, held_by, verified, without
from wsrm_mq.archive.files import Archive, commit, load, locked
from wsrm_mq.archive.verifying import Difference
from wsrm_mq.errors import ExportError, NotAllowed, NotFound, WSRMError
from wsrm_mq.export.pieces import opened
from wsrm_mq.queue import archiving, dead_letters
from wsrm_mq.queue.adopt import adopt
from wsrm_mq.queue.operate import note
from wsrm_mq.queue.ownership import Claim
from wsrm_mq.queue.retention import Kept
from wsrm_mq.sequence.elements import TerminateSequence
from wsrm_mq.sequence.ranges import AckRanges

WAITS = Kept(settled=HOUR, ended=HOUR, until_archived=True)
GOES = Kept(settled=HOUR, ended=HOUR)
WHY = {"actor": "ada", "reason": "why"}


def filled(one: Instance, count: int, **changes: Any) -> str:
    identifier = one.create(**changes).terms.identifier
    for number in range(1, count + 1):
        one.take(identifier, number)
    return identifier


def deliver(one: Instance, identifier: str, *numbers: int) -> None:
    for number in numbers:
        one.settle(claim_of(one, identifier), number, release=True)


def positions(place: Path) -> list[int]:
    return [row[0] for row in held(place, "messages", "position")]


def forgotten(place: Path, **what: str) -> Archive:
    with locked(place):
        known = load(place)
        return forget(place, known, doomed(place, known, **what), actor="ada", reason="contract", now=7)


def test_what_is_settled_is_archived_once_and_the_rest_when_it_is(node: Node, one: Instance, place: Path) -> None:
    identifier = filled(one, 3)
    deliver(one, identifier, 1)
    known, wrong = archive(node.path, place)
    assert (wrong, positions(place), known.messages) == ([], [1], ((1, 1),))
    assert held(place, "sequences", "sequence", "state") == [(identifier, "created")]
    assert archive(node.path, place)[0].number == 1, "nothing is new"
    deliver(one, identifier, 2, 3)
    one.end(TerminateSequence(identifier, 3))
    known, wrong = archive(node.path, place)
    assert (wrong, positions(place), known.messages) == ([], [1, 2, 3], ((1, 3),))
    assert held(place, "sequences", "sequence", "state") == [(identifier, "ended")]
    assert held(place, "ranges", "lower", "upper") == [(1, 3)]
    assert known.sequences == ((1, 1),)
    assert known.unfinished == ()
    events = [row["id"] for row in one.ledger()]
    assert [key for (key,) in held(place, "ledger", "key")] == events


def test_files_lie_by_day_and_queue_and_those_that_were_replaced_are_gone(
    node: Node, one: Instance, place: Path
) -> None:
    deliver(one, filled(one, 2), 1)
    archive(node.path, place)
    one.run(lambda tx: note(tx, one.rows("SELECT identifier FROM lane")[0]["identifier"], **WHY))
    known, _ = archive(node.path, place)
    assert {Path(segment.file).parts[:-1] for segment in known.segments} == {
        ("messages", "date=2023-11-14", "queue=%2Forders"),
        ("sequences", "date=2023-11-14", "queue=%2Forders"),
        ("ranges",),
        ("ledger", "date=2023-11-14", "queue=%2Forders"),
    }
    there = {str(file.relative_to(place)) for file in place.rglob("*.parquet*")}
    assert there == {segment.file for segment in known.segments}
    assert sorted(file.name for file in (place / "manifests").iterdir()) == ["000001.json", "000002.json"]


def test_what_is_settled_while_a_batch_is_read_waits_for_the_next(node: Node, one: Instance, place: Path) -> None:
    identifier = filled(one, 3)
    deliver(one, identifier, 1)
    _known, wrong = archive(node.path, place, meanwhile=lambda: deliver(one, identifier, 2))
    assert (wrong, positions(place)) == ([], [1])
    assert (archive(node.path, place)[1], positions(place)) == ([], [1, 2])


def test_what_is_pruned_while_a_batch_is_read_stays_where_it_was_archived(
    node: Node, one: Instance, place: Path
) -> None:
    identifier = filled(one, 2)
    deliver(one, identifier, 1, 2)
    archive(node.path, place)
    one.run(lambda tx: tx.ledger("noted", position=1, **WHY))
    one.clock.advance(HOUR)
    _known, wrong = archive(node.path, place, meanwhile=lambda: prune(one, GOES))
    assert (wrong, positions(place)) == ([], [1, 2])


def test_a_message_that_an_operator_restored_is_replaced_when_it_is_settled_again(
    node: Node, one: Instance, place: Path
) -> None:
    identifier = one.create().terms.identifier
    one.take(identifier, 2)
    one.run(lambda tx: dead_letters.discard(tx, 1, **WHY))
    archive(node.path, place)
    assert held(place, "messages", "position", "outcome") == [(1, "discarded")]
    one.run(lambda tx: dead_letters.restore(tx, 1, **WHY))
    known, _ = archive(node.path, place)
    assert (known.messages, known.reopened) == ((), ((1, 1),))
    one.take(identifier, 1)
    deliver(one, identifier, 1, 2)
    known, wrong = archive(node.path, place)
    assert (wrong, known.messages, known.reopened) == ([], ((1, 2),), ())
    assert held(place, "messages", "position", "outcome") == [(1, "delivered"), (2, "delivered")]


def test_retention_goes_by_a_verified_archive_and_what_is_archived_stays_when_the_store_has_deleted_it(
    node: Node, one: Instance, place: Path
) -> None:
    identifier = filled(one, 3)
    deliver(one, identifier, 1, 2)
    archive(node.path, place)
    one.run(lambda tx: archiving.confirm(tx, held_by(place), actor="ada"))
    one.clock.advance(HOUR)
    assert prune(one, WAITS).messages == 2
    deliver(one, identifier, 3)
    _known, wrong = archive(node.path, place)
    assert (wrong, positions(place)) == ([], [1, 2, 3])
    assert compared(node, place) == []


def test_an_archive_that_was_not_compared_is_not_confirmed(node: Node, one: Instance, place: Path) -> None:
    deliver(one, filled(one, 1), 1)
    known, _ = archive(node.path, place)
    one_of = msgspec.structs.replace(known.segments[0], verified_at=None)
    commit(place, msgspec.structs.replace(known, segments=(one_of, *known.segments[1:])))
    with pytest.raises(NotAllowed, match="1 of its files were not compared"):
        held_by(place)


# what is wrong with an archive


def compared(node: Node, place: Path) -> list[tuple[Difference, str, str]]:
    with opened(node.path) as db:
        return [tuple(one) for one in verified(place, load(place), db, 0, whole=True)[1]]


def test_rows_that_differ_or_are_missing_are_found(node: Node, one: Instance, place: Path) -> None:
    deliver(one, filled(one, 3), 1, 2, 3)
    known, _ = archive(node.path, place)
    assert compared(node, place) == []
    one.db.execute("UPDATE message SET body = CAST('<Other/>' AS BLOB) WHERE id = 2")
    assert compared(node, place) == [(Difference.OTHER, "messages", "2")]
    one.db.execute("UPDATE message SET body = NULL WHERE id = 2")
    assert compared(node, place) == [], "retention has freed it"
    act = {"act": "forgotten", "at": 1, "actor": "ada"}
    left, _record = without(place, known, {"messages": {"position": AckRanges(((3, 3),))}}, **act)
    commit(place, msgspec.structs.replace(known, segments=left))
    assert compared(node, place) == [(Difference.MISSING, "messages", "3")]


@pytest.mark.parametrize("damage", ["flipped", "short", "gone"])
def test_a_damaged_file_is_found_and_is_not_written_anew(node: Node, one: Instance, place: Path, damage: str) -> None:
    deliver(one, filled(one, 3), 1, 2, 3)
    known, _ = archive(node.path, place)
    (file,) = (place / one.file for one in known.segments if one.table == "messages")
    content = bytearray(file.read_bytes())
    if damage == "gone":
        file.unlink()
    else:
        content[len(content) // 2] ^= 1
        file.write_bytes(content if damage == "flipped" else content[:-1])
    ((kind, table, what),) = compared(node, place)
    assert (kind, table) == (Difference.DAMAGED, "messages")
    assert str(file) in what
    before = load(place)
    with pytest.raises(ExportError, match=str(file)):
        forgotten(place, message_id="urn:message:2")
    assert load(place) == before


def test_a_manifest_of_which_one_byte_was_changed_is_refused(node: Node, one: Instance, place: Path) -> None:
    deliver(one, filled(one, 1), 1)
    archive(node.path, place)
    file = place / "manifest.json"
    file.write_text(file.read_text().replace('"rows": 1', '"rows": 2', 1))
    with pytest.raises(ExportError, match="was changed after it was written"):
        load(place)


def test_an_archive_is_of_one_store_and_not_of_an_older_copy(node: Node, one: Instance, tmp_path: Path) -> None:
    deliver(one, filled(one, 2), 1)
    place = tmp_path / "archive"
    older = tmp_path / "older.db"
    one.db.execute(f"VACUUM INTO '{older}'")
    deliver(one, one.rows("SELECT identifier FROM lane")[0]["identifier"], 2)
    one.run(lambda tx: tx.ledger("noted", position=2, **WHY))
    archive(node.path, place)
    with pytest.raises(NotAllowed, match="a later state of this store"):
        archive(older, place)
    other = Node(tmp_path / "other.db")
    with pytest.raises(NotAllowed, match="name that store, or another directory"):
        archive(other.path, place)
    with locked(place), pytest.raises(NotAllowed, match="another process is working on this archive"):
        archive(node.path, place)


class Killed(BaseException):
    pass


def kill(*_args: object) -> None:
    raise Killed


@pytest.mark.parametrize("when", ["read", "committed"])
def test_an_interrupted_batch_leaves_nothing_and_the_next_one_has_all(
    node: Node, one: Instance, place: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    identifier = filled(one, 3)
    deliver(one, identifier, 1)
    before, _ = archive(node.path, place)
    deliver(one, identifier, 2, 3)

    with monkeypatch.context() as patch:
        if when == "committed":
            patch.setattr("wsrm_mq.archive.batches.commit", kill)
        with pytest.raises(Killed):
            archive(node.path, place, meanwhile=kill if when == "read" else lambda: None)
    assert load(place) == before
    assert positions(place) == [1]
    known, wrong = archive(node.path, place)
    assert (wrong, positions(place)) == ([], [1, 2, 3])
    there = {str(file.relative_to(place)) for file in place.rglob("*.parquet*")}
    assert there == {segment.file for segment in known.segments}


def test_a_batch_that_was_not_compared_before_the_end_is_by_the_next_run(
    node: Node, one: Instance, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver(one, filled(one, 1), 1)
    with monkeypatch.context() as patch:
        patch.setattr("wsrm_mq.archive.verifying.compared", kill)
        with pytest.raises(Killed):
            archive(node.path, place)
    assert load(place).unverified
    known, wrong = archive(node.path, place)
    assert (wrong, known.number, known.unverified) == ([], 1, ())


def test_a_store_that_was_adopted_begins_an_archive_anew_and_the_old_one_counts_for_what_it_holds(
    node: Node, one: Instance, place: Path
) -> None:
    identifier = filled(one, 2)
    deliver(one, identifier, 1)
    archive(node.path, place)
    one.run(lambda tx: archiving.confirm(tx, held_by(place), actor="ada"))
    one.run(lambda tx: adopt(tx, **WHY, deliver=True))
    with pytest.raises(NotAllowed, match="name that store, or another directory"):
        archive(node.path, place)
    with pytest.raises(NotAllowed, match="the archive is of the store"):
        one.run(lambda tx: archiving.confirm(tx, held_by(place), actor="ada"))
    deliver_all(one, identifier)
    one.clock.advance(HOUR)
    assert prune(one, WAITS).messages == 1
    _known, wrong = archive(node.path, place.with_name("anew"))
    assert (wrong, positions(place.with_name("anew"))) == ([], [2])


def deliver_all(one: Instance, identifier: str) -> None:
    record = one.record(identifier)
    taken = one.claim(record.id)
    assert taken is not None
    for number in one.to_run(taken):
        one.settle(taken, number, release=True)


# forgetting


def test_a_message_is_forgotten_on_record_and_does_not_come_back(node: Node, one: Instance, place: Path) -> None:
    deliver(one, filled(one, 3), 1, 2, 3)
    one.run(lambda tx: tx.ledger("noted", position=2, **WHY))
    before, _ = archive(node.path, place)
    known = forgotten(place, message_id="urn:message:2")
    assert positions(place) == [1, 3]
    assert [row for row in held(place, "ledger", "event") if row == ("noted",)] == []
    record = known.records[-1]
    assert (record.number, record.act, record.actor, record.reason, record.at) == (2, "forgotten", "ada", "contract", 7)
    assert record.rows == {"messages": 1, "ledger": 1}
    files = {segment.file: segment.sha256 for segment in before.segments}
    assert record.before.items() <= files.items()
    assert record.after.items() <= {one.file: one.sha256 for one in known.segments}.items()
    assert not known.unverified
    one.run(lambda tx: tx.ledger("noted", position=2, reason="again", actor="ada"))
    one.run(lambda tx: tx.ledger("noted", position=3, reason="again", actor="ada"))
    again, wrong = archive(node.path, place)
    assert (again.number, wrong, positions(place)) == (3, [], [1, 3])
    assert held(place, "ledger", "position", "reason").count((3, "again")) == 1
    assert (2, "again") not in held(place, "ledger", "position", "reason")
    assert compared(node, place) == []
    assert b"urn:message:2" not in b"".join(file.read_bytes() for file in place.rglob("*") if file.is_file())
    with pytest.raises(NotFound, match="has nothing of the message urn:message:2"):
        forgotten(place, message_id="urn:message:2")


def test_all_of_a_partner_is_forgotten_and_what_its_sequence_gets_later_too(
    node: Node, one: Instance, place: Path
) -> None:
    acme, other = filled(one, 2, partner="acme"), filled(one, 2)
    deliver(one, acme, 1)
    deliver(one, other, 1)
    archive(node.path, place)
    forgotten(place, partner="acme")
    assert held(place, "messages", "sequence") == [(other,)]
    assert held(place, "sequences", "sequence") == [(other,)]
    deliver(one, acme, 2)
    deliver(one, other, 2)
    known, wrong = archive(node.path, place)
    assert (wrong, held(place, "messages", "sequence")) == ([], [(other,)] * 2)
    assert not [row for row in held(place, "ledger", "sequence") if row == (acme,)]
    assert known.messages == ((1, 4),), "retention need not wait for what is never archived"
    assert compared(node, place) == []


def test_forgetting_that_is_interrupted_has_changed_nothing(
    node: Node, one: Instance, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver(one, filled(one, 3), 1, 2, 3)
    before, _ = archive(node.path, place)
    with monkeypatch.context() as patch:
        patch.setattr("wsrm_mq.archive.batches.commit", kill)
        with pytest.raises(Killed):
            forgotten(place, message_id="urn:message:2")
    assert load(place) == before
    assert positions(place) == [1, 2, 3]
    forgotten(place, message_id="urn:message:2")
    assert positions(place) == [1, 3]


# anything at all


@given(seed=st.integers(0, 2**32), steps=st.integers(5, 40))
@settings(max_examples=examples(12), deadline=None)
def test_an_archive_has_the_last_settled_state_of_every_message_that_was_not_forgotten(seed: int, steps: int) -> None:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as home:
        node = Node(Path(home) / "store.db")
        world = World(node.start(), node.path, Path(home) / "archive", chance)
        try:
            for _ in range(steps):
                getattr(world, chance.choice(World.ACTS))()
        finally:
            node.close()


class World:
    """A store, its archive, and what that has to hold."""

    ACTS = ("take", "take", "take", "deliver", "deliver", "discard", "restore", "prune", "archive", "forget")

    def __init__(self, one: Instance, store: Path, place: Path, chance: random.Random) -> None:
        self.one, self.store, self.place, self.chance = one, store, place, chance
        self.sequences = [one.create().terms.identifier for _ in range(3)]
        self.seen: dict[int, str] = {}
        self.gone: set[int] = set()

    def take(self) -> None:
        identifier = self.chance.choice(self.sequences)
        self.one.take(identifier, self.one.record(identifier).value.expected + self.chance.choice((0, 0, 0, 2)))

    def deliver(self) -> None:
        record = self.one.record(self.chance.choice(self.sequences))
        taken = self.one.claim(record.id) if record.owner is None else Claim(record.id, record.fence)
        if taken is not None and (numbers := self.one.to_run(taken, 1)):
            self.one.settle(taken, numbers[0])

    def discard(self) -> None:
        self._act(dead_letters.discard)

    def restore(self) -> None:
        self._act(dead_letters.restore)

    def _act(self, verb: Any) -> None:
        with suppress(WSRMError):
            self.one.run(lambda tx: verb(tx, self.chance.randint(1, 12), **WHY))

    def prune(self) -> None:
        self.one.clock.advance(HOUR)
        prune(self.one, WAITS)

    def archive(self) -> None:
        assert archive(self.store, self.place)[1] == []
        self.one.run(lambda tx: archiving.confirm(tx, held_by(self.place), actor="ada"))
        rows = self.one.rows("SELECT id, outcome FROM entry WHERE outcome IS NOT NULL")
        self.seen |= {row["id"]: row["outcome"] for row in rows if row["id"] not in self.gone}
        self.check()

    def forget(self) -> None:
        known = held(self.place, "messages", "position", "message_id") if self.place.exists() else []
        if known:
            _, name = self.chance.choice(known)
            forgotten(self.place, message_id=name)
            self.gone |= {position for position, its in known if its == name}
            self.seen = {position: outcome for position, outcome in self.seen.items() if position not in self.gone}
            self.check()

    def check(self) -> None:
        assert held(self.place, "messages", "position", "outcome") == sorted(self.seen.items())
