"""The comparison of queues: a small run of those that need no server, and that all of them keep what they are given."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bench.queue import LEASE_30, QUICK, Rate, Results, figures, report, run
from bench.queue_own import BARE, OURS, filled
from bench.queue_rivals import RIVALS, System

pytest.importorskip("persistqueue", reason="no other queues: make bench-queue installs them")

IN_FILES = (OURS, BARE, *RIVALS)
SMALL = QUICK._replace(seconds=0.02, waiting=0.02, together_seconds=0.1, wake_ups=3, few=100, many=300)


@pytest.mark.parametrize("system", IN_FILES, ids=lambda system: system.name)
def test_what_is_put_is_received_once_and_unchanged(system: System, tmp_path: Path) -> None:
    with system.runs(tmp_path) as server, closing(system.connect(server.fresh())) as queue:
        queue.put([b"one"])
        queue.put([b"two", b"three"])
        leased = queue.lease(2, 0.0)
        queue.ack(leased)
        rest = queue.lease(5, 0.0)
        queue.ack(rest)
        assert [bytes(body) for body, _ in [*leased, *rest]] == [b"one", b"two", b"three"]
        assert not queue.lease(1, 0.0)


def test_a_loop_of_plain_sql_writes_the_rows_that_our_queue_writes(tmp_path: Path) -> None:
    written = []
    for system in (OURS, BARE):
        place = str(tmp_path / f"{system.name}.db")
        with closing(system.connect(place)) as queue, closing(sqlite3.connect(place)) as db:
            queue.put([b"one"] * 4)
            queue.ack(queue.lease(3, 0.0)[:1])
            written.append({table: filled_columns(db, table) for table in ("message", "entry", "queue", "header")})
    assert written[0] == written[1]


def filled_columns(db: sqlite3.Connection, table: str) -> list[set[str]]:
    cursor = db.execute(f"SELECT * FROM {table} ORDER BY 1")
    names = [column[0] for column in cursor.description]
    return [{name for name, value in zip(names, row, strict=True) if value is not None} for row in cursor]


@pytest.mark.timeout(120)
def test_a_small_run_measures_ours_beside_those_that_need_no_server(tmp_path: Path) -> None:
    results = run(IN_FILES, SMALL, tmp_path)
    assert all(rate.per_second > 0 for by_name in results.rates.values() for of in by_name.values() for rate in of)
    ours = results.together[OURS.name][0]
    assert (ours.failed, ours.repeated) == (0, 0)
    assert ours.settled > 0
    assert set(results.waiting) == {"put", "lease", "ack"}
    assert list(tmp_path.iterdir()) == []
    text = report(IN_FILES, results, 1.0, 0.5)
    assert all(said in text for said in ("wsrm_mq to bare SQL, the same rows", "fsync of a page", "persist-queue 1"))


def test_ours_is_held_against_the_best_that_counts() -> None:
    counting = [system.name for system in RIVALS if system.counts]
    rates = {system.name: [Rate(1_000_000.0, 0.0)] for system in IN_FILES}
    rates |= {OURS.name: [Rate(900.0, 0.0)], counting[0]: [Rate(50.0, 0.0)], counting[1]: [Rate(100.0, 0.0)]}
    results = Results({case: rates for case in (LEASE_30, "put, 256 a commit")}, {}, {}, {}, [1.0])
    bounded = {figure.name: figure for figure in figures(results) if figure.bound and figure.case == LEASE_30}
    assert bounded[f"{OURS.name} to {counting[1]}"].values == [9.0]
    assert len(bounded) == 2


def test_a_store_is_filled_with_messages_that_are_leased_as_any(tmp_path: Path) -> None:
    place = filled(tmp_path / "store.db", 50)
    with closing(OURS.connect(place)) as queue:
        leased = queue.lease(60, 0.0)
        queue.put([b"more"])
        assert [bytes(body) for body, _ in leased] == [b"first"] * 50
        queue.ack(leased)
        assert [bytes(body) for body, _ in queue.lease(2, 0.0)] == [b"more"]
