"""What becomes of messages after they were archived, and what of that an archive, its store and ``forget`` know."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from tests.archive.local import archive, held
from tests.archive.test_batches import WAITS, WHY, compared, deliver, filled, forgotten
from tests.queue.build import Instance, Node
from tests.queue.test_replaying import replay
from tests.queue.test_retention import HOUR, REPLY, claim_of, due, prune
from wsrm_mq.archive.batches import doomed, forget, held_by, verified
from wsrm_mq.archive.files import commit, load, locked
from wsrm_mq.archive.verifying import Difference
from wsrm_mq.errors import NotAllowed
from wsrm_mq.export.pieces import opened
from wsrm_mq.queue import archiving, dead_letters
from wsrm_mq.store import identity
from wsrm_mq.store.store import Store


def confirm(one: Instance, place: Path) -> None:
    one.run(lambda tx: archiving.confirm(tx, held_by(place), actor="ada"))


def letters(one: Instance, count: int) -> str:
    """A sequence of dead letters."""
    identifier = filled(one, count)
    one.db.execute("UPDATE entry SET outcome = 'dead', settled_at = 0, reason = 'poison'")
    one.db.execute('UPDATE lane SET "cursor" = "limit"')
    return identifier


def test_a_dead_letter_that_a_plan_replays_is_archived_anew(node: Node, one: Instance, place: Path) -> None:
    letters(one, 1)
    archive(node.path, place)
    assert held(place, "messages", "position", "outcome") == [(1, "dead")]
    replays = replay(one, 1)
    assert compared(node, place) == [], "that is for the next batch"
    archive(node.path, place)
    deliver(one, replays, 1)
    _known, wrong = archive(node.path, place)
    assert (wrong, compared(node, place)) == ([], [])
    assert held(place, "messages", "position", "outcome") == [(1, "discarded"), (2, "delivered")]


def test_a_sequence_of_replays_that_goes_on_is_archived_anew(node: Node, one: Instance, place: Path) -> None:
    letters(one, 2)
    one.run(lambda tx: dead_letters.redrive(tx, 1, **WHY))
    (replays,) = [row["identifier"] for row in one.rows("SELECT identifier FROM lane WHERE kind = 'replay'")]
    deliver(one, replays, 1)
    archive(node.path, place)
    one.run(lambda tx: dead_letters.redrive(tx, 2, **WHY))
    deliver(one, replays, 2)
    assert compared(node, place) == []
    _known, wrong = archive(node.path, place)
    assert (wrong, compared(node, place)) == ([], [])
    assert (replays, 2) in held(place, "sequences", "sequence", "received")
    assert (2, 1, 2) in held(place, "ranges", "key", "lower", "upper")


def test_an_archived_envelope_stays_when_its_body_is_freed_and_the_message_confirmed(
    node: Node, one: Instance, place: Path
) -> None:
    identifier = one.create().terms.identifier
    one.take(identifier, 1, wants_reply=True)
    one.settle(claim_of(one, identifier), 1, release=True, reply=REPLY, remark="no such order")
    archive(node.path, place)
    confirm(one, place)
    assert held(place, "messages", "envelope") == [(b"<Envelope/>",)]
    one.clock.advance(HOUR)
    assert prune(one, WAITS).bodies == 1
    one.run(lambda tx: dead_letters.confirm(tx, 1, **WHY))
    _known, wrong = archive(node.path, place)
    assert (wrong, compared(node, place)) == ([], [])
    assert held(place, "messages", "envelope") == [(b"<Envelope/>",)]


def test_an_archive_is_not_compared_with_a_store_that_it_is_not_of(
    node: Node, one: Instance, place: Path, tmp_path: Path
) -> None:
    older = tmp_path / "older.db"
    one.db.execute(f"VACUUM INTO '{older}'")
    deliver(one, filled(one, 1), 1)
    known, _ = archive(node.path, place)
    fresh = tuple(msgspec.structs.replace(segment, verified_at=None) for segment in known.segments)
    commit(place, msgspec.structs.replace(known, segments=fresh))
    other = Node(tmp_path / "other.db")
    for store, why in ((other.path, "is of the store"), (older, "this one is an older copy")):
        with opened(store) as db, pytest.raises(NotAllowed, match=why):
            verified(place, load(place), db, 0)
    other.close()


def test_what_is_replayed_of_a_forgotten_message_is_not_archived(node: Node, one: Instance, place: Path) -> None:
    deliver(one, filled(one, 2, partner="acme"), 1, 2)
    deliver(one, filled(one, 1, partner="other"), 1)
    archive(node.path, place)
    forgotten(place, message_id="urn:message:2")
    deliver(one, replay(one, 1, 2), 1, 2)
    known, wrong = archive(node.path, place)
    assert (wrong, compared(node, place)) == ([], [])
    assert "urn:message:2" not in [one for (one,) in held(place, "messages", "message_id")]
    assert known.messages == ((1, 5),)


def test_what_is_replayed_of_a_forgotten_partner_is_not_archived(node: Node, one: Instance, place: Path) -> None:
    deliver(one, filled(one, 2, partner="acme"), 1, 2)
    archive(node.path, place)
    forgotten(place, partner="acme")
    deliver(one, replay(one, 1, 2), 1, 2)
    archive(node.path, place)
    assert held(place, "messages", "position") == held(place, "sequences", "partner") == []


@pytest.mark.parametrize("act", ["withdrawn", "noted"])
def test_what_no_archive_holds_any_more_when_it_is_to_be_deleted_stays(
    node: Node, one: Instance, place: Path, act: str
) -> None:
    deliver(one, filled(one, 1), 1)
    archive(node.path, place)
    confirm(one, place)
    one.clock.advance(HOUR)
    found = list(due(one, WAITS))
    assert [len(batch.entries) for batch in found] == [1]
    if act == "noted":
        one.run(lambda tx: tx.ledger("noted", position=1, **WHY))
    else:
        one.run(lambda tx: archiving.withdraw(tx, load(place).archive, **WHY))
    for batch in found:
        one.run(batch)
    assert one.rows("SELECT id FROM entry") == [{"id": 1}]
    assert one.rows("SELECT body FROM message") == [{"body": b"<Envelope/>"}]


def test_an_archive_whose_files_are_gone_is_not_confirmed(node: Node, one: Instance, place: Path) -> None:
    deliver(one, filled(one, 1), 1)
    known, _ = archive(node.path, place)
    (place / known.segments[0].file).unlink()
    with pytest.raises(NotAllowed, match="1 of its files are missing"):
        held_by(place)
    assert [kind for kind, _table, _what in compared(node, place)] == [Difference.DAMAGED]


def test_what_a_forgotten_partner_has_begun_since_the_last_batch_is_not_archived_either(
    node: Node, one: Instance, place: Path
) -> None:
    deliver(one, filled(one, 1, partner="acme"), 1)
    known, _ = archive(node.path, place)
    deliver(one, filled(one, 1, partner="acme"), 1)
    others = filled(one, 1, partner="other")
    deliver(one, others, 1)
    with locked(place):
        forget(place, known, doomed(place, known, partner="acme"), **WHY, now=one.clock())
    one.clock.advance(1)
    again = filled(one, 1, partner="acme")
    deliver(one, again, 1)
    known, wrong = archive(node.path, place)
    assert (wrong, compared(node, place)) == ([], [])
    assert [name for (name,) in held(place, "sequences", "sequence")] == sorted([others, again])
    assert held(place, "messages", "position") == [(3,), (4,)], "what it begins after that is another matter"
    assert "acme" not in (place / "manifest.json").read_text()


def runs(path: Path, count: int = 1) -> None:
    """The service is begun and ended."""
    for _ in range(count):
        store = Store(path)
        store.open()
        store.close()


def test_an_archive_of_what_a_store_has_forgotten_is_refused_however_far_the_store_is(
    node: Node, one: Instance, place: Path, tmp_path: Path
) -> None:
    """The directory of the store was put back from a copy, its witness with it: marks and keys overtake the archive."""
    runs(node.path)
    archive(node.path, place)
    shutil.copytree(node.path.parent, tmp_path / "copy", ignore=shutil.ignore_patterns("copy", place.name, "*.sock"))
    runs(node.path)
    identifier = filled(one, 1)
    deliver(one, identifier, 1)
    one.run(lambda tx: tx.ledger("noted", position=1, **WHY))
    known, wrong = archive(node.path, place)
    assert (wrong, known.messages) == ([], ((1, 1),))
    restored = tmp_path / "copy" / node.path.name
    runs(restored, 5)
    other = Instance(restored, node.clock, "restored")
    deliver(other, filled(other, 1), 1)
    for _ in range(3):
        other.run(lambda tx: tx.ledger("noted", position=1, **WHY))
    with pytest.raises(NotAllowed, match="has what this store has forgotten"):
        archive(restored, place)
    with pytest.raises(NotAllowed, match="made of what this store has forgotten"):
        confirm(other, place)
    confirm(one, place)
    other.close()


def test_the_runs_of_a_service_that_are_told_apart_are_bounded(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "EPOCHS", 3)
    runs(node.path, 5)
    with opened(node.path) as db:
        assert db.execute("SELECT count(*) FROM epoch").fetchone() == (3,)
