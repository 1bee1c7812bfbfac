"""A slot before a fetch: a process takes no sequence that it has no thread for, and another takes what it leaves."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process import TWO_WAY, InProcess, taken, until

THREADS = 4
SEQUENCES = 24
OWNERS = "SELECT count(*) FROM sequence WHERE owner IS NOT NULL GROUP BY owner ORDER BY 1"


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
