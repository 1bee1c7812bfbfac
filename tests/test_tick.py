"""What one commit of an event loop takes: all that is here."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.stored import write_locked
from wsrm_mq.delivery.pool import Pool
from wsrm_mq.errors import StoreUnavailable
from wsrm_mq.events.telling import Events
from wsrm_mq.queue.settle import Settlement
from wsrm_mq.sequence.elements import SequenceAcknowledgement
from wsrm_mq.store.sqlite import connection
from wsrm_mq.store.store import Store
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.tick import LoopCompletion, Tick


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "store.db")
    opened.open()
    yield opened
    opened.close()


def note(word: str) -> Any:
    def verb(tx: Transaction) -> str:
        tx.ledger(word)
        return word

    return verb


def noted(store: Store) -> list[str]:
    with store.reader() as db:
        return [word for (word,) in db.execute("SELECT event FROM ledger ORDER BY id")]


def tick_of(store: Store) -> Tick:
    return Tick(asyncio.get_running_loop(), store, ())


async def together(store: Store, words: list[str], tick: Tick | None = None) -> tuple[list[str], int]:
    """Commit ``words``, one for each of as many clients; answers what was told, and how many commits it took."""
    tick = tick or tick_of(store)
    before = store.writer.commits
    told: list[str] = []

    def finish(word: str) -> str:
        told.append(word)
        return f"{word}, finished"

    async def one(word: str) -> None:
        assert await tick.commit(note(word), 10, finish) == f"{word}, finished"

    await asyncio.gather(*map(one, words))
    return told, store.writer.commits - before


def test_what_many_connections_sent_is_one_commit_in_the_order_it_came(store: Store) -> None:
    words = [f"word{number}" for number in range(20)]
    told, commits = asyncio.run(together(store, words))
    assert (told, commits) == (words, 1)
    assert noted(store) == words


def test_what_a_commit_makes_deliverable_is_run_once_its_answers_are_on_their_way(store: Store) -> None:
    done: list[str] = []
    ran = threading.Event()

    def work(word: str) -> None:
        done.append(word)
        ran.set()

    pool = Pool(work, threads=1, max_threads=1, events=Events())

    async def one(tick: Tick, word: str) -> None:
        def finish(_result: str) -> None:
            assert pool.give(f"{word}, run")
            time.sleep(0.05)  # long enough for a thread that was woken

        await tick.commit(note(word), 10, finish)
        done.append(f"{word}, answered")

    async def both() -> None:
        tick = Tick(asyncio.get_running_loop(), store, (pool,))
        await asyncio.gather(one(tick, "first"), one(tick, "second"))
        assert await asyncio.to_thread(ran.wait, 5)

    asyncio.run(both())
    pool.stop()
    assert pool.join(time.monotonic() + 5)
    assert done == ["first, answered", "second, answered", "first, run", "second, run"]


def test_a_waiter_hears_what_went_wrong_with_its_own_verb_alone(store: Store) -> None:
    async def conversation() -> None:
        tick = tick_of(store)

        def broken(_tx: Transaction) -> None:
            raise ZeroDivisionError

        results = await asyncio.gather(
            tick.commit(note("before"), 1, str),
            tick.commit(broken, 1, str),
            tick.commit(note("after"), 1, str),
            return_exceptions=True,
        )
        assert results[::2] == ["before", "after"]
        assert isinstance(results[1], ZeroDivisionError)

    asyncio.run(conversation())
    assert noted(store) == ["before", "after"]


def test_a_request_that_was_given_up_is_committed_all_the_same(store: Store) -> None:
    async def conversation() -> None:
        tick = tick_of(store)
        waiting = asyncio.ensure_future(tick.commit(note("given up"), 1, str))
        waiting.cancel()
        await tick.commit(note("next"), 1, str)

    asyncio.run(conversation())
    assert noted(store) == ["given up", "next"]


def test_what_lingers_while_no_request_comes_is_written_soon(store: Store) -> None:
    async def conversation() -> None:
        tick = tick_of(store)
        await tick.commit(note("message"), 1, str)
        settled = asyncio.Event()
        loop = asyncio.get_running_loop()
        told = lambda _result, _error: loop.call_soon_threadsafe(settled.set)  # noqa: E731
        await asyncio.to_thread(lambda: store.submit(note("settlement"), told, keep=True, lingers=True))
        await asyncio.wait_for(settled.wait(), 5)

    asyncio.run(conversation())
    assert noted(store) == ["message", "settlement"]


def test_what_is_sent_to_a_closed_store_is_refused(store: Store) -> None:
    async def conversation() -> None:
        tick = tick_of(store)
        await asyncio.to_thread(store.close)
        with pytest.raises(StoreUnavailable):
            await tick.commit(note("late"), 1, str)

    asyncio.run(conversation())


# what a request has run


async def run_for(tick: Tick, word: str, seconds: float = 0.0) -> tuple[Settlement | None, float]:
    """Have ``word`` written as a pool does it whose application takes ``seconds``; answers what the request heard."""
    completion = LoopCompletion(tick)
    settlement = Settlement("delivered", None, SequenceAcknowledgement(word, ()))

    def told(_done: Any, error: BaseException | None) -> None:
        completion.complete(settlement if error is None else None)

    def run() -> None:
        completion.calling()
        time.sleep(seconds)
        completion.storing()
        completion.submit(note(word), told, size=1)

    thread = threading.Thread(target=run)
    thread.start()
    heard = await completion.settled(0.3)
    thread.join()
    return heard


def test_what_threads_have_settled_is_written_by_the_loop_with_what_was_sent_to_it(store: Store) -> None:
    writers: set[str] = set()

    def verb(tx: Transaction) -> None:
        writers.add(threading.current_thread().name)
        tx.ledger("settled")

    async def conversation() -> None:
        tick = tick_of(store)
        accepted = tick.commit(note("accepted"), 1, str)
        for _ in range(3):
            done = threading.Thread(
                target=LoopCompletion(tick).submit, args=(verb, lambda _done, _error: None), kwargs={"size": 1}
            )
            done.start()
            done.join()
        assert await accepted == "accepted"

    asyncio.run(conversation())
    assert noted(store) == ["accepted", "settled", "settled", "settled"]
    assert store.writer.commits == 1
    assert writers == {threading.main_thread().name}


def test_what_a_thread_has_settled_is_written_and_heard_of_although_no_request_comes(store: Store) -> None:
    async def conversation() -> None:
        settlement, left = await run_for(tick_of(store), "alone")
        assert settlement is not None
        assert settlement.acknowledgement.identifier == "alone"
        assert 0 < left <= 0.3

    asyncio.run(conversation())
    assert noted(store) == ["alone"]


def test_the_applications_own_time_uses_up_no_patience(store: Store) -> None:
    async def conversation() -> None:
        settlement, left = await run_for(tick_of(store), "slow", seconds=0.8)
        assert settlement is not None
        assert left > 0

    asyncio.run(conversation())


def test_a_request_waits_for_the_store_no_longer_than_its_patience(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BUSY_TIMEOUT_MS", 100)  # it gives up before the lock is free

    async def conversation() -> None:
        tick = tick_of(store)
        with write_locked(store.path):
            begun = time.monotonic()
            assert await run_for(tick, "late", seconds=0.2) == (None, 0.0)
            assert 0.5 <= time.monotonic() - begun < 3

    asyncio.run(conversation())
    store.call(note("after"))
    assert noted(store) == ["late", "after"]  # it was kept


def test_what_a_thread_has_for_a_loop_that_ended_is_written_without_it(store: Store) -> None:
    async def made() -> LoopCompletion:
        return LoopCompletion(tick_of(store))

    completion = asyncio.run(made())
    written = threading.Event()
    completion.submit(note("left"), lambda _done, _error: written.set(), size=1)
    completion.complete(None)
    assert written.wait(0.5)
    assert noted(store) == ["left"]
