"""The queue in front of the writer: bounded for what peers ask, never for what must be stored."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.test_writer import Told
from wsrm_mq.errors import StoreOverloaded
from wsrm_mq.store.store import Store
from wsrm_mq.store.transaction import Transaction


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "store.db", max_queued=3, max_queued_bytes=1_000)
    store.open()
    yield store
    store.close()


class Gate:
    """A verb that keeps the writer busy until the gate is opened."""

    def __init__(self, store: Store) -> None:
        self._open = threading.Event()
        entered = threading.Event()

        def verb(_tx: Transaction) -> None:
            entered.set()
            assert self._open.wait(10)

        self.told = Told()
        store.submit(verb, self.told)
        assert entered.wait(10)

    def open(self) -> None:
        self._open.set()


def nothing(_tx: Transaction) -> int:
    return 1


def test_a_request_too_many_is_refused_at_once_and_taken_when_the_others_are_written(store: Store) -> None:
    gate, told = Gate(store), Told()
    for _ in range(3):
        store.writer.submit(nothing, told, is_request=True)
    with pytest.raises(StoreOverloaded, match="3 requests wait"):
        store.call(nothing, is_request=True)
    gate.open()
    assert told.wait(3) == [1, 1, 1]
    assert store.call(nothing, is_request=True) == 1


def test_so_is_a_byte_too_many_but_one_request_alone_is_never_too_large(store: Store) -> None:
    gate, told = Gate(store), Told()
    store.writer.submit(nothing, told, is_request=True, size=5_000)
    with pytest.raises(StoreOverloaded):
        store.call(nothing, is_request=True, size=1)
    gate.open()
    assert told.wait(1) == [1]
    assert store.call(nothing, is_request=True, size=1_000) == 1


def test_what_no_peer_asked_for_is_queued_however_many_there_are(store: Store) -> None:
    gate, told = Gate(store), Told()
    for _ in range(3):
        store.writer.submit(nothing, told, is_request=True)
    for _ in range(50):
        store.submit(nothing, told, keep=True)
        store.submit(nothing, told)
    gate.open()
    assert told.wait(103) == [1] * 103


def test_a_request_that_failed_gives_its_place_back(store: Store) -> None:
    def wrong(_tx: Transaction) -> None:
        raise LookupError

    for _ in range(10):
        with pytest.raises(LookupError):
            store.call(wrong, is_request=True, size=1_000)
    assert store.call(nothing, is_request=True) == 1


def test_an_event_loop_is_refused_the_same(store: Store) -> None:
    told = Told()
    writer = store.writer
    for _ in range(3):
        writer.submit(nothing, told, is_request=True, is_led=True)
    with pytest.raises(StoreOverloaded):
        writer.submit(nothing, told, is_request=True, is_led=True)
    writer.lead()
    assert told.wait(3) == [1, 1, 1]
    writer.submit(nothing, told, is_request=True, is_led=True)
    writer.lead()
    assert told.wait(4) == [1] * 4
