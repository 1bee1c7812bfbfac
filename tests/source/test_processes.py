"""Programs that send are killed, servers are restarted, the line is bad: each order arrives once, in its order."""

from __future__ import annotations

import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.orders_server import OrdersServer, within
from tests.support.processes import Python
from tests.support.proxy import EverySecondRequest, Proxy
from wsrm_mq.testing import WSRM_1_0, WSRM_1_1, RMVersion

PUT_ONCE = "urn:example:orders/put_once"
PROGRAM = """
import sys
from tests.support.orders import put_order
from wsrm_mq.source import RMSource
from wsrm_mq.testing import SOAPVersion

store, url, rm, *orders = sys.argv[1:]
soap = (SOAPVersion.SOAP_1_1 if rm == "1.0" else SOAPVersion.SOAP_1_2).namespace
source = RMSource(store, rm=rm)
for n in map(int, orders):
    order = put_order(n).replace("put_order", "put_once")
    body = f'<s:Envelope xmlns:s="{soap}"><s:Body>{order}</s:Body></s:Envelope>'
    source.send(body.encode(), to=url, action="urn:example:orders/put_once")
print("stored", flush=True)
source.flush()
print("acknowledged", flush=True)
source.close()
"""


@pytest.fixture
def orders_server(tmp_path: Path) -> Iterator[OrdersServer]:
    server = OrdersServer(tmp_path)
    server.start()
    yield server
    server.stop()


def effects(server: OrdersServer) -> list[int]:
    return [n for (n,) in server.rows("select n from effects order by rowid")]


def stored(store: Path) -> int:
    """How many orders a source has taken."""
    with closing(sqlite3.connect(store, timeout=10)) as db:
        return int(db.execute("SELECT count(*) FROM message WHERE action = ?", (PUT_ONCE,)).fetchone()[0])


@pytest.mark.parametrize("rm", [pytest.param(WSRM_1_0, marks=pytest.mark.long), WSRM_1_1], ids=["rm1.0", "rm1.1"])
@pytest.mark.spec("S-RET-010", "S-SND-004", "S-SND-006")
def test_a_source_that_is_killed_loses_repeats_and_swaps_nothing(
    orders_server: OrdersServer, tmp_path: Path, python: Python, rm: RMVersion
) -> None:
    """Over a line that loses every second request or its answer, and a server that is killed too."""
    store, last = tmp_path / "outbox.db", 12
    with Proxy(orders_server.port, EverySecondRequest(duplicates=0.2)) as line:
        url = f"http://127.0.0.1:{line.port}/orders"
        for life in range(3):
            first = stored(store) if store.exists() else 0
            program = python(PROGRAM, store, url, rm.label, *range(first, last))
            enough = len(effects(orders_server)) + 2
            if life == 2:
                break
            within(20, lambda: len(effects(orders_server)), enough.__le__)
            program.kill()
            program.wait()
            if life == 1:
                orders_server.kill()
                orders_server.start()
                line.upstream = orders_server.port
        assert program.stdout is not None
        assert [program.stdout.readline().strip() for _ in range(2)] == ["stored", "acknowledged"]
    assert within(20, lambda: effects(orders_server), lambda found: len(found) >= last) == list(range(last))


@pytest.mark.scenario("Q-014")
def test_what_a_program_has_stored_before_it_was_killed_arrives_once_its_server_starts(
    orders_server: OrdersServer, tmp_path: Path, python: Python
) -> None:
    orders_server.kill()
    store, url = tmp_path / "outbox.db", orders_server.url
    program = python(PROGRAM, store, url, "1.1", *range(200))
    assert program.stdout is not None
    assert program.stdout.readline().strip() == "stored"
    program.kill()
    program.wait()
    program = python(PROGRAM, store, url, "1.1")
    assert program.stdout is not None
    assert program.stdout.readline().strip() == "stored"
    orders_server.start()
    assert program.stdout.readline().strip() == "acknowledged"
    assert within(20, lambda: effects(orders_server), lambda found: len(found) >= 200) == list(range(200))


@pytest.mark.scenario("Q-015")
def test_a_server_that_is_stopped_and_started_five_times_gets_each_of_a_thousand_orders_once_and_in_order(
    orders_server: OrdersServer, tmp_path: Path, python: Python
) -> None:
    program = python(PROGRAM, tmp_path / "outbox.db", orders_server.url, "1.1", *range(1_000))
    for times in range(1, 6):
        within(30, lambda: len(effects(orders_server)), (times * 100).__le__)
        orders_server.stop()
        assert len(effects(orders_server)) < 1_000
        orders_server.start()
    assert program.stdout is not None
    assert [program.stdout.readline().strip() for _ in range(2)] == ["stored", "acknowledged"]
    assert within(30, lambda: effects(orders_server), lambda found: len(found) >= 1_000) == list(range(1_000))


def test_several_programs_share_an_outbox_and_the_orders_of_each_stay_in_order(
    orders_server: OrdersServer, tmp_path: Path, python: Python
) -> None:
    store = tmp_path / "outbox.db"
    running: list[subprocess.Popen[str]] = [
        python(PROGRAM, store, orders_server.url, "1.1", *range(first, first + 8)) for first in (0, 100)
    ]
    for program in running:
        assert program.stdout is not None
        assert [program.stdout.readline().strip() for _ in range(2)] == ["stored", "acknowledged"]
    found = within(20, lambda: effects(orders_server), lambda found: len(found) >= 16)
    assert [n for n in found if n < 100] == list(range(8))
    assert [n for n in found if n >= 100] == list(range(100, 108))
    with closing(sqlite3.connect(store)) as db:
        assert db.execute("SELECT count(*) FROM outbound_sequence").fetchone() == (1,)


def test_a_server_that_is_away_for_long_gets_all_when_it_is_back(
    orders_server: OrdersServer, tmp_path: Path, python: Python
) -> None:
    orders_server.kill()
    store = tmp_path / "outbox.db"
    program = python(PROGRAM, store, orders_server.url, "1.1", *range(20))
    assert program.stdout is not None
    assert program.stdout.readline().strip() == "stored"
    time.sleep(0.5)
    orders_server.start()
    assert program.stdout.readline().strip() == "acknowledged"
    assert within(20, lambda: effects(orders_server), lambda found: len(found) >= 20) == list(range(20))
    with closing(sqlite3.connect(store)) as db:
        assert db.execute("SELECT sum(failures) FROM entry").fetchone() == (0,)
