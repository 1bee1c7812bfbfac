"""Two-way messages under an event loop: threads run them, the loop writes what came of them, and no request waits
longer than it may."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process import FACTORY, TWO_WAY, until
from tests.support.stored import Stored, write_locked
from tests.test_asgi_in_process import Exchange, Operations, asked, create
from wsrm_mq.asgi import WSRMASGIMiddleware

HOLD_WAIT = 1.0
FREE = "SELECT count(*) FROM lane WHERE owner IS NULL"


class Failing(Operations):
    """The operation of number 1 raises, however often it is called."""

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        answer = super().__call__(environ, start_response)
        if environ["wsrm.message_number"] == 1:
            raise OSError("no")
        return answer


class Slow(Operations):
    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        time.sleep(0.03)
        return super().__call__(environ, start_response)


Make = Callable[..., WSRMASGIMiddleware]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[WSRMASGIMiddleware] = []

    def start(service: Any, **options: Any) -> WSRMASGIMiddleware:
        made.append(WSRMASGIMiddleware(service, tmp_path / "store.db", **{"hold_wait": HOLD_WAIT, **options}))
        return made[-1]

    yield start
    for middleware in made:
        middleware.close(20)


@pytest.fixture
def service() -> Operations:
    return Operations()


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    return Stored(tmp_path / "store.db")


def two_way(identifier: str, number: int) -> bytes:
    return FACTORY.message(identifier, number, reply_to=TWO_WAY)


async def timed(middleware: WSRMASGIMiddleware, body: bytes) -> tuple[int, float]:
    """Status of the answer, and the seconds it took."""
    begun = time.monotonic()
    return (await asked(middleware, body)).status, time.monotonic() - begun


def opened(middleware: WSRMASGIMiddleware, conversation: Callable[[str], Any]) -> Any:
    async def whole() -> Any:
        return await conversation(await create(middleware))

    return asyncio.run(whole())


@pytest.mark.timed
@pytest.mark.parametrize("assurance", ["exactly_once", "at_most_once"])
@pytest.mark.spec("D-DEL-020", versions="all")
def test_answers_come_at_once_one_after_the_other(make: Make, stored: Stored, assurance: str) -> None:
    """No net has to catch them: those are a second wide, and as wide as ``hold_wait``. The operations last longer
    than a loop looks for what lingers."""
    middleware = make(Slow(), assurance=assurance, hold_wait=10.0)

    async def conversation(identifier: str) -> list[tuple[int, float]]:
        return [await timed(middleware, two_way(identifier, number)) for number in range(1, 9)]

    answers = opened(middleware, conversation)
    assert [status for status, _ in answers] == [200] * 8
    assert sorted(seconds for _, seconds in answers)[4] < 0.5
    assert until(lambda: stored.rows(FREE) == [(1,)])


@pytest.mark.invariant("I16")
@pytest.mark.parametrize("kind", [Operations, Failing])
def test_a_request_waits_for_the_store_no_longer_than_hold_wait_and_what_came_of_it_is_kept(
    make: Make, stored: Stored, tmp_path: Path, kind: type[Operations]
) -> None:
    """More of them than threads, too: those do not wait with them."""
    service = kind()
    service.may_go.clear()
    middleware = make(service, threads=2, retry=(0.05,))

    async def conversation() -> list[tuple[int, float]]:
        identifiers = [await create(middleware) for _ in range(5)]
        answers = [asyncio.ensure_future(timed(middleware, two_way(each, 1))) for each in identifiers]
        await asyncio.sleep(0.3)
        with write_locked(tmp_path / "store.db"):
            service.may_go.set()
            return await asyncio.wait_for(asyncio.gather(*answers), 4 * HOLD_WAIT)

    answers = asyncio.run(conversation())
    assert [status for status, _ in answers] == [202] * 5
    assert len(service.calls) == 5
    if kind is Operations:
        assert until(lambda: stored.rows("SELECT count(*) FROM entry WHERE outcome = 'delivered'") == [(5,)])
        assert len(service.calls) == 5, "what was taken is not run again"
    else:
        assert until(lambda: stored.rows("SELECT count(*) FROM entry WHERE failures > 0") == [(5,)])


@pytest.mark.invariant("I16")
def test_a_message_that_is_settled_before_its_call_waits_for_the_store_no_longer_either(
    make: Make, service: Operations, tmp_path: Path
) -> None:
    """At most once: it is the store's turn before the application's. The lock is taken when the message is accepted."""
    middleware = make(service, assurance="at_most_once", max_waiting=4)
    locked, free = threading.Event(), threading.Event()

    def lock() -> None:
        with write_locked(tmp_path / "store.db"):
            locked.set()
            free.wait(10)

    run_for = middleware.engine.dispatcher.run_for

    def later(*arguments: Any) -> None:
        threading.Thread(target=lock).start()
        locked.wait(5)
        run_for(*arguments)

    async def conversation(identifier: str) -> tuple[int, float]:
        middleware.engine.dispatcher = Instead(middleware.engine.dispatcher, run_for=later)  # type: ignore[assignment]
        return await timed(middleware, two_way(identifier, 1))

    try:
        status, seconds = opened(middleware, conversation)
    finally:
        free.set()
    assert status == 202
    assert HOLD_WAIT <= seconds < 4 * HOLD_WAIT
    assert until(lambda: service.calls == [1])


class Instead:
    """``whole`` with something of it replaced."""

    def __init__(self, whole: Any, **replaced: Any) -> None:
        self.__dict__.update(replaced)
        self._whole = whole

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)


def test_the_applications_own_time_uses_up_no_patience_even_where_there_is_none(
    make: Make, service: Operations
) -> None:
    service.may_go.clear()
    middleware = make(service, hold_wait=0)

    async def conversation(identifier: str) -> tuple[int, float]:
        threading.Timer(0.6, service.may_go.set).start()
        return await timed(middleware, two_way(identifier, 1))

    status, seconds = opened(middleware, conversation)
    assert status == 200
    assert seconds >= 0.5


def test_threads_bounds_how_many_two_way_operations_run_at_a_time(make: Make, service: Operations) -> None:
    service.may_go.clear()
    middleware = make(service, threads=2, hold_wait=10.0)

    async def conversation() -> None:
        identifiers = [await create(middleware) for _ in range(4)]
        requests = [Exchange(two_way(each, 1)).through(middleware) for each in identifiers]
        await asyncio.sleep(0.4)
        assert len(service.calls) == 2
        service.may_go.set()
        await asyncio.wait_for(asyncio.gather(*requests), 10)

    asyncio.run(conversation())
    assert len(service.calls) == 4


@pytest.mark.parametrize("options", [{"on_poison": "dead_letter", "retry": ()}, {"ordered": False, "retry": (5.0,)}])
def test_what_follows_a_message_that_failed_is_run(make: Make, stored: Stored, options: dict[str, Any]) -> None:
    service = Failing()
    service.may_go.clear()
    middleware = make(service, max_waiting=8, hold_wait=2.0, **options)

    async def conversation(identifier: str) -> list[int]:
        requests = [asyncio.ensure_future(timed(middleware, two_way(identifier, number))) for number in (1, 2, 3)]
        await asyncio.sleep(0.3)
        service.may_go.set()
        return [status for status, _ in await asyncio.gather(*requests)]

    assert opened(middleware, conversation)[1:] == [200, 200]
    assert service.calls[:3] == [1, 2, 3]


def test_a_close_lets_operations_finish_and_answers_those_that_have_not_begun(
    make: Make, service: Operations, stored: Stored
) -> None:
    """The next start delivers them."""
    service.may_go.clear()
    middleware = make(service, threads=2, hold_wait=10.0)

    async def conversation() -> list[int]:
        identifiers = [await create(middleware) for _ in range(5)]
        requests = [asyncio.ensure_future(timed(middleware, two_way(each, 1))) for each in identifiers]
        all_are_stored = partial(until, lambda: stored.rows("SELECT count(*) FROM entry") == [(5,)], 10)
        assert await asyncio.to_thread(all_are_stored), "one that is not stored yet is told to come again"
        await asyncio.sleep(0.4)
        middleware.stop_waiting()
        closing = asyncio.ensure_future(asyncio.to_thread(middleware.close, 10))
        await asyncio.sleep(0.4)
        assert not closing.done()
        service.may_go.set()
        assert await closing
        return sorted(status for status, _ in await asyncio.wait_for(asyncio.gather(*requests), 5))

    assert asyncio.run(conversation()) == [200, 200, 202, 202, 202]
    assert stored.rows("SELECT count(*) FROM entry WHERE outcome = 'delivered'") == [(2,)]
    assert stored.rows(FREE) == [(5,)]
    make(service)
    assert until(lambda: stored.rows("SELECT count(*) FROM entry WHERE outcome = 'delivered'") == [(5,)])
    assert len(service.calls) == 5, "none was run again"


def test_a_request_whose_message_is_stored_is_told_so_when_the_store_closes_while_it_waits(
    make: Make, service: Operations, stored: Stored
) -> None:
    """The gap before it is open."""
    middleware = make(service, max_waiting=4, hold_wait=10.0)

    async def conversation(identifier: str) -> int:
        waiting = asyncio.ensure_future(timed(middleware, two_way(identifier, 2)))
        is_stored = partial(until, lambda: stored.rows("SELECT count(*) FROM entry") == [(1,)])
        assert await asyncio.to_thread(is_stored)
        assert await asyncio.to_thread(middleware.close, 10)
        return (await asyncio.wait_for(waiting, 10))[0]

    assert opened(middleware, conversation) == 202


def test_a_request_that_comes_when_threads_take_nothing_any_more_is_told_so(make: Make, service: Operations) -> None:
    middleware = make(service)
    dispatcher = middleware.engine.dispatcher
    dispatcher.stop(5)

    async def conversation(identifier: str) -> tuple[int, float]:
        return await timed(middleware, two_way(identifier, 1))

    status, seconds = opened(middleware, conversation)
    assert (status, service.calls) == (202, [])
    assert seconds < 4 * HOLD_WAIT


def test_a_run_that_breaks_off_for_no_fault_of_the_message_is_taken_up_again(
    make: Make, service: Operations, stored: Stored
) -> None:
    middleware = make(service, max_waiting=4, hold_wait=5.0)
    recording = middleware.engine.dispatcher._recording
    policy_of = recording._policy_of

    def break_off_once(partner: str | None) -> Any:
        recording._policy_of = policy_of
        raise KeyError(partner)

    async def conversation(identifier: str) -> tuple[int, float]:
        recording._policy_of = break_off_once
        return await timed(middleware, two_way(identifier, 1))

    status, _ = opened(middleware, conversation)
    assert status == 200
    assert service.calls[0] == 1
    assert until(lambda: stored.rows(FREE) == [(1,)])


@pytest.mark.invariant("I16")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("begins", [False, True], ids=["before it begins", "as it begins"])
def test_a_request_whose_thread_ends_without_a_word_leaves_in_time_and_its_message_is_run(
    make: Make, service: Operations, stored: Stored, begins: bool
) -> None:
    middleware = make(service)
    pool = middleware.engine.dispatcher.request_pool
    work = pool._work

    def end(given: Any) -> None:
        pool._work = work
        if begins:
            given.completion.calling()
        raise SystemExit

    async def conversation(identifier: str) -> tuple[int, float]:
        pool._work = end
        return await asyncio.wait_for(timed(middleware, two_way(identifier, 1)), 6 * HOLD_WAIT)

    status, seconds = opened(middleware, conversation)
    assert status in (200, 202)
    assert seconds < 4 * HOLD_WAIT
    assert until(lambda: stored.rows("SELECT count(*) FROM entry WHERE outcome = 'delivered'") == [(1,)])
    assert service.calls == [1]
