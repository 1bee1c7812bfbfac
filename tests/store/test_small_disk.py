"""A disk so small that the store and its log fill it together: what was done is recorded all the same, and it stops."""

from __future__ import annotations

import time
from contextlib import closing

import pytest

from tests.conftest import Mount
from tests.store.test_full import counted, message, settled
from tests.store.test_writer import Told
from tests.support.disk import Disk
from wsrm_mq.errors import StoreFull
from wsrm_mq.store.sqlite.connection import connect_reader
from wsrm_mq.store.store import Store


def until_full(store: Store) -> int:
    body = message(20_000)
    for taken in range(3_000):
        try:
            store.call(body, size=20_000)
        except StoreFull:
            return taken
    raise AssertionError("it never was full")


@pytest.mark.parametrize("size", ["4m", "12m", "24m"])
def test_store_and_log_that_fill_a_disk_together_still_settle_and_stop_in_time(mount: Mount, size: str) -> None:
    disk = Disk(mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs"))
    store = Store(disk.point / "store.db")
    store.open()
    taken = until_full(store)
    assert counted(store, "message") == taken
    told = Told()
    for _ in range(300):
        store.submit(settled, told, keep=True)
    assert told.wait(300) == ["settled"] * 300
    began = time.monotonic()
    store.close(timeout=5)
    assert time.monotonic() - began < 4
    with closing(connect_reader(store.path)) as db:
        for table, count in (("message", taken), ("ledger", 300)):
            assert db.execute(f"SELECT count(*) FROM {table}").fetchone() == (count,)
