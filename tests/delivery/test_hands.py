"""Every sequence that a process owns is in some hand: whatever is raised on the way of a claim, wherever, the sequence
goes on within seconds, in order, without a restart."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.delivery.test_dispatcher import OWNED, Service
from tests.events.test_telling import no_thread
from tests.support.in_process import FACTORY, TWO_WAY, InProcess, until
from tests.support.stored import Stored
from tests.test_asgi_in_process import Operations, asked, create
from wsrm_mq.asgi import WSRMASGIMiddleware
from wsrm_mq.delivery import recording
from wsrm_mq.delivery.dispatcher import Dispatcher
from wsrm_mq.delivery.pool import Pool
from wsrm_mq.destination.destination import RMDestination

pytestmark = pytest.mark.usefixtures("quick_watch")

SOON = 15
"""Seconds, on a machine that does much else; two looks of the watch and a run take about three."""
ERRORS = [RuntimeError, SystemExit, KeyboardInterrupt]
OURS = {"wsrm-mq-writer", "wsrm-mq-watch", "wsrm-mq-janitor"}


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def wsrm(tmp_path: Path, service: Service) -> Iterator[InProcess]:
    started = InProcess(tmp_path, service, hold_wait=1.0, retry=[0.01] * 50)
    started.middleware.start()
    yield started
    started.middleware.close(5)


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()} & OURS


@contextmanager
def raises_once(what: Any, name: str, error: type[BaseException]) -> Iterator[list[str]]:
    """The next call of a method raises. Yields what was raised."""
    method, raised = getattr(what, name), []

    def instead(*arguments: Any, **more: Any) -> Any:
        if not raised:
            raised.append(name)
            raise error(f"from {name}")
        return method(*arguments, **more)

    setattr(what, name, instead)
    try:
        yield raised
    finally:
        setattr(what, name, method)


ON_THE_WAY = [(RMDestination, "hand_over"), (Dispatcher, "give"), (Pool, "give"), (Dispatcher, "_run")]


@pytest.mark.invariant("I7")
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(("owner", "name"), ON_THE_WAY, ids=[name for _, name in ON_THE_WAY])
def test_a_one_way_message_whose_hand_over_raises_is_delivered_without_a_restart(
    wsrm: InProcess, service: Service, owner: Any, name: str, error: type[BaseException]
) -> None:
    identifier = wsrm.create()
    assert wsrm.put(identifier, 1).startswith("200")
    assert until(lambda: service.numbers(identifier) == [1])
    if owner is RMDestination:
        owner = wsrm.middleware._front.destination
    with raises_once(owner, name, error) as raised:
        assert wsrm.put(identifier, 2).startswith("200")
        assert until(lambda: raised)
    assert wsrm.put(identifier, 3).startswith("200")
    assert until(lambda: service.numbers(identifier) == [1, 2, 3], SOON)
    assert until(lambda: wsrm.rows(OWNED) == [(0,)])
    assert threads() == OURS


@pytest.mark.parametrize("name", ["run_for", "_call_then_settle"])
def test_a_two_way_message_whose_hand_over_raises_is_run_without_its_request(
    wsrm: InProcess, service: Service, name: str
) -> None:
    identifier = wsrm.create()
    with raises_once(Dispatcher, name, SystemExit), suppress(SystemExit):
        wsrm.put(identifier, 1, reply_to=TWO_WAY)
    assert until(lambda: service.numbers(identifier) == [1], SOON)
    assert wsrm.put(identifier, 2, reply_to=TWO_WAY).startswith("20")
    assert until(lambda: wsrm.rows(OWNED) == [(0,)])
    assert service.numbers(identifier) == [1, 2]


@pytest.mark.parametrize("name", ["run_for", "_call_then_settle"])
@pytest.mark.parametrize("reply_to", ["none", TWO_WAY], ids=["one-way", "two-way"])
def test_under_an_event_loop_it_is_the_same(tmp_path: Path, name: str, reply_to: str) -> None:
    service = Operations()
    middleware = WSRMASGIMiddleware(service, tmp_path / "store.db", hold_wait=6.0, max_waiting=8)
    middleware.start()

    async def conversation() -> int:
        identifier = await create(middleware)
        with raises_once(Dispatcher, name if reply_to == TWO_WAY else "give", SystemExit) as raised:
            answer = await asked(middleware, FACTORY.message(identifier, 1, reply_to=reply_to))
            assert raised
        return answer.status

    try:
        assert asyncio.run(conversation()) == 200
        assert until(lambda: service.calls == [1], SOON)
        stored = Stored(tmp_path / "store.db")
        assert until(lambda: stored.rows(OWNED) == [(0,)])
    finally:
        middleware.close(5)


def test_what_the_store_says_is_ours_and_no_hand_has_is_taken_up(
    wsrm: InProcess, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """However it came about: here it is written into the store."""
    identifier = wsrm.create()
    wsrm.put(identifier, 2)
    wsrm.rows('UPDATE lane SET owner = (SELECT max(id) FROM instance), fence = fence + 1, "limit" = 3, cursor = 2')
    assert until(lambda: service.numbers(identifier) == [2], SOON)
    assert until(lambda: wsrm.rows(OWNED) == [(0,)])
    assert "dispatch.dropped" in caplog.text


def test_what_is_in_some_hand_is_left_there(wsrm: InProcess, service: Service) -> None:
    """An operation that takes many looks of the watch is not called twice."""
    begun, go_on = threading.Event(), threading.Event()

    def behave(_environ: dict[str, Any]) -> None:
        begun.set()
        go_on.wait(20)

    service._behave = behave
    one_way, two_way = wsrm.create(), wsrm.create()
    wsrm.put(one_way, 1)
    request = threading.Thread(target=wsrm.put, args=(two_way, 1), kwargs={"reply_to": TWO_WAY})
    request.start()
    assert until(lambda: len(service.calls) == 2)
    for _ in range(10):
        wsrm.middleware.engine.dispatcher.take_up()
    go_on.set()
    request.join(10)
    assert until(lambda: wsrm.rows(OWNED) == [(0,)])
    assert sorted(service.calls) == sorted([(one_way, 1, False), (two_way, 1, False)])


def throw(thread: threading.Thread, error: type[BaseException]) -> None:
    if thread.ident is not None and thread.is_alive():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(error))


def test_a_chore_of_the_watch_that_raises_keeps_it_from_nothing_else(tmp_path: Path, service: Service) -> None:
    wsrm = InProcess(tmp_path, service, queue_one_way=True)
    wsrm.middleware.start()
    try:
        identifier = wsrm.create()
        wsrm.put(identifier, 2)
        with raises_once(wsrm.middleware._front._connections, "closed", RuntimeError) as raised:
            wsrm.rows('UPDATE lane SET "limit" = 3, cursor = 2')
            wsrm.middleware.engine.watch.nudge()
            assert until(lambda: raised)
            assert until(lambda: service.numbers(identifier) == [2])
    finally:
        wsrm.middleware.close(5)


def test_a_process_that_can_start_no_watch_refuses_until_it_can(
    tmp_path: Path, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a fork, in a process that has used up its threads."""
    start = threading.Thread.start

    def no_watch(thread: threading.Thread) -> None:
        if thread.name == "wsrm-mq-watch":
            no_thread(thread)
        start(thread)

    wsrm = InProcess(tmp_path, service, start=False)
    try:
        with monkeypatch.context() as scarce:
            scarce.setattr(threading.Thread, "start", no_watch)
            assert wsrm.post(FACTORY.create_sequence())[0].startswith("503")
            assert wsrm.post(FACTORY.create_sequence())[0].startswith("503")
        identifier = wsrm.create()
        assert wsrm.put(identifier, 1).startswith("200")
        assert until(lambda: service.numbers(identifier) == [1])
    finally:
        wsrm.middleware.close(5)


def test_requests_whose_threads_are_thrown_out_at_any_moment_leave_no_sequence_behind(
    wsrm: InProcess, service: Service
) -> None:
    """As gunicorn's and gevent's timeouts do. Each message is sent until it is answered, as a sender does."""
    chance = random.Random(12)
    two_way, one_way = wsrm.create(), wsrm.create()
    wsrm.put(one_way, 1)
    for number in range(1, 41):
        answers: list[str] = []

        def send(number: int = number, answers: list[str] = answers) -> None:
            with suppress(BaseException):
                answers.append(wsrm.put(two_way, number, reply_to=TWO_WAY))

        for _ in range(20):
            request = threading.Thread(target=send)
            request.start()
            time.sleep(chance.random() * 0.01)
            throw(request, chance.choice([SystemExit, KeyboardInterrupt, TimeoutError]))
            request.join(10)
            assert not request.is_alive()
            if answers and answers[0].startswith("200"):
                break
        assert wsrm.put(one_way, number + 1).startswith("200")
    assert until(lambda: wsrm.rows("SELECT count(*) FROM entry WHERE outcome = 'delivered'") == [(81,)], SOON)
    assert until(lambda: wsrm.rows(OWNED) == [(0,)])
    assert service.numbers(one_way) == list(range(1, 42))
    first_calls = [number for name, number, again in service.calls if name == two_way and not again]
    assert len(first_calls) == len(set(first_calls)), "what was called twice is marked"
    assert list(dict.fromkeys(service.numbers(two_way))) == list(range(1, 41))
    assert threads() == OURS


class Sink(logging.Handler):
    """Raises on the nth record that it gets and on the two that follow, and then again with another n."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._chance = random.Random(3)
        self._left = 1
        self.raised = 0

    def handle(self, _record: logging.LogRecord) -> bool:
        self._left -= 1
        if self._left > 0:
            return True
        if self._left == -2:
            self._left = self._chance.randint(1, 13)
        self.raised += 1
        raise self._chance.choice([SystemExit, KeyboardInterrupt, GeneratorExit, RuntimeError])("from a sink")


@pytest.fixture
def sink() -> Iterator[Sink]:
    log, one = logging.getLogger("wsrm_mq"), Sink()
    level = log.level
    log.setLevel(logging.DEBUG)
    log.addHandler(one)
    yield one
    log.removeHandler(one)
    log.setLevel(level)


def test_a_sink_that_raises_on_its_nth_call_costs_no_message_and_no_thread(tmp_path: Path, sink: Sink) -> None:
    """In a service that has something to tell of every message: the first try of each fails."""
    heard: list[str] = []

    def on_event(event: Any) -> None:
        heard.append(event.name)
        raise SystemExit("from on_event")

    def behave(environ: dict[str, Any]) -> None:
        if environ["wsrm.attempt"] == 1:
            raise OSError("the first time")

    service = Service(behave)
    wsrm = InProcess(tmp_path, service, hold_wait=1.0, retry=[0.01] * 5, on_event=on_event)
    wsrm.middleware.start()
    try:
        sequences = []
        for _ in range(40):
            identifier = wsrm.create()
            sequences.append(identifier)
            for number in (1, 2, 3):
                assert wsrm.put(identifier, number).startswith("200")
            wsrm.post(FACTORY.message("urn:unknown", 1))
        delivered = "SELECT count(*) FROM entry WHERE outcome = 'delivered'"
        assert until(lambda: wsrm.rows(delivered) == [(120,)], 3 * SOON)
        assert until(lambda: wsrm.rows(OWNED) == [(0,)])
        for identifier in sequences:
            assert service.numbers(identifier) == [1, 1, 2, 2, 3, 3]
        assert sink.raised > 60
        assert threads() == OURS
        assert "delivery.failed" in heard
    finally:
        wsrm.middleware.close(5)


def fails_first(environ: dict[str, Any]) -> str | None:
    return "503 No" if (environ["wsrm.message_number"], environ["wsrm.attempt"]) == (1, 1) else None


@pytest.mark.parametrize("name", ["tell", "settled", "failed", "is_settled"])
@pytest.mark.parametrize("error", ERRORS)
def test_what_follows_a_settlement_may_raise(
    wsrm: InProcess, service: Service, name: str, error: type[BaseException]
) -> None:
    service._behave = fails_first
    identifier = wsrm.create()
    with raises_once(recording.Recording, name, error):
        for number in (1, 2, 3):
            assert wsrm.put(identifier, number).startswith("200")
        assert until(lambda: wsrm.rows("SELECT count(*) FROM entry WHERE outcome = 'delivered'") == [(3,)], SOON)
    assert until(lambda: wsrm.rows(OWNED) == [(0,)], SOON)
    assert service.numbers(identifier) == [1, 1, 2, 3]


def test_a_message_for_which_there_was_no_thread_is_delivered_when_there_is_one(
    wsrm: InProcess, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else comes that would send for a thread."""
    identifier = wsrm.create()
    with monkeypatch.context() as scarce:
        scarce.setattr(threading.Thread, "start", no_thread)
        assert wsrm.put(identifier, 1).startswith("200")
        time.sleep(0.1)
        assert service.calls == []
    assert until(lambda: service.numbers(identifier) == [1], SOON)
    assert until(lambda: wsrm.rows(OWNED) == [(0,)])
