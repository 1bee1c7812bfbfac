"""How many threads take part in what work: as few as it needs, as many as block."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.in_process import until
from wsrm_mq.delivery.pool import Pool
from wsrm_mq.events.telling import Events

OFTEN = 100

Make = Callable[..., Pool[Any]]


@pytest.fixture
def make() -> Iterator[Make]:
    """Pools of which every item is a function."""
    pools: list[Pool[Any]] = []

    def made(*, threads: int = 8, max_threads: int = 8) -> Pool[Any]:
        pool: Pool[Any] = Pool(lambda item: item(), threads=threads, max_threads=max_threads, events=Events())
        pools.append(pool)
        return pool

    yield made
    for pool in pools:
        pool.stop()
        assert pool.join(time.monotonic() + 5)


def with_threads(pool: Pool[Any], count: int) -> None:
    """Let so many have had something to do, at the same time."""
    together = threading.Barrier(count + 1)
    for _ in range(count):
        pool.give(together.wait)
    together.wait(5)


class Gate:
    """An operation that blocks until it is opened."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self._opened = threading.Event()

    def __call__(self) -> None:
        self.entered.set()
        assert self._opened.wait(10)

    def open(self) -> None:
        self._opened.set()


def given_at_once(pool: Pool[Any], items: list[Callable[[], object]]) -> None:
    """Given while no thread can take any: as by a commit that tells many."""
    with pool._lock:
        pool.waiting.extend(items)
    pool.look_after()


def test_all_that_is_given_is_done_in_its_order_by_one_thread(make: Make) -> None:
    done: list[int] = []
    pool = make(threads=1, max_threads=1)
    for number in range(OFTEN):
        pool.give(lambda number=number: done.append(number))
    assert until(lambda: len(done) == OFTEN)
    assert done == list(range(OFTEN))


def test_what_lies_behind_an_operation_that_turns_out_to_block_is_done_by_another(make: Make) -> None:
    pool = make()
    with_threads(pool, 2)
    gate, rest = Gate(), threading.Barrier(3)
    given_at_once(pool, [gate, rest.wait, rest.wait])
    assert gate.entered.wait(5)
    rest.wait(5)  # both, at the same time, although the first blocks
    gate.open()


def test_operations_that_block_a_little_do_not_queue_up_behind_one_thread(make: Make) -> None:
    """What blocks for a commit, say: no operation of the application was slow."""
    pool = make()
    with_threads(pool, 2)
    by: list[int] = []

    def item() -> None:
        time.sleep(0.0025)
        by.append(threading.get_ident())

    given_at_once(pool, [item] * 64)
    assert until(lambda: len(by) == 64)
    assert len(set(by)) > 2


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ends_unexpectedly_leaves_its_place_to_another(make: Make) -> None:
    def end() -> None:
        raise SystemExit

    pool = make(threads=1, max_threads=1)
    done = threading.Event()
    pool.give(end)
    assert until(lambda: not pool._workers)
    pool.give(done.set)
    assert done.wait(5)


def test_where_the_system_has_no_thread_left_those_who_are_there_do_it(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pool = make()
    gate, done = Gate(), threading.Event()
    pool.give(gate)
    assert gate.entered.wait(5)

    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    pool.give(done.set)
    monkeypatch.undo()
    assert [record.getMessage() for record in caplog.records] == ["dispatch.exhausted of=sequences threads=1 waiting=1"]
    gate.open()
    assert done.wait(5)


def test_slow_operations_are_begun_all_at_once(make: Make) -> None:
    pool = make()
    together = threading.Barrier(9)
    given_at_once(pool, [together.wait] * 8)
    together.wait(5)


def test_more_threads_than_are_kept_end_when_they_have_nothing_to_do(make: Make) -> None:
    pool = make(threads=2, max_threads=6)
    with_threads(pool, 6)
    assert until(lambda: len(pool._workers) == 2)


def test_a_pool_that_can_grow_no_more_says_so_once(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    pool = make(threads=1, max_threads=2)
    gates = [Gate(), Gate()]
    for gate in gates:
        pool.give(gate)
        assert gate.entered.wait(5)
    done = threading.Barrier(2)
    pool.give(lambda: None)
    pool.give(done.wait)
    assert [record.getMessage() for record in caplog.records] == ["dispatch.exhausted of=sequences threads=2 waiting=1"]
    for gate in gates:
        gate.open()
    done.wait(5)


def test_a_stop_lets_all_be_done_that_was_given_and_a_join_says_whether_it_was(make: Make) -> None:
    pool = make(threads=1, max_threads=1)
    gate, last = Gate(), threading.Event()
    pool.give(gate)
    assert gate.entered.wait(5)
    pool.give(last.set)
    pool.stop()
    assert not pool.join(time.monotonic() + 0.05)
    gate.open()
    assert pool.join(time.monotonic() + 5)
    assert last.is_set()
