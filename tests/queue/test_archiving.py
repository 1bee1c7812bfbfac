"""Retention that waits for an archive: what was confirmed goes, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queue.build import Instance
from tests.queue.test_retention import HOUR, count, delivered, prune
from wsrm_mq.errors import NotAllowed, NotFound
from wsrm_mq.queue.archiving import Archived, confirm, withdraw
from wsrm_mq.queue.retention import Kept, Pruned
from wsrm_mq.sequence.elements import TerminateSequence
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.store import archiving as sql
from wsrm_mq.store.identity import identify
from wsrm_mq.store.pruning import held_by_archive

WAITS = Kept(settled=HOUR, ended=10 * HOUR, ledger=20 * HOUR, until_archived=True)


def archived(one: Instance, *positions: int, **changes: Any) -> Archived:
    """What an archive with these positions, read now, would say."""
    known = identify(one.db)
    (last,) = one.db.execute(sql.LAST_LEDGER).fetchone()
    held = Archived(
        *("a" * 32, "/archive", 1, known.id, known.mark, None, last, one.clock()), AckRanges.of(positions).ranges, ()
    )
    return held._replace(**changes)


def confirmed(one: Instance, held: Archived) -> None:
    one.run(lambda tx: confirm(tx, held, actor="ada"))


def positions(one: Instance) -> list[int]:
    return [row["id"] for row in one.rows("SELECT id FROM entry ORDER BY id")]


def test_a_message_stays_until_an_archive_holds_it(one: Instance) -> None:
    delivered(one, 1, 2, 3)
    one.clock.advance(HOUR)
    assert prune(one, WAITS) == Pruned()
    confirmed(one, archived(one, 1, 3))
    assert prune(one, WAITS).messages == 2
    assert positions(one) == [2]


def test_nothing_waits_where_that_is_not_asked_for(one: Instance) -> None:
    delivered(one, 1, 2, 3)
    one.clock.advance(HOUR)
    assert prune(one, WAITS._replace(until_archived=False)).messages == 3


def test_what_an_operator_did_since_counts_as_not_archived(one: Instance) -> None:
    identifier = one.create().terms.identifier
    one.take(identifier, 1)
    one.take(identifier, 2)
    one.db.execute("UPDATE entry SET outcome = 'discarded', settled_at = 0, reason = 'r'")
    held = archived(one, 1, 2)
    one.run(lambda tx: tx.ledger("noted", position=2, reason="looked at", actor="ada"))
    confirmed(one, held)
    known = one.rows(f"SELECT id, {held_by_archive('messages', 'position', 'entry.id')} AS held FROM entry")
    assert [(row["id"], row["held"]) for row in known] == [(1, 1), (2, 0)]


def test_a_sequence_and_its_ledger_stay_until_an_archive_holds_them(one: Instance) -> None:
    identifier = delivered(one, 1)
    one.end(TerminateSequence(identifier, 1))
    other = one.create().terms.identifier
    key = one.record(identifier).id
    one.clock.advance(30 * HOUR)
    one.run(lambda tx: tx.ledger("application_renamed", reason="a is b", actor="ada"))
    confirmed(one, archived(one, 1))
    assert prune(one, WAITS) == Pruned(messages=1, size=len(b"<Envelope/>"))
    assert one.record(identifier).value.received.ranges == ((1, 1),)
    one.clock.advance(30 * HOUR)
    assert prune(one, WAITS).sequences == 0
    confirmed(one, archived(one, 1, sequences=((key, key),), number=2))
    assert prune(one, WAITS).sequences == 1
    assert one.record(other)


def test_of_two_archives_each_is_believed_for_what_it_holds(one: Instance) -> None:
    delivered(one, 1, 2, 3)
    one.clock.advance(HOUR)
    confirmed(one, archived(one, 1))
    confirmed(one, archived(one, 3, archive="b" * 32))
    assert prune(one, WAITS).messages == 2
    assert positions(one) == [2]


def test_a_lost_archive_counts_no_more(one: Instance) -> None:
    delivered(one, 1)
    one.clock.advance(HOUR)
    confirmed(one, archived(one, 1))
    one.run(lambda tx: withdraw(tx, "a" * 32, actor="ada", reason="the disk died"))
    assert prune(one, WAITS) == Pruned()
    with pytest.raises(NotFound):
        one.run(lambda tx: withdraw(tx, "a" * 32, actor="ada", reason="again"))


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"store": "another"}, "is of the store another"),
        ({"mark": 1_000_000}, "a later state of this store"),
        ({"ledger": 1_000_000}, "a later state of this store"),
        ({"number": 0}, "older than manifest 1"),
    ],
)
def test_an_archive_that_cannot_be_of_this_store_as_it_is_is_refused(
    one: Instance, wrong: dict[str, Any], told: str
) -> None:
    delivered(one, 1)
    confirmed(one, archived(one))
    with pytest.raises(NotAllowed, match=told):
        confirmed(one, archived(one, 1, **wrong))
    one.clock.advance(HOUR)
    assert prune(one, WAITS) == Pruned()


def test_a_confirmation_is_on_record_and_takes_the_place_of_the_one_before(one: Instance) -> None:
    delivered(one, 1, 2, 3)
    for number, held in enumerate(((1,), (1, 2, 3)), 1):
        confirmed(one, archived(one, *held, number=number))
    assert [(row["reason"], row["actor"]) for row in one.ledger("archived")] == [
        ("archive aaaaaaaa, manifest 1", "ada"),
        ("archive aaaaaaaa, manifest 2", "ada"),
    ]
    assert one.rows("SELECT lower, upper FROM archived") == [{"lower": 1, "upper": 3}]
    assert count(one, "archive") == 1


@pytest.mark.parametrize(
    ("held", "oldest"),
    [((), 1), ((1,), 3), ((1, 3), 4), ((3, 4), 1), ((1, 3, 4), None), ((1, 2, 3, 4), None)],
)
def test_the_oldest_settled_message_that_is_not_archived_is_known(
    one: Instance, held: tuple[int, ...], oldest: int | None
) -> None:
    """Position 2 is not settled, so it does not count."""
    delivered(one, 1, 2, 3, 4)
    one.db.execute("UPDATE entry SET settled_at = id, outcome = 'delivered'")
    one.db.execute("UPDATE entry SET settled_at = NULL, outcome = NULL WHERE id = 2")
    confirmed(one, archived(one, *held))
    found = one.db.execute(sql.OLDEST_UNARCHIVED).fetchone()
    assert (found[0] if found else None) == oldest
