"""A disk that is full: nothing half, nothing falsely acknowledged, and no repair by hand."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import pytest

from tests.conftest import Mount
from tests.store.test_writer import Told
from tests.support.disk import MIB, Disk
from wsrm_mq.errors import StoreFull
from wsrm_mq.store.sqlite.reserve import Reserve
from wsrm_mq.store.store import Store
from wsrm_mq.store.transaction import Transaction


def message(size: int) -> Callable[[Transaction], int]:
    body = os.urandom(size)

    def verb(tx: Transaction) -> int:
        row = "INSERT INTO message (environ, received_at, body_size, body) VALUES ('{}', 0, ?, ?)"
        return int(tx.execute(row, (size, body)).lastrowid or 0)

    return verb


def settled(tx: Transaction) -> str:
    tx.ledger("settled")
    return "settled"


def counted(store: Store, table: str) -> int:
    with store.reader() as db:
        return int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


@pytest.fixture
def disk(mount: Mount) -> Disk:
    return Disk(mount("-t", "tmpfs", "-o", "size=16m", "tmpfs"))


@pytest.fixture
def on_disk(disk: Disk) -> Iterator[Store]:
    store = Store(disk.point / "store.db")
    store.open()
    yield store
    store.close()


def eventually(verb: Callable[[], object], seconds: float = 10) -> None:
    """Until ``verb`` is no longer refused for want of room."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            verb()
            return
        except StoreFull:
            assert time.monotonic() < deadline, "the service does not resume"
            time.sleep(0.1)


@pytest.mark.scenario("Q-111")
@pytest.mark.spec("D-DUR-003", "SEC-031", versions="all")
def test_on_a_full_disk_an_acceptance_fails_and_leaves_nothing_and_with_room_the_service_goes_on(
    disk: Disk, on_disk: Store
) -> None:
    on_disk.call(message(1000))
    disk.fill()
    refused = 0
    for _ in range(5):
        with pytest.raises(StoreFull) as full:
            on_disk.call(message(100_000))
        refused += 1
    assert refused == 5
    assert "Free disk space" in full.value.hint
    assert counted(on_disk, "message") == 1
    disk.make_room()
    eventually(lambda: on_disk.call(message(100_000)))
    assert counted(on_disk, "message") == 2


@pytest.mark.scenario("Q-111")
@pytest.mark.spec("SEC-031", versions="all")
def test_settlements_are_stored_on_a_full_disk_thanks_to_the_reserve(disk: Disk, on_disk: Store) -> None:
    on_disk.call(message(1000))
    disk.fill()
    with pytest.raises(StoreFull):
        on_disk.call(message(200_000))
    for _ in range(40):
        assert on_disk.call(settled, keep=True) == "settled"
    assert counted(on_disk, "ledger") == 40


def test_acceptances_do_not_eat_the_room_kept_for_settlements(disk: Disk, on_disk: Store) -> None:
    disk.fill()
    with pytest.raises(StoreFull):
        on_disk.call(message(200_000))
    left = disk.free
    assert left > MIB // 2, "the reserve was given up"
    for _ in range(100):
        with pytest.raises(StoreFull):
            on_disk.call(message(20_000))
    assert disk.free == left


def test_what_makes_room_is_stored_on_a_full_disk_until_only_settlements_have_what_they_need(
    disk: Disk, on_disk: Store
) -> None:
    disk.fill()
    assert on_disk.call(settled, drains=True) == "settled", "the first that finds no room gets the reserve"
    for _ in range(100):
        assert on_disk.call(settled, drains=True) == "settled"
    disk.fill(but=300_000)
    with pytest.raises(StoreFull, match="what is left is kept for settlements"):
        on_disk.call(settled, drains=True)
    assert on_disk.call(settled, keep=True) == "settled"
    disk.make_room()
    eventually(lambda: on_disk.call(message(100_000)))
    assert on_disk.call(settled, drains=True) == "settled"


def test_a_process_that_begins_on_a_full_disk_gets_the_reserve_and_takes_nothing_new(disk: Disk) -> None:
    store = Store(disk.point / "store.db")
    store.open()
    store.close()
    disk.fill()
    for _ in range(2):
        again = Store(disk.point / "store.db")
        again.open()
        assert again.call(settled, drains=True) == "settled"
        with pytest.raises(StoreFull):
            again.call(message(1000))
        again.close()


def test_a_settlement_that_finds_no_room_at_all_is_stored_when_there_is_some(disk: Disk, mount: Mount) -> None:
    tiny = Disk(mount("-t", "tmpfs", "-o", "size=2m", "tmpfs"))
    store = Store(tiny.point / "store.db")
    store.open()
    assert not (tiny.point / "store.db.d" / "reserve").exists(), "a disk this small has nothing to spare"
    tiny.fill()
    told = Told()
    store.submit(message(300_000), told, keep=True)
    with pytest.raises(StoreFull):
        store.call(message(300_000))
    assert told.results == []
    tiny.make_room()
    assert told.wait(1) == [1]
    eventually(lambda: store.call(message(1000)))
    store.close()


@pytest.mark.spec("SEC-031", versions="all")
def test_a_store_that_was_full_opens_again_without_repair(disk: Disk) -> None:
    path = disk.point / "store.db"
    store = Store(path)
    store.open()
    store.call(message(1000))
    disk.fill()
    with pytest.raises(StoreFull):
        store.call(message(200_000))
    store.close()
    disk.make_room()
    again = Store(path)
    again.open()
    assert counted(again, "message") == 1
    again.call(message(200_000))
    again.close()


def test_opening_on_a_full_disk_says_that_it_is_full(disk: Disk) -> None:
    store = Store(disk.point / "store.db")
    store.open()
    store.close()
    (disk.point / "store.db.d" / "reserve").unlink()
    disk.fill()
    with pytest.raises(StoreFull, match="Free disk space"):
        Store(disk.point / "store.db").open()


def test_the_reserve_is_made_where_there_is_plenty_and_made_again_after_use(disk: Disk) -> None:
    path = disk.point / "reserve"
    reserve = Reserve(path)
    assert not reserve.is_spent
    reserve.restore()
    assert path.stat().st_blocks * 512 >= MIB, "its blocks are allocated, not only its length"
    assert not reserve.is_spent
    reserve.release()
    assert reserve.is_spent
    assert path.stat().st_size == 1, "what is left tells the others"
    reserve.restore()
    assert path.stat().st_size == 1, "it looks once a second only"
    again = Reserve(path)
    again.restore()
    assert path.stat().st_size == MIB
    time.sleep(0.05)  # it asks so often only
    assert not reserve.is_spent, "another instance made it"


def test_no_reserve_is_made_on_a_disk_that_has_little_left(mount: Mount) -> None:
    tiny = mount("-t", "tmpfs", "-o", "size=4m", "tmpfs")
    reserve = Reserve(tiny / "reserve")
    reserve.restore()
    assert not (tiny / "reserve").exists()
    assert not reserve.is_spent, "what never was cannot be spent"
