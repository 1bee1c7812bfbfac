"""The late indexes are brought forward beside the work, by one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.queue.build import Instance, Node
from tests.queue.test_connection_index import agree, indexed, receive, watermark
from tests.support.in_process import InProcess, taken, until
from wsrm_mq.delivery.chores import FAR_BEHIND, Indexing
from wsrm_mq.store.late_index import BATCH
from wsrm_mq.store.store import Store


@pytest.fixture
def opened(node: Node) -> Iterator[Callable[[], Store]]:
    stores: list[Store] = []

    def open_() -> Store:
        stores.append(Store(node.path, clock=node.clock))
        stores[-1].open()
        return stores[-1]

    yield open_
    for store in stores:
        store.close()


@pytest.fixture(autouse=True)
def each_look_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wsrm_mq.delivery.chores.LOOK_SECONDS", 0)


def indexing(store: Store, *, stops: bool = False) -> Indexing:
    return Indexing(store, lambda: stops)


def test_far_behind_it_is_taken_up_whichever_process_moves_the_watermark(
    one: Instance, opened: Callable[[], Store]
) -> None:
    """A connection that is counted often moves it too, a little: that is not another process at work."""
    with one.transaction() as tx:
        for _ in range(FAR_BEHIND + 1):
            tx.add_message(None, None, b"", connection="c")
    store = opened()
    at_it = indexing(store)
    at_it.look()
    assert until(lambda: watermark(one) == FAR_BEHIND + 1)


def test_a_look_brings_it_forward_piece_by_piece_to_the_end(one: Instance, opened: Callable[[], Store]) -> None:
    with one.transaction() as tx:
        for number in range(2 * BATCH + 7):
            tx.add_message(None, None, b"", connection=f"c{number % 9}")
    store = opened()
    its = indexing(store)
    before = store.writer.commits
    its.look()
    its.look()
    assert until(lambda: len(indexed(one)) == 2 * BATCH + 7)
    assert until(lambda: store.writer.commits == before + 3)
    its.look()
    assert store.call(lambda tx: None) is None
    assert store.writer.commits == before + 4, "where nothing came it writes nothing"


@pytest.mark.parametrize("name", ["connection_message", "lane_entry"])
def test_whichever_index_is_behind_is_brought_forward(one: Instance, opened: Callable[[], Store], name: str) -> None:
    receive(one, "a", "b", "a")
    store = opened()
    its = indexing(store)

    def is_done() -> bool:
        its.look()  # the first one only learns whether another process is at it
        return one.rows("SELECT upto FROM watermark") == [{"upto": 3}] * 2

    assert until(is_done)
    store.call(lambda tx: tx.execute(f"DELETE FROM {name}"))
    store.call(lambda tx: tx.execute("UPDATE watermark SET upto = 0 WHERE name = ?", (name,)))
    assert until(is_done)
    agree(one)


def test_one_that_stops_ends_with_the_piece_that_it_is_at(one: Instance, opened: Callable[[], Store]) -> None:
    with one.transaction() as tx:
        for _ in range(BATCH + 1):
            tx.add_message(None, None, b"", connection="a")
    store = opened()
    its = indexing(store, stops=True)
    its.look()
    its.look()
    assert until(lambda: watermark(one) == BATCH)
    store.call(lambda tx: None)
    store.call(lambda tx: None)
    assert watermark(one) == BATCH


def test_of_two_processes_one_does_it_and_the_other_takes_over_when_it_is_gone(
    one: Instance, opened: Callable[[], Store]
) -> None:
    stores = opened(), opened()
    first, second = (indexing(store) for store in stores)
    begun = [store.writer.commits for store in stores]
    first.look()
    for last in range(1, 6):
        receive(one, "a")
        first.look()
        assert until(lambda last=last: watermark(one) == last)  # type: ignore[misc]
        second.look()
    assert stores[1].writer.commits == begun[1], "what one process brings forward the other leaves to it"
    receive(one, "b")
    second.look()
    assert until(lambda: watermark(one) == 6)
    agree(one)


def test_a_store_that_cannot_be_written_is_tried_again_later(one: Instance, opened: Callable[[], Store]) -> None:
    store = opened()
    its = indexing(store)
    its.look()
    receive(one, "a")
    store.call(
        lambda tx: tx.execute(
            "CREATE TRIGGER no BEFORE INSERT ON connection_message BEGIN SELECT raise(FAIL, 'no'); END"
        )
    )
    its.look()
    store.call(lambda tx: None)
    assert watermark(one) == 0
    store.call(lambda tx: tx.execute("DROP TRIGGER no"))
    its.look()
    assert until(lambda: indexed(one) == [("a", 1)])


def test_a_service_indexes_what_it_receives(tmp_path: Any) -> None:
    service = InProcess(tmp_path, lambda _environ, start_response: taken(start_response))
    identifier = service.create()
    for number in range(1, 6):
        service.put(identifier, number)
    received = service.rows("SELECT count(*) FROM message WHERE connection IS NOT NULL")
    try:
        assert until(lambda: service.rows("SELECT upto FROM watermark") == [(5,), (5,)], 5)
        assert service.rows("SELECT count(*) FROM connection_message") == received
        assert service.rows("SELECT number, entry FROM lane_entry") == [(n, n) for n in range(1, 6)]
    finally:
        service.middleware.close(5)
