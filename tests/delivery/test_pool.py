"""How many threads take part in what work: as few as quick operations need, as many as slow ones do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.in_process import until
from wsrm_mq.delivery.pool import LOOK_SECONDS, Pace, Pool
from wsrm_mq.events.telling import Events

QUICK, SLOW = 0.000_01, 0.1
OFTEN = 100

Make = Callable[..., Pool[Any]]


@pytest.fixture
def make() -> Iterator[Make]:
    """Pools of which every item is a function; what it takes to be quick or slow is told by the test."""
    pools: list[Pool[Any]] = []

    def made(*, is_quick: bool, threads: int = 8, max_threads: int = 8) -> Pool[Any]:
        pool: Pool[Any] = Pool(lambda item: item(), threads=threads, max_threads=max_threads, events=Events())
        pools.append(pool)
        for _ in range(OFTEN):
            pool.pace.took(QUICK if is_quick else SLOW)
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


def with_a_lookout(pool: Pool[Any]) -> None:
    """Two threads, of which one looks from now on, for a while."""
    with_threads(pool, 2)
    assert until(lambda: pool.has_lookout)


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
    pool.put_off(True)
    for item in items:
        pool.give(item)
    pool.put_off(False)
    pool.send()


def test_all_that_is_given_is_done_in_its_order_by_one_thread(make: Make) -> None:
    done: list[int] = []
    pool = make(is_quick=True, threads=1, max_threads=1)
    for number in range(OFTEN):
        pool.give(lambda number=number: done.append(number))
    assert until(lambda: len(done) == OFTEN)
    assert done == list(range(OFTEN))


@pytest.mark.parametrize(("is_looked_after", "woken"), [(True, 1), (False, 2)])
def test_for_quick_work_one_thread_is_woken_where_somebody_looks(
    make: Make, monkeypatch: pytest.MonkeyPatch, is_looked_after: bool, woken: int
) -> None:
    pool = make(is_quick=False)
    with_threads(pool, 2)
    assert until(lambda: pool._idle == 2)
    for _ in range(OFTEN):
        pool.pace.took(QUICK)
    pool.has_lookout = is_looked_after  # in its stead: one that really looks may come to it just then
    told, wake = [], pool._changed.notify
    monkeypatch.setattr(pool._changed, "notify", lambda: (told.append(1), wake()))
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()
    pool.put_off(True)
    with pool._lock:  # all is given before a thread looks
        pool._items.extend([lambda: (begun.set(), go_on.wait(5)), lambda: None, done.set])
    pool.send()
    assert begun.wait(5)
    assert len(told) == woken
    go_on.set()
    assert done.wait(5)


def test_what_lies_behind_an_operation_that_turns_out_to_block_is_done_by_another(make: Make) -> None:
    pool = make(is_quick=True)
    with_a_lookout(pool)
    gate, rest = Gate(), threading.Barrier(3)
    given_at_once(pool, [gate, rest.wait, rest.wait])
    assert gate.entered.wait(5)
    rest.wait(5)  # both, at the same time, although the first blocks
    gate.open()


def test_operations_that_block_a_little_do_not_queue_up_behind_one_thread(make: Make) -> None:
    """What blocks for a commit, say: no operation of the application was slow."""
    pool = make(is_quick=True)
    with_a_lookout(pool)
    by: list[int] = []

    def item() -> None:
        time.sleep(LOOK_SECONDS / 2)
        by.append(threading.get_ident())

    given_at_once(pool, [item] * 64)
    assert until(lambda: len(by) == 64)
    assert len(set(by)) > 2


def test_a_thread_that_is_sent_for_just_when_it_looks_is_not_waited_for_for_ever(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its wait is over, so it does not hear it; and who works takes the item before it is back."""
    monkeypatch.setattr("wsrm_mq.delivery.pool._LOOKS", 1_000_000)  # until it was seen
    pool = make(is_quick=True)
    with_a_lookout(pool)
    busy = Gate()
    pool.give(busy)
    assert busy.entered.wait(5)
    is_looking, go_on = threading.Event(), threading.Event()
    take_lock_again = pool._changed._acquire_restore  # type: ignore[attr-defined]

    def late(state: Any) -> None:
        if threading.current_thread().name == "wsrm-mq-dispatch" and not is_looking.is_set():
            is_looking.set()
            assert go_on.wait(5)
        take_lock_again(state)

    other = threading.Event()
    pool.give(other.set)  # so that it looks, whoever of the two was woken for the gate
    assert other.wait(5)
    assert until(lambda: pool.has_lookout)
    monkeypatch.setattr(pool._changed, "_acquire_restore", late)
    assert is_looking.wait(5)
    pool.give(lambda: None)
    busy.open()
    assert until(lambda: not pool.waiting)
    monkeypatch.setattr("wsrm_mq.delivery.pool._LOOKS", 2)
    go_on.set()
    assert until(lambda: not pool.has_lookout)
    begun = threading.Event()
    pool.give(begun.set)
    assert begun.wait(5)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ends_as_nobody_thought_leaves_its_place_to_another(make: Make) -> None:
    def end() -> None:
        raise SystemExit

    pool = make(is_quick=False, threads=1, max_threads=1)
    done = threading.Event()
    pool.give(end)
    assert until(lambda: not pool.size)
    pool.give(done.set)
    assert done.wait(5)


def test_where_the_system_has_no_thread_left_those_who_are_there_do_it(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pool = make(is_quick=False)
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
    pool = make(is_quick=False)
    together = threading.Barrier(9)
    given_at_once(pool, [together.wait] * 8)
    together.wait(5)


@pytest.mark.parametrize("is_sent", [True, False], ids=["a thread is sent", "nobody sends"])
def test_what_was_put_off_is_begun_when_a_thread_is_sent_and_all_the_same_if_not(make: Make, is_sent: bool) -> None:
    pool = make(is_quick=True)
    with_a_lookout(pool)
    begun = threading.Event()
    pool.put_off(True)
    pool.give(begun.set)
    if is_sent:
        pool.send()
    assert begun.wait(5)


@pytest.mark.parametrize("is_quick", [True, False], ids=["nobody looks", "operations are slow"])
def test_nothing_is_put_off_where_nobody_would_see_to_it(make: Make, is_quick: bool) -> None:
    pool = make(is_quick=is_quick)
    begun = threading.Event()
    pool.put_off(True)
    assert not pool.has_lookout
    pool.give(begun.set)
    assert begun.wait(5)


def test_nobody_looks_while_there_is_nothing_to_do(make: Make) -> None:
    pool = make(is_quick=True)
    with_a_lookout(pool)
    assert until(lambda: not pool.has_lookout)
    time.sleep(10 * LOOK_SECONDS)
    assert not pool.has_lookout
    begun = threading.Event()
    pool.give(begun.set)
    assert begun.wait(5)


def test_more_threads_than_are_kept_end_when_they_have_nothing_to_do(make: Make) -> None:
    pool = make(is_quick=False, threads=2, max_threads=6)
    with_threads(pool, 6)
    assert until(lambda: pool.size == 2)


def test_a_pool_that_can_grow_no_more_says_so_once(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    pool = make(is_quick=False, threads=1, max_threads=2)
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
    pool = make(is_quick=True, threads=1, max_threads=1)
    gate, last = Gate(), threading.Event()
    pool.give(gate)
    assert gate.entered.wait(5)
    pool.give(last.set)
    pool.stop()
    assert not pool.join(time.monotonic() + 0.05)
    gate.open()
    assert pool.join(time.monotonic() + 5)
    assert last.is_set()


def test_operations_are_quick_only_when_that_is_known_of_many() -> None:
    pace = Pace()
    pace.took(QUICK)
    assert not pace.is_quick
    for _ in range(OFTEN):
        pace.took(QUICK)
    assert pace.is_quick


@pytest.mark.parametrize(("every", "is_quick"), [(1, False), (2, False), (5, False), (10, True)])
def test_operations_are_not_quick_where_one_of_five_is_slow(every: int, is_quick: bool) -> None:
    pace = Pace()
    for number in range(10 * OFTEN):
        pace.took(SLOW if number % every == 0 else QUICK)
    assert pace.is_quick is is_quick
