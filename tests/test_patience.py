"""No request waits longer than it may, whatever it waits for: under WSGI, in a thread of its own, and under ASGI."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest

from tests.support.in_process import FACTORY, TWO_WAY, InProcess, until
from tests.support.stored import Stored, write_locked
from tests.test_asgi_in_process import ANSWER, asked
from wsrm_mq import engine
from wsrm_mq.asgi import WSRMASGIMiddleware
from wsrm_mq.store.sqlite import connection as store_connection
from wsrm_mq.store.store import Store
from wsrm_mq.testing import ASGIWire, Reply

HOLD_WAIT = 0.6
BUSY = 0.5
"""So long a request may wait for the store's lock."""
MARGIN = 1.5
"""What a busy machine may add."""


class Service:
    """Fails, or waits, for the numbers that it is told to."""

    def __init__(self) -> None:
        self.fails: set[int] = set()
        self.may_go = threading.Event()
        self.begun = threading.Semaphore(0)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        environ["wsgi.input"].read()
        self.begun.release()
        if environ["wsrm.message_number"] in self.fails:
            raise OSError("no")
        if environ["PATH_INFO"] == "/slow":
            assert self.may_go.wait(20)
        start_response("200 OK", [("Content-Type", FACTORY.content_type)])
        return [ANSWER]


class Front(Protocol):
    def ask(self, body: bytes, path: str = "/orders") -> tuple[int, bytes]: ...

    def close(self, timeout: float | None = None) -> bool: ...

    @property
    def middleware(self) -> Any: ...


class WSGI:
    def __init__(self, directory: Path, service: Service, **options: Any) -> None:
        self._process = InProcess(directory, service, **options)
        self.middleware = self._process.middleware
        self.close = self.middleware.close

    def ask(self, body: bytes, path: str = "/orders") -> tuple[int, bytes]:
        status, content = self._process.post(body, PATH_INFO=path)
        return int(status[:3]), content


class ASGI:
    def __init__(self, directory: Path, service: Service, **options: Any) -> None:
        self.middleware = WSRMASGIMiddleware(service, directory / "store.db", **{"one_way": (), **options})

    def ask(self, body: bytes, path: str = "/orders") -> tuple[int, bytes]:
        answer = ASGIWire(self.middleware, path).post(body, {"Content-Type": FACTORY.content_type})
        return answer.status, answer.body

    def close(self, timeout: float | None = None) -> bool:
        return self.middleware.close(timeout)


Make = Callable[..., Front]


class Scene(NamedTuple):
    front: Front
    service: Service
    store: Path
    stack: ExitStack
    """What ends before the threads do: whatever they wait for."""
    joined: ExitStack

    def create(self, path: str = "/orders") -> str:
        created = Reply.parse(self.front.ask(FACTORY.create_sequence(), path)[1]).created
        assert created is not None
        return created.identifier

    def two_way(self, identifier: str, number: int, path: str = "/orders") -> Callable[[], tuple[int, bytes]]:
        return lambda: self.front.ask(FACTORY.message(identifier, number, reply_to=TWO_WAY), path)

    def one_way(self, identifier: str, number: int) -> Callable[[], tuple[int, bytes]]:
        return lambda: self.front.ask(FACTORY.message(identifier, number))

    def in_background(self, work: Callable[[], object]) -> None:
        thread = threading.Thread(target=work)
        thread.start()
        self.joined.callback(thread.join, 20)

    def during(self, what: AbstractContextManager[Any]) -> None:
        self.stack.enter_context(what)


Asks = Callable[[], tuple[int, bytes]]


class Case(NamedTuple):
    begin: Callable[[Scene], Asks]
    """Brings it about; answers the request that is timed."""
    status: int
    most: float
    """Seconds, but for the margin."""
    options: dict[str, Any] = {}  # noqa: RUF012


def behind_a_gap(scene: Scene) -> Asks:
    return scene.two_way(scene.create(), 2)


def while_another_program_has_the_lock(scene: Scene) -> Asks:
    identifier = scene.create()
    scene.during(write_locked(scene.store))
    return scene.two_way(identifier, 1)


def one_way_while_another_program_has_the_lock(scene: Scene) -> Asks:
    identifier = scene.create()
    scene.during(write_locked(scene.store))
    return scene.one_way(identifier, 1)


def locked_once_it_runs(scene: Scene) -> Asks:
    """The lock is taken after the message is accepted, when its operation begins."""
    identifier = scene.create("/slow")
    locked, free = threading.Event(), threading.Event()

    def lock() -> None:
        assert scene.service.begun.acquire(timeout=10)
        with write_locked(scene.store):
            locked.set()
            scene.service.may_go.set()
            free.wait(20)

    scene.in_background(lock)
    scene.stack.callback(free.set)
    return scene.two_way(identifier, 1, "/slow")


def locked_before_it_is_settled(scene: Scene) -> Asks:
    """At most once settles before the call: the lock is taken between the two commits."""
    identifier = scene.create()
    free = threading.Event()
    scene.stack.callback(free.set)
    dispatcher = scene.front.middleware.engine.dispatcher
    run_for = dispatcher.run_for

    def later(*given: Any) -> None:
        locked = threading.Event()

        def lock() -> None:
            with write_locked(scene.store):
                locked.set()
                free.wait(20)

        scene.in_background(lock)
        assert locked.wait(10)
        run_for(*given)

    dispatcher.run_for = later
    return scene.two_way(identifier, 1)


def failing(scene: Scene) -> Asks:
    scene.service.fails = {1}
    return scene.two_way(scene.create(), 1)


def without_room(scene: Scene) -> Asks:
    return scene.two_way(scene.create(), 7)


def with_too_many_in_front(scene: Scene) -> Asks:
    """The store is locked, and one request that waits is all that may."""
    first, second = scene.create(), scene.create()
    scene.during(write_locked(scene.store))
    scene.in_background(scene.one_way(first, 1))
    queue = scene.front.middleware.engine.store.writer._queue
    assert until(lambda: queue.requests == 1)
    return scene.one_way(second, 1)


def without_a_thread(scene: Scene) -> Asks:
    slow = scene.create("/slow")
    scene.in_background(scene.two_way(slow, 1, "/slow"))
    assert scene.service.begun.acquire(timeout=10)
    scene.stack.callback(scene.service.may_go.set)
    return scene.two_way(scene.create(), 1)


def behind_a_run(scene: Scene) -> Asks:
    slow = scene.create("/slow")
    scene.in_background(scene.two_way(slow, 1, "/slow"))
    assert scene.service.begun.acquire(timeout=10)
    scene.stack.callback(scene.service.may_go.set)
    return scene.two_way(slow, 2, "/slow")


def close_behind_a_run(scene: Scene) -> Asks:
    slow = scene.create("/slow")
    scene.in_background(scene.two_way(slow, 1, "/slow"))
    assert scene.service.begun.acquire(timeout=10)
    scene.stack.callback(scene.service.may_go.set)
    return lambda: scene.front.ask(FACTORY.close(slow), "/slow")


def when_the_service_ends(scene: Scene) -> Asks:
    identifier = scene.create()

    def end() -> None:
        assert until(lambda: Stored(scene.store).rows("SELECT 1 FROM entry"))
        scene.front.close(10)

    scene.in_background(end)
    return scene.two_way(identifier, 2)


AMO = {"assurance": "at_most_once"}
CASES = {
    "behind a gap": Case(behind_a_gap, 202, HOLD_WAIT),
    "another program has the lock": Case(while_another_program_has_the_lock, 503, BUSY),
    "one-way, another program has the lock": Case(one_way_while_another_program_has_the_lock, 503, BUSY),
    "locked once it runs": Case(locked_once_it_runs, 202, HOLD_WAIT),
    "at most once, locked once it runs": Case(locked_once_it_runs, 200, HOLD_WAIT, AMO),
    "at most once, locked before it is settled": Case(locked_before_it_is_settled, 202, HOLD_WAIT, AMO),
    "failing": Case(failing, 202, HOLD_WAIT, {"retry": (0.1,) * 100}),
    "without room": Case(without_room, 503, 0, {"max_held": 0}),
    "too many in front": Case(with_too_many_in_front, 503, 0),
    "at most once, without a thread": Case(without_a_thread, 202, HOLD_WAIT, AMO | {"threads": 1}),
    "behind a run": Case(behind_a_run, 202, HOLD_WAIT),
    "a close behind a run": Case(close_behind_a_run, 200, HOLD_WAIT),
    "the service ends": Case(when_the_service_ends, 202, 1.0, {"hold_wait": 15.0}),
}


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def joined() -> Iterator[ExitStack]:
    with ExitStack() as threads:
        yield threads


@pytest.fixture
def stack(joined: ExitStack) -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.mark.invariant("I16")
@pytest.mark.parametrize("kind", [WSGI, ASGI], ids=["WSGI", "ASGI"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_each_request_is_answered_within_its_patience(
    case: Case,
    kind: Make,
    tmp_path: Path,
    service: Service,
    stack: ExitStack,
    joined: ExitStack,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_connection, "BUSY_TIMEOUT_MS", round(1000 * BUSY))
    if case.begin is with_too_many_in_front:
        monkeypatch.setattr(engine, "Store", partial(Store, max_queued=1))
    front = kind(tmp_path, service, **{"hold_wait": HOLD_WAIT, "max_waiting": 4, **case.options})
    stack.callback(front.close, 10)
    asks = case.begin(Scene(front, service, tmp_path / "store.db", stack, joined))
    begun = time.monotonic()
    status, _content = asks()
    assert time.monotonic() - begun <= case.most + MARGIN
    if case.status == 202:
        assert status in (202, 503), "it was stored, or not; the sender comes again either way"
    else:
        assert status == case.status


@pytest.mark.invariant("I16")
def test_a_request_for_which_no_thread_is_free_leaves_in_time_under_a_loop(
    tmp_path: Path, service: Service, stack: ExitStack, joined: ExitStack
) -> None:
    """Its message is run when one is, and its resend gets the reply."""
    front = ASGI(tmp_path, service, hold_wait=HOLD_WAIT, threads=1)
    stack.callback(front.close, 10)
    scene = Scene(front, service, tmp_path / "store.db", stack, joined)
    asks = without_a_thread(scene)
    begun = time.monotonic()
    assert asks() == (202, b"")
    assert HOLD_WAIT - 0.1 <= time.monotonic() - begun <= HOLD_WAIT + MARGIN
    service.may_go.set()
    assert until(lambda: asks()[0] == 200)


def test_an_asgi_operation_that_forks_does_not_stop_its_loop(tmp_path: Path) -> None:
    """A fork waits for operations to end, and this one cannot while it waits."""
    forks: list[float] = []

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        begun = time.monotonic()
        child = os.fork()
        if not child:
            os._exit(0)
        forks.append(time.monotonic() - begun)
        os.waitpid(child, 0)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/xml")]})
        await send({"type": "http.response.body", "body": ANSWER})

    middleware = WSRMASGIMiddleware(app, tmp_path / "store.db", hold_wait=5, one_way=())

    async def conversation() -> None:
        created = Reply.parse((await asked(middleware, FACTORY.create_sequence())).body).created
        assert created is not None
        for number in (1, 2):
            answer = await asked(middleware, FACTORY.message(created.identifier, number, reply_to=TWO_WAY))
            assert answer.status == 200
        await asyncio.to_thread(middleware.close, 10)

    asyncio.run(conversation())
    assert len(forks) == 2
    assert max(forks) < 1.0
