"""The thread that keeps house, beside a service that works."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process import FACTORY, InProcess, taken, until
from wsrm_mq.delivery.janitor import Janitor
from wsrm_mq.queue import archiving
from wsrm_mq.queue.archiving import Archived
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.store import archiving as archiving_sql
from wsrm_mq.store.identity import identify
from wsrm_mq.store.routing import ARRIVED
from wsrm_mq.store.sqlite.witness import Witness
from wsrm_mq.store.store import Store
from wsrm_mq.testing import ManualClock, Reply

DAY = 24 * 3_600_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def service(tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcess]:
    monkeypatch.setattr("wsrm_mq.config.settings.QueuePolicy", partial(QueuePolicy, retain_ended=40 * DAY))

    def app(_environ: dict[str, Any], start_response: Any) -> Any:
        return taken(start_response)

    service = InProcess(tmp_path, app, clock=clock, one_way=("urn:example:orders/put_order",))
    yield service
    service.middleware.close()


def worked(service: InProcess, count: int) -> str:
    """A sequence with so many messages, all delivered."""
    identifier = service.create()
    for number in range(1, count + 1):
        assert service.put(identifier, number).startswith("200")
    assert until(lambda: service.rows("SELECT count(*) FROM entry WHERE outcome IS NULL") == [(0,)])
    return identifier


def test_it_prunes_what_the_configuration_keeps_no_longer(service: InProcess, clock: ManualClock) -> None:
    identifier = worked(service, 3)
    janitor = service.middleware.engine.janitor
    assert janitor.sweep().messages == 0
    clock.advance(7 * DAY)
    assert janitor.sweep().messages == 3
    assert service.put(identifier, 2).startswith("500"), "unknown: its Expires is over"
    assert service.rows("SELECT count(*) FROM message") == [(0,)]
    assert len(service.rows("SELECT reason FROM ledger WHERE event = 'pruned'")) == 1


def test_it_works_by_itself(service: InProcess, clock: ManualClock) -> None:
    engine = service.middleware.engine
    worked(service, 3)
    clock.advance(7 * DAY)
    janitor = Janitor(engine.store, service.middleware._front._policy_of, witness_seconds=0.01, sweep_seconds=0.02)
    janitor.start()
    try:
        assert until(lambda: service.rows("SELECT count(*) FROM message") == [(0,)])
        seen = Witness(service.path).seen()
        service.create()
        assert until(lambda: Witness(service.path).seen() != seen)
    finally:
        janitor.stop()


def test_one_that_is_not_to_prune_only_tells_the_witness(service: InProcess, clock: ManualClock) -> None:
    worked(service, 3)
    clock.advance(7 * DAY)
    policy_of = service.middleware._front._policy_of
    store = service.middleware.engine.store
    janitor = Janitor(store, policy_of, prunes=False, witness_seconds=0.01, sweep_seconds=0.01)
    seen = Witness(service.path).seen()
    janitor.start()
    try:
        assert until(lambda: Witness(service.path).seen() != seen)
    finally:
        janitor.stop()
    assert service.rows("SELECT count(*) FROM message") == [(3,)]


def test_one_instance_at_a_time_does_it(service: InProcess, clock: ManualClock) -> None:
    worked(service, 3)
    clock.advance(7 * DAY)
    janitor = service.middleware.engine.janitor
    other = os.open(service.path.with_name("store.db.d") / "janitor", os.O_CREAT | os.O_RDWR)
    fcntl.flock(other, fcntl.LOCK_EX)
    assert janitor.sweep().messages == 0
    os.close(other)
    assert janitor.sweep().messages == 3


def test_old_instances_are_forgotten_those_that_live_are_not(service: InProcess, clock: ManualClock) -> None:
    for _ in range(3):
        other = Store(service.path, clock=clock)
        other.open()
        other.close()
    assert service.rows("SELECT count(*) FROM instance") == [(4,)]
    clock.advance(41 * DAY)
    service.middleware.engine.janitor.sweep()
    assert service.rows("SELECT name FROM instance") == [(service.middleware.engine.store.presence.name,)]  # type: ignore[union-attr]


STRANGER = "SELECT name FROM queue WHERE name LIKE '/stranger%' ORDER BY name"
COUNTS = "SELECT queue, sum(value) FROM counter WHERE name = 'made up' GROUP BY queue"


def visited(service: InProcess) -> None:
    """A sequence on a path that a stranger makes up, which ends; and one behind it, for the newest stays."""
    made = Reply.parse(service.post(FACTORY.create_sequence(), PATH_INFO="/stranger")[1]).created
    assert made is not None
    where = "SELECT q.name FROM lane s JOIN queue q ON q.id = s.queue WHERE s.identifier = ?"
    assert service.rows(where, made.identifier) == [("/stranger",)]
    service.post(FACTORY.terminate(made.identifier), PATH_INFO="/stranger")
    service.create()


def test_a_queue_of_which_nothing_is_left_goes_and_its_path_is_served_as_before(
    service: InProcess, clock: ManualClock
) -> None:
    """A stranger's paths would stay for ever. Another process, too, may take away what this one knows the key of."""
    visited(service)
    engine = service.middleware.engine
    engine.store.call(lambda tx: tx.dead_letters(tx.queue("/stranger")))
    engine.store.call(lambda tx: (tx.counts.update({("made up", tx.queue("/stranger"), ""): 1}), tx.count_now()))
    clock.advance(40 * DAY - 1)
    engine.janitor.sweep()
    assert service.rows(STRANGER) == [("/stranger",), ("/stranger#dead",)]
    other = Store(service.path, clock=clock)
    other.open()
    for store in (engine.store, other):
        clock.advance(41 * DAY)
        Janitor(store, service.middleware._front._policy_of).sweep()
        assert service.rows(STRANGER) == []
        assert service.rows(COUNTS) == []
        visited(service)
    other.close()


def test_what_was_counted_of_a_queue_without_a_time_series_of_its_own_never_falls(
    service: InProcess, clock: ManualClock
) -> None:
    engine = service.middleware.engine
    service.create()
    service.rows("UPDATE sqlite_sequence SET seq = 1000 WHERE name = 'queue'")
    for times in (1, 2):
        visited(service)
        engine.store.call(lambda tx: (tx.counts.update({("made up", tx.queue("/stranger"), ""): 1}), tx.count_now()))
        clock.advance(41 * DAY)
        engine.janitor.sweep()
        assert service.rows(STRANGER) == []
        assert service.rows(COUNTS) == [(-1, times)]


def test_a_sweep_ends_with_the_batch_it_is_at_when_it_is_stopped(
    service: InProcess, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wsrm_mq.delivery.janitor.rest_after", lambda _took: 60.0)
    worked(service, 2)
    monkeypatch.setattr("wsrm_mq.queue.retention.BATCH_BYTES", 1)
    clock.advance(7 * DAY)
    janitor = Janitor(service.middleware.engine.store, service.middleware._front._policy_of, witness_seconds=0.01)
    janitor._sweep_seconds = 0.01
    janitor.start()
    assert until(lambda: service.rows("SELECT count(*) FROM message") == [(1,)])
    began = time.monotonic()
    janitor.stop()
    assert time.monotonic() - began < 5
    assert service.rows("SELECT count(*) FROM message") == [(1,)]


def test_a_restart_finds_the_witness_where_it_left_it(service: InProcess) -> None:
    worked(service, 1)
    for _ in range(2):
        service.middleware.close()
        service.open()
        worked(service, 1)


def test_it_waits_for_an_archive_where_that_is_configured(tmp_path: Path, clock: ManualClock) -> None:
    def app(_environ: dict[str, Any], start_response: Any) -> Any:
        return taken(start_response)

    service = InProcess(
        tmp_path, app, clock=clock, one_way=("urn:example:orders/put_order",), retain_until_archived=True
    )
    try:
        worked(service, 3)
        clock.advance(7 * DAY)
        janitor = service.middleware.engine.janitor
        assert janitor.sweep().messages == 0
        with service.middleware.engine.store.reader() as db:
            known = identify(db)
            (last,) = db.execute(archiving_sql.LAST_LEDGER).fetchone()
        held = Archived("a" * 32, "/archive", 1, known.id, known.mark, None, last, clock(), ((1, 2),), ())
        service.middleware.engine.store.call(lambda tx: archiving.confirm(tx, held, actor="ada"))
        assert janitor.sweep().messages == 2
        assert service.rows("SELECT id FROM entry") == [(3,)]
    finally:
        service.middleware.close()


def test_what_has_arrived_from_other_nodes_is_known_for_thirty_days_whatever_a_service_keeps(
    service: InProcess, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wsrm_mq.delivery.janitor._ARRIVED_BATCH", 2)
    store = service.middleware.engine.store

    def arrive(tx: Any) -> None:
        for days, positions in ((31, range(5)), (29, (9,))):
            for position in positions:
                row = {"queue": 1, "node": "a", "incarnation": "x", "position": position, "at": tx.now - days * DAY}
                tx.execute(ARRIVED, row)

    store.call(arrive)
    Janitor(store, lambda _partner: QueuePolicy(retain_ended=600_000)).sweep()
    assert service.rows("SELECT position FROM arrived") == [(9,)]
