"""Our threads go on, whatever is raised in them: by what is told of a commit, by a filter of the log, by the system."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from tests.events.test_telling import Raising, filtered, no_thread
from tests.store.test_writer import Held, Told, note, noted
from tests.support.in_process import until
from wsrm_mq.errors import StoreUnavailable
from wsrm_mq.events.telling import Events
from wsrm_mq.store.lasting import Lasting
from wsrm_mq.store.store import Store
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.store.writer import Writer


def writers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "wsrm-mq-writer"]


def throw(thread: threading.Thread, error: type[BaseException]) -> None:
    """What a timeout of a server's does to one of its threads."""
    assert thread.ident is not None
    assert ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(error)) == 1


@pytest.mark.parametrize("error", [RuntimeError, SystemExit, KeyboardInterrupt])
def test_a_callback_and_a_log_filter_that_raise_end_neither_the_writer_nor_what_it_tells_others(
    store: Store, error: type[BaseException]
) -> None:
    def told_badly(_result: object, _error: object) -> None:
        raise error

    told, held = Told(), Held(store)
    with filtered("wsrm_mq.store", Raising(error)):
        store.submit(note("first"), told_badly)
        store.submit(note("second"), told)
        held.let_go()
        assert told.wait(1) == ["second"]
    assert store.call(note("third")) == "third"
    assert noted(store) == ["first", "second", "third"]
    assert store.writer.is_alive


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_verb_that_is_interrupted_fails_alone(store: Store, error: type[BaseException]) -> None:
    def interrupted(tx: object) -> None:
        raise error

    told, held = Told(), Held(store)
    store.submit(note("first"), told)
    store.submit(interrupted, told)
    store.submit(note("last"), told)
    held.let_go()
    first, second, third = told.wait(3)
    assert (first, type(second), third) == ("first", error, "last")
    assert noted(store) == ["first", "last"]


def test_what_is_thrown_into_the_writers_thread_costs_nothing_that_waits(store: Store) -> None:
    for turn in range(20):
        told = Told()
        for number in range(10):
            store.submit(note(f"{turn}.{number}"), told, keep=True)
        throw(writers()[-1], KeyboardInterrupt)
        results = told.wait(10)
        assert [type(one) for one in results if not isinstance(one, str)] in ([], [KeyboardInterrupt])
    assert store.call(note("end")) == "end"
    assert len(noted(store)) >= 200
    assert store.writer.is_alive


def interrupted(call: int, work: Callable[[], object]) -> bool:
    """Run ``work`` in a thread, into which an error is thrown where it enters the ``call``-th function of the store.
    Answers whether there were so many."""
    left = call

    def trace(frame: FrameType, _event: str, _arg: object) -> None:
        nonlocal left
        if "/wsrm_mq/store/" in frame.f_code.co_filename:
            left -= 1
            if left == 0:
                raise KeyboardInterrupt

    def traced() -> None:
        with contextlib.suppress(KeyboardInterrupt):
            sys.settrace(trace)
            work()

    thread = threading.Thread(target=traced)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    return left <= 0


def test_what_is_thrown_into_a_thread_that_waits_for_its_commit_costs_nothing_that_is_written_with_it(
    store: Store,
) -> None:
    told, call = Told(), 1
    while True:
        store.submit(note(f"kept {call}"), told, keep=True, lingers=True)
        if not interrupted(call, lambda: store.call(note("called"))):
            break
        call += 1
    assert call > 3
    assert told.wait(call) == [event for event in noted(store) if event != "called"]


def test_a_signal_ends_the_wait_for_a_commit_and_not_the_commit(store: Store) -> None:
    """A server's handler raises in its main thread, which serves."""
    signalled = threading.Event()

    def verb(tx: Transaction) -> None:
        note("stored")(tx)
        tries = 200
        while not signalled.wait(0.1) and (tries := tries - 1):  # one that comes just before the wait does not end it
            os.kill(os.getpid(), signal.SIGUSR2)
        assert signalled.is_set()

    def handler(_number: int, _frame: object) -> None:
        signalled.set()
        raise SystemExit(3)

    before = signal.signal(signal.SIGUSR2, handler)
    try:
        with pytest.raises(SystemExit):
            store.call(verb)
    finally:
        signal.signal(signal.SIGUSR2, before)
    store.call(note("next"))
    assert noted(store) == ["stored", "next"]


def test_a_writer_for_which_there_is_no_thread_refuses_until_there_is_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(path)
    with monkeypatch.context() as scarce:
        scarce.setattr(threading.Thread, "start", no_thread)
        store.open()
        with pytest.raises(StoreUnavailable, match="no thread can be started"):
            store.call(note("too early"))
        told = Told()
        store.submit(note("kept"), told, keep=True)
        assert not store.writer.is_alive
    try:
        store.writer.look_after()
        assert told.wait(1) == ["kept"]
        assert store.call(note("later")) == "later"
    finally:
        store.close()


def test_a_store_whose_writer_never_had_a_thread_closes_its_connection(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(path)
    with monkeypatch.context() as scarce:
        scarce.setattr(threading.Thread, "start", no_thread)
        store.open()
        writer: Writer = store.writer
        store.suspend()
        assert not writer._commit.is_open
        store.resume()
    store.close()


def test_a_thread_that_lasts_begins_again_and_ends_when_its_work_does() -> None:
    turns: list[int] = []
    broke: list[str] = []
    go_on = threading.Event()

    def work() -> None:
        turns.append(len(turns))
        if len(turns) < 3:
            raise SystemExit
        go_on.wait(10)

    lasting = Lasting("test", work, lambda error: broke.append(type(error).__name__), Events())
    lasting.start()
    assert until(lambda: len(turns) == 3)
    assert lasting.is_alive
    go_on.set()
    lasting.join()
    assert (broke, lasting.is_alive, lasting.is_missing) == (["SystemExit", "SystemExit"], False, False)
