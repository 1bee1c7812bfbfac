"""A slot before a fetch: a process takes no sequence that it has no thread for, and another takes what it leaves."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process import TWO_WAY, InProcess, taken, until

THREADS = 4
SEQUENCES = 24
OWNERS = "SELECT count(*) FROM lane WHERE owner IS NOT NULL GROUP BY owner ORDER BY 1"


class Service:
    """Takes a message when it ``may_go``."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.may_go = threading.Event()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        self.calls.append((environ["wsrm.sequence_id"], environ["wsrm.message_number"]))
        assert self.may_go.wait(30)
        return taken(start_response)


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    yield made
    made.may_go.set()


@pytest.fixture
def processes(tmp_path: Path, service: Service) -> Iterator[list[InProcess]]:
    """Two of few threads, as far as the store can tell."""
    with ExitStack() as ends:
        started = []
        for _ in range(2):
            process = InProcess(tmp_path, service, hold_wait=0.2)
            process.middleware.start()
            process.middleware.engine.dispatcher.pool._max_threads = THREADS
            ends.callback(process.middleware.close, 10)
            ends.callback(service.may_go.set)
            started.append(process)
        yield started


def delivered(process: InProcess) -> int:
    [(count,)] = process.rows("SELECT count(*) FROM entry WHERE outcome = 'delivered'")
    return int(count)


@pytest.mark.invariant("I7")
def test_of_two_processes_each_has_as_many_sequences_as_threads_and_all_are_delivered_once(
    processes: list[InProcess], service: Service
) -> None:
    busy, idle = processes
    identifiers = [busy.create() for _ in range(SEQUENCES)]
    for number in (1, 2, 3):
        for identifier in identifiers:
            assert busy.put(identifier, number).startswith("200")
    assert until(lambda: busy.rows(OWNERS) == [(THREADS,), (THREADS,)], 3), "what one leaves the other takes"
    until(lambda: len(service.calls) >= 2 * THREADS, 3)  # a sequence has its owner before its thread calls
    assert len(service.calls) == 2 * THREADS
    service.may_go.set()
    assert until(lambda: delivered(idle) == 3 * SEQUENCES)
    assert Counter(service.calls) == Counter((each, number) for each in identifiers for number in (1, 2, 3))
    for identifier in identifiers:
        assert [number for name, number in service.calls if name == identifier] == [1, 2, 3]
    assert until(lambda: busy.rows(OWNERS) == [])


def test_what_was_left_is_run_by_the_threads_that_come_back_and_not_a_poll_later(
    processes: list[InProcess], service: Service
) -> None:
    alone, other = processes
    other.middleware.close(5)
    identifiers = [alone.create() for _ in range(SEQUENCES)]
    for identifier in identifiers:
        alone.put(identifier, 1)
    assert alone.rows(OWNERS) == [(THREADS,)]
    service.may_go.set()
    assert until(lambda: delivered(alone) == SEQUENCES, 0.9), "less than a poll"


def test_a_request_that_waits_for_its_message_has_a_thread_of_its_own(
    processes: list[InProcess], service: Service
) -> None:
    busy, _idle = processes
    for _ in range(2 * THREADS):
        busy.put(busy.create(), 1)
    assert until(lambda: busy.rows(OWNERS) == [(THREADS,), (THREADS,)], 3)
    identifier = busy.create()
    request = threading.Thread(target=busy.put, args=(identifier, 1), kwargs={"reply_to": TWO_WAY})
    request.start()
    assert until(lambda: (identifier, 1) in service.calls, 3)
    service.may_go.set()
    request.join(10)
    assert until(lambda: delivered(busy) == 2 * THREADS + 1)


def test_a_sequence_that_always_has_more_leaves_its_slot_to_those_that_wait_in_the_store(
    processes: list[InProcess], service: Service
) -> None:
    alone, other = processes
    other.middleware.close(5)
    alone.middleware.engine.dispatcher.pool._max_threads = 1
    long, short = alone.create(), alone.create()
    for number in range(1, 200):
        alone.put(long, number)
    alone.put(short, 1)
    service.may_go.set()
    assert until(lambda: delivered(alone) == 200)
    assert service.calls.index((short, 1)) < 199
    assert [number for name, number in service.calls if name == long] == list(range(1, 200))


def test_what_a_process_gave_back_and_another_delivered_is_not_run_from_memory(
    processes: list[InProcess], service: Service, tmp_path: Path
) -> None:
    for process in processes:
        process.middleware.close(5)
    first, second = (InProcess(tmp_path, service, ordered=False) for _ in range(2))
    second.middleware.close(5)
    try:
        first.middleware.start()
        dispatcher = first.middleware.engine.dispatcher
        identifier = first.create()
        for number in (1, 3, 5):
            first.put(identifier, number)
        dispatcher._are_left = dispatcher._is_fetching = True  # its turn is over, and it fetches nothing
        service.may_go.set()
        assert until(lambda: first.rows(OWNERS) == [])
        second.open()
        second.middleware.start()
        assert until(lambda: delivered(first) == 3)
        first.put(identifier, 4)
        assert until(lambda: delivered(first) == 4)
    finally:
        first.middleware.close(5)
        second.middleware.close(5)
    assert sorted(number for _name, number in service.calls) == [1, 3, 4, 5]


@pytest.mark.timed
def test_what_was_left_is_run_though_the_last_commit_is_told_before_its_thread_is_back(
    processes: list[InProcess], service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, other = processes
    other.middleware.close(5)
    engine = alone.middleware.engine
    engine.dispatcher.pool._max_threads = 1
    submit = engine.store.submit

    def and_dawdle(*given: Any, **named: Any) -> None:
        submit(*given, **named)
        if threading.current_thread().name == "wsrm-mq-dispatch":
            time.sleep(0.1)

    monkeypatch.setattr(engine.store, "submit", and_dawdle)
    for _ in range(2):
        alone.put(alone.create(), 1)
    time.sleep(0.2)  # the watch has looked
    service.may_go.set()
    assert until(lambda: delivered(alone) == 2, 0.6), "less than a poll"


@pytest.mark.timed
def test_the_watch_sleeps_while_a_retry_is_due_and_no_thread_is_free(tmp_path: Path, service: Service) -> None:
    failed: list[bool] = []

    def fails_once(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if not failed:
            failed.append(True)
            start_response("500 Internal Server Error", [])
            return []
        return service(environ, start_response)

    alone = InProcess(tmp_path, fails_once, retry=[0.2])
    try:
        alone.middleware.start()
        engine, turns = alone.middleware.engine, list[bool]()
        engine.dispatcher.pool._max_threads = 1
        alone.put(alone.create(), 1)
        assert until(lambda: alone.rows("SELECT 1 FROM lane WHERE retry_at IS NOT NULL"))
        alone.put(alone.create(), 1)
        look = engine.watch._turn
        engine.watch._turn = lambda: turns.append(True) or look()  # type: ignore[method-assign,func-returns-value]
        time.sleep(0.8)
        assert len(turns) < 10
        service.may_go.set()
        assert until(lambda: delivered(alone) == 2, 0.6), "less than a poll"
    finally:
        service.may_go.set()
        alone.middleware.close(5)
