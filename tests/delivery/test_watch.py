"""The net under every wake-up: each turn does a bounded part of all there is to do, what can be delivered first."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.queue.build import USUAL, Instance, Node, arrival, sender
from tests.support.in_process import InProcess, taken, until
from wsrm_mq.delivery import watch as watching
from wsrm_mq.delivery.completion import Waiters
from wsrm_mq.delivery.delivery import Delivery, Outcome
from wsrm_mq.delivery.dispatcher import Dispatcher, Duty
from wsrm_mq.delivery.watch import Watch
from wsrm_mq.events.telling import Events
from wsrm_mq.queue.accept import accept
from wsrm_mq.queue.creation import create
from wsrm_mq.queue.ownership import runnable
from wsrm_mq.sequence.elements import CloseSequence, CreateSequence, IncompleteSequenceBehavior
from wsrm_mq.store import port
from wsrm_mq.store.store import Store

MINUTE = 60_000
DUTY = Duty(is_asked=True)
FOLLOWING = replace(USUAL, behavior=IncompleteSequenceBehavior.DISCARD_FOLLOWING_FIRST_GAP)


class Watched:
    """A watch over the store, and what it had delivered."""

    def __init__(self, node: Node) -> None:
        self.calls: list[tuple[str, int]] = []
        self.store = Store(node.path, clock=node.clock)
        self.store.open()
        waiters = Waiters(0)
        events = Events()
        self.dispatcher = Dispatcher(self.store, self._call, lambda _partner: USUAL, waiters, DUTY, events=events)
        self.watch = Watch(self.store, self.dispatcher, waiters, lambda _partner: USUAL, DUTY, events)

    def _call(self, delivery: Delivery) -> Outcome:
        self.calls.append((delivery.identifier, delivery.number))
        return Outcome()

    def close(self) -> None:
        self.watch.stop()
        self.dispatcher.stop()
        self.store.close()


@pytest.fixture
def watched(node: Node) -> Iterator[Watched]:
    watched = Watched(node)
    yield watched
    watched.close()


def free(one: Instance) -> None:
    """Nothing runs."""
    one.run(lambda tx: tx.execute("UPDATE lane SET owner = NULL"))


def deliverable(one: Instance, count: int) -> list[str]:
    """So many sequences with one message that could be delivered."""
    identifiers = [one.create().terms.identifier for _ in range(count)]
    for identifier in identifiers:
        one.take(identifier, 1)
    free(one)
    return identifiers


def given_up(one: Instance, tails: int, length: int) -> None:
    """So many sequences that have ended, each with a tail that no longer can be delivered."""
    for _ in range(tails):
        identifier = one.create(FOLLOWING).terms.identifier
        with one.transaction() as tx:
            for number in range(2, length + 2):
                accept(tx, arrival(identifier, number, policy=FOLLOWING))
        one.end(CloseSequence(identifier))


def count(one: Instance, condition: str, table: str = "lane") -> int:
    (row,) = one.rows(f"SELECT count(*) AS n FROM {table} WHERE {condition}")
    return int(row["n"])


def test_one_turn_does_a_bounded_part_of_each_and_says_that_there_is_more(
    one: Instance, node: Node, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "BATCH", 3)
    monkeypatch.setattr(watching, "BURIED", 5)
    given_up(one, tails=4, length=4)
    for _ in range(7):
        one.create(expires=MINUTE)
    deliverable(one, 7)
    node.clock.advance(2 * MINUTE)
    watched.watch.look()
    assert until(lambda: len(watched.calls) == 3)
    assert count(one, "ended = 'expired'") == 3
    assert count(one, "outcome = 'dead'", "entry") == 5
    watched.watch.start()
    assert until(lambda: len(watched.calls) == 7)
    assert until(lambda: count(one, "ended = 'expired'") == 7)
    assert until(lambda: count(one, "outcome = 'dead'", "entry") == 16)
    assert until(lambda: count(one, "discarding = 1") == 0)


def test_more_sequences_than_python_recurses_may_be_over_at_once(
    one: Instance, node: Node, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "BATCH", 1)
    with one.transaction() as tx:
        for _ in range(1_200):
            create(tx, sender(), CreateSequence(None, MINUTE), None, USUAL)
    node.clock.advance(2 * MINUTE)
    watched.watch.start()
    assert until(lambda: count(one, "ended = 'expired'") == 1_200, 60)


@pytest.mark.invariant("I7")
def test_a_long_tail_keeps_no_sequence_from_a_delivery_and_no_watch_from_its_end(
    one: Instance, node: Node, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "BURIED", 1)
    given_up(one, tails=1, length=5_000)
    watched.watch.look()
    watched.watch.start()
    (late,) = deliverable(one, 1)
    assert until(lambda: watched.calls == [(late, 1)], 3)
    begun = time.monotonic()
    watched.watch.stop()
    assert time.monotonic() - begun < 2
    assert count(one, "outcome IS NULL", "entry") > 1_000, "the tail was not over"


# ---- who lives


@pytest.mark.invariant("I3")
def test_whose_lock_files_are_removed_is_not_taken_for_dead_and_makes_them_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[Any] = []
    going_on = threading.Event()

    def operation(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        calls.append(environ["wsrm.message_number"])
        going_on.wait(20)
        return taken(start_response)

    services = [InProcess(tmp_path, operation) for _ in range(2)]
    stores = [service.middleware.engine.store for service in services]
    identifier = services[0].create()
    services[0].put(identifier, 1)
    assert until(lambda: calls == [1])
    with caplog.at_level(logging.CRITICAL, "wsrm_mq.instance"):
        shutil.rmtree(tmp_path / "store.db.d")
        assert until(lambda: all(store.presence is not None and store.presence.is_in_place for store in stores))
        assert until(lambda: len(caplog.records) == 2), "told behind the files"
    assert [record.getMessage().split()[0] for record in caplog.records] == ["instance.files_removed"] * 2
    time.sleep(2.5)
    assert calls == [1]
    going_on.set()
    assert until(lambda: services[0].rows("SELECT outcome, deliveries FROM entry") == [("delivered", 1)])
    for service in services:
        assert service.middleware.close(5)
    assert services[0].rows("SELECT count(*) FROM instance WHERE ended_at IS NULL") == [(0,)]


def test_who_does_not_make_a_missing_lock_file_again_is_dead(
    one: Instance, node: Node, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The instance ``one`` has a row and never had a lock, as after a copy of the store without its directory."""
    monkeypatch.setattr(port, "MISSING_SECONDS", 0.3)
    identifier = one.create().terms.identifier
    one.take(identifier, 1)
    assert one.run(lambda tx: runnable(tx, 1)) == []
    watched.watch.look()
    assert count(one, "owner IS NOT NULL") == 1
    watched.watch.start()
    assert until(lambda: watched.calls == [(identifier, 1)])


def test_who_claims_after_its_row_was_deleted_as_that_of_a_dead_instance_is_dead(
    one: Instance, watched: Watched
) -> None:
    """It stood still for longer than the rows of ended instances are kept, went on, and was killed at once."""
    identifier = one.create().terms.identifier
    one.take(identifier, 1)
    watched.store.call(lambda tx: tx.execute("DELETE FROM instance WHERE id = ?", (one.key,)))
    watched.watch.look()
    assert until(lambda: watched.calls == [(identifier, 1)])
    assert count(one, "owner IS NOT NULL AND owner NOT IN (SELECT id FROM instance)") == 0


@pytest.mark.parametrize("change", ["UPDATE instance SET ended_at = 1", "DELETE FROM instance"])
def test_an_instance_that_was_taken_for_dead_lives_again(watched: Watched, node: Node, change: str) -> None:
    watched.store.call(lambda tx: tx.execute(change))
    shutil.rmtree(node.path.with_name("store.db.d"))
    watched.watch.start()

    def live() -> list[tuple[int]]:
        with watched.store.reader() as db:
            return db.execute("SELECT id FROM instance WHERE ended_at IS NULL").fetchall()

    assert until(lambda: live() == [(watched.store.instance,)])


def test_what_is_to_be_counted_waits_for_the_store_and_no_stop_waits_for_that(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rm = InProcess(tmp_path, lambda _environ, start_response: taken(start_response))
    engine = rm.middleware._front.engine
    away = tmp_path / "away.db"

    def told_while_it_is_away() -> None:
        rm.path.rename(away)
        for name in ("instance.gone", "instance.files_removed"):  # the second turn begins when the first is over
            turned_at = engine.watch.turned_at
            engine.events.tell(name)
            assert until(lambda: engine.watch.turned_at > turned_at)  # noqa: B023

    told_while_it_is_away()
    away.rename(rm.path)
    counted = "SELECT value FROM counter WHERE name = 'event' AND label = 'instance.gone'"
    assert until(lambda: rm.rows(counted) == [(1,)])
    told_while_it_is_away()
    assert rm.middleware.close(20)
    assert "store.write_failed" in caplog.text
    assert "store.not_written" not in caplog.text
