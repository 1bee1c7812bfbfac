from __future__ import annotations

import sqlite3
from copy import copy
from itertools import combinations

import pytest

from tests.queue.build import Instance, Node, sender
from wsrm_mq.queue.creation import create
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.sequence.elements import CreateSequence
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.store.cache import LaneCache
from wsrm_mq.store.outside import run_once
from wsrm_mq.store.store import Store
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.testing import ManualClock


@pytest.fixture
def two(node: Node) -> Instance:
    return node.start()


def stored_ranges(instance: Instance) -> list[tuple[int, int]]:
    return [(row["lower"], row["upper"]) for row in instance.rows("SELECT * FROM range ORDER BY lower")]


def reads(instance: Instance, identifier: str) -> int:
    """How many statements it takes to get at a sequence."""
    seen: list[str] = []
    instance.db.set_trace_callback(lambda text: seen.append(text) if "SELECT" in text else None)
    instance.record(identifier)
    instance.db.set_trace_callback(None)
    return len(seen)


def test_ranges_are_stored_as_they_grow_merge_and_close(one: Instance) -> None:
    identifier = one.create().terms.identifier
    seen = []
    for number in (1, 5, 4, 3, 2):
        one.take(identifier, number)
        seen.append(stored_ranges(one))
    assert seen == [[(1, 1)], [(1, 1), (5, 5)], [(1, 1), (4, 5)], [(1, 1), (3, 5)], [(1, 5)]]


def test_a_sequence_is_written_once_however_many_verbs_touch_it(one: Instance) -> None:
    identifier = one.create().terms.identifier
    written: list[str] = []
    one.db.set_trace_callback(lambda text: written.append(text) if "UPDATE sequence" in text else None)
    with one.transaction() as tx:
        for _ in range(5):
            record = tx.sequence_named(identifier)
            assert record is not None
            record.duplicates += 1
    one.db.set_trace_callback(None)
    assert len(written) == 1
    assert one.rows("SELECT duplicates FROM sequence") == [{"duplicates": 5}]


CHANGES = {"cursor": 2, "fence": 7, "running_since": 5, "owner": 1, "held": 3, "held_bytes": 4, "blocked": 6}


@pytest.mark.parametrize("several", [1, 2, 3])
def test_whatever_of_a_sequence_changes_together_is_written(one: Instance, several: int) -> None:
    one.create()  # changes in another column, in the same transaction
    for names in combinations(CHANGES, several):
        identifier = one.create().terms.identifier
        one.take(identifier, 1)
        with one.transaction() as tx:
            record, other = tx.sequence_named(identifier), tx.sequence(1)
            assert record is not None
            assert other is not None
            before = record.row
            other.fence += 1
            for name in names:
                setattr(record, name, CHANGES[name])
        changed = {name: value for name, value in one.record(identifier).row.items() if value != before[name]}
        assert set(changed) <= set(names)
        [row] = one.rows("SELECT * FROM lane WHERE identifier = ?", identifier)
        assert {name: row[name] for name in names} == {name: CHANGES[name] for name in names}
        assert {name: row[name] for name in before} == {**before, **changed}


def test_a_sequence_that_was_only_looked_at_is_not_written(one: Instance) -> None:
    identifier = one.create().terms.identifier
    before = one.db.total_changes
    one.record(identifier)
    assert one.db.total_changes == before


def test_what_was_committed_is_kept_for_the_next_transaction(one: Instance) -> None:
    identifier = one.create().terms.identifier
    assert reads(one, identifier) == 0


def test_another_process_that_writes_empties_the_cache(one: Instance, two: Instance) -> None:
    identifier = one.create().terms.identifier
    one.take(identifier, 1)
    two.take(identifier, 3)
    two.take(identifier, 2)
    assert one.record(identifier).value.received == AckRanges.of([1, 2, 3])
    assert one.take(identifier, 3).acknowledgement.ranges == ((1, 3),)  # type: ignore[union-attr]
    assert one.rows("SELECT count(*) AS n FROM entry") == [{"n": 3}]


def test_the_cache_keeps_so_many_ranges_and_of_the_sequences_those_used_last(
    one: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wsrm_mq.store.cache.MAX_WEIGHT", 99)
    cache = LaneCache()
    records = []
    for gaps in (1, 60, 30, 5, 200):
        record = one.record(one.create().terms.identifier)
        record.numbers = AckRanges.of(range(1, 2 * gaps, 2))
        records.append(record)

    def kept() -> list[int]:
        return [len(record.numbers) for record in records if record.id in cache.records]

    for record in records[:4]:
        cache.keep([record])
    assert (kept(), cache.weight) == ([60, 30, 5], 98)
    cache.keep([records[2], records[4]])
    assert kept() == [200], "the last one in any case"
    assert records[1].value.terms.identifier not in cache.keys
    cache.keep([records[0]])
    assert (kept(), cache.weight) == ([1], 2)


def test_queues_without_end_do_not_fill_the_cache(one: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wsrm_mq.store.cache.MAX_QUEUES", 100)
    with one.transaction() as tx:
        keys = [tx.queue(f"/{name}") for name in range(107)]
        rows = [tx.queue_row(f"/{name}") for name in range(107)]
        cache = tx._cache
    assert [cache.queues.get(f"/{name}") for name in range(107)] == [None] * 7 + rows[7:]
    assert one.run(lambda tx: tx.queue("/0")) == keys[0]


def test_a_rollback_empties_the_cache_and_leaves_nothing(one: Instance) -> None:
    identifier = one.create().terms.identifier

    def breaks(tx: Transaction) -> None:
        record = tx.sequence_named(identifier)
        assert record is not None
        record.cursor = record.fence = 1
        tx.queue("/made-and-gone")
        tx.flush()
        raise RuntimeError

    with pytest.raises(RuntimeError):
        one.run(breaks)
    assert one.record(identifier).fence == 0
    assert one.rows("SELECT name FROM queue") == [{"name": "/orders"}]
    key = one.run(lambda tx: tx.queue("/made-and-gone"))
    assert one.rows("SELECT id FROM queue WHERE name = '/made-and-gone'") == [{"id": key}]


def test_a_queue_is_made_once_and_its_dead_letters_know_whose_they_are(one: Instance, two: Instance) -> None:
    key = one.run(lambda tx: tx.queue("/orders"))
    assert two.run(lambda tx: tx.queue("/orders")) == key
    dead = one.run(lambda tx: tx.dead_letters(key))
    assert two.run(lambda tx: tx.dead_letters(key)) == dead
    (row,) = one.rows("SELECT name, kind, parent FROM queue WHERE id = ?", dead)
    assert row == {"name": "/orders#dead", "kind": "dead_letter", "parent": key}


def test_two_sequences_may_not_have_one_identifier(one: Instance) -> None:
    record = one.record(one.create().terms.identifier)
    with pytest.raises(sqlite3.IntegrityError):
        one.run(lambda tx: tx.add_sequence(copy(record), None))


@pytest.mark.invariant("I1")
def test_a_position_is_never_used_again_not_even_after_a_purge_and_a_restart(node: Node) -> None:
    first = node.start()
    identifier = first.create().terms.identifier
    positions = [first.take(identifier, number).position for number in (1, 2, 3)]
    with first.transaction() as tx:
        tx.execute("DELETE FROM entry")
        tx.execute("DELETE FROM message")
    first.close()
    second = node.start()
    later = [second.take(identifier, number).position for number in (4, 5)]
    every = [*positions, *later]
    assert all(p is not None for p in every)
    assert every == sorted(set(every))  # type: ignore[type-var]


def test_run_once_commits_one_transaction_and_wakes_the_live_instances(store: Store, clock: ManualClock) -> None:
    store.call(lambda tx: tx.queue("/orders"))
    policy = QueuePolicy()
    made = run_once(
        store.path, lambda tx: create(tx, sender(), CreateSequence(None), None, policy).created, clock=clock
    )
    assert made is not None
    assert store.presence is not None
    assert store.presence.wait(5) == {"look"}
    assert store.call(lambda tx: tx.sequence_named(made.terms.identifier)) is not None


def test_run_once_that_fails_stores_nothing(store: Store) -> None:
    def breaks(tx: Transaction) -> None:
        tx.ledger("never")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        run_once(store.path, breaks)
    with store.reader() as db:
        assert db.execute("SELECT count(*) FROM ledger WHERE event = 'never'").fetchone() == (0,)
