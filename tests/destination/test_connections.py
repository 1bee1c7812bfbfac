"""Names of connections, from what each server shows."""

from __future__ import annotations

import gc
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process import FACTORY, InProcess, taken, until
from wsrm_mq.destination.connections import Connections, correct_peer
from wsrm_mq.store.sqlite import connection as store_connection

PEER = {"REMOTE_ADDR": "192.0.2.1", "REMOTE_PORT": "4711"}


class Thing:
    """What a server has for each connection."""

    def asked(self) -> None: ...


class Gateway:
    """cheroot's, as far as it leads to the connection."""

    def __init__(self, connection: object) -> None:
        self.req = Thing()
        self.req.conn = connection  # type: ignore[attr-defined]

    def start_response(self) -> None: ...


class Cycle:
    """uvicorn's, one for each request."""

    def __init__(self, transport: object) -> None:
        self.transport = transport

    async def receive(self) -> None: ...


def shown_by(server: str, connection: Thing) -> tuple[dict[str, Any], object]:
    """A request as that server gives it: its environ, and the function that comes with it."""
    return {
        "waitress": ({**PEER, "waitress.client_disconnected": connection.asked}, None),
        "gunicorn": ({**PEER, "gunicorn.socket": connection}, None),
        "cheroot": (dict(PEER), Gateway(connection).start_response),
        "uvicorn": (dict(PEER), Cycle(connection).receive),
    }[server]


SERVERS = pytest.mark.parametrize("server", ["waitress", "gunicorn", "cheroot", "uvicorn"])


@SERVERS
def test_a_connection_that_is_shown_keeps_its_name_and_its_port_may_come_back(server: str) -> None:
    names = Connections()
    first, second = Thing(), Thing()
    name = names.name(*shown_by(server, first))
    assert name is not None
    assert name.startswith("192.0.2.1:4711/")
    assert names.name(*shown_by(server, first)) == name
    assert names.name(*shown_by(server, second)) not in (None, name), "the port of another client"


@SERVERS
def test_its_end_is_noticed_where_it_is_asked_for(server: str) -> None:
    names, careless = Connections(notes_closes=True), Connections()
    connection = Thing()
    name = names.name(*shown_by(server, connection))
    careless.name(*shown_by(server, connection))
    assert names.closed() == []
    del connection
    gc.collect()
    assert names.closed() == [name]
    assert names.closed() == careless.closed() == []


def test_where_only_the_port_is_shown_it_is_another_connection_after_the_idle_limit() -> None:
    moments = iter((0.0, 9.0, 19.0, 29.1, 29.2))
    names = Connections(idle=10, monotonic=lambda: next(moments))
    first = names.name(PEER)
    assert [names.name(PEER), names.name(PEER)] == [first, first]
    second = names.name(PEER)
    assert second != first
    assert names.name({**PEER, "REMOTE_PORT": "4712"}) not in (first, second)


def test_ports_are_not_remembered_without_end() -> None:
    names = Connections()
    first = names.name(PEER)
    others = [names.name({**PEER, "REMOTE_PORT": str(port)}) for port in range(10_000, 20_000)]
    assert len(set(others)) == 10_000
    assert names.name(PEER) != first


@pytest.mark.parametrize("environ", [{}, {"REMOTE_ADDR": "192.0.2.1"}, {"REMOTE_ADDR": "", "REMOTE_PORT": ""}])
def test_without_a_port_there_is_no_name(environ: dict[str, str]) -> None:
    assert Connections().name(environ) is None


def test_the_header_of_a_trusted_proxy_stands_above_the_server_and_the_key_above_all() -> None:
    environ = {**PEER, "HTTP_X_CONNECTION_ID": "12-345", "gunicorn.socket": Thing()}
    options: dict[str, Any] = {"header": "X-Connection-Id", "trusted_proxies": ["192.0.2.0/24"]}
    assert Connections(**options).name(environ) == "12-345"
    stranger = Connections(**{**options, "trusted_proxies": ["198.51.100.1"]}).name(environ)
    assert stranger is not None
    assert stranger.startswith("192.0.2.1:4711/")
    assert Connections(**options, connection_key=lambda environ: "mine").name(environ) == "mine"


def test_elsewhere_than_under_uwsgi_the_peer_is_left_as_it_is() -> None:
    environ = {**PEER, "UWSGI_ROUTER": "http"}
    correct_peer(environ)
    assert environ == {**PEER, "UWSGI_ROUTER": "http"}


def test_a_connection_that_closes_while_the_store_is_busy_is_ended_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_connection, "BUSY_TIMEOUT_MS", 50)
    wsrm = InProcess(tmp_path, lambda _environ, start_response: taken(start_response), queue_one_way=True)
    socket = Thing()
    body = FACTORY.envelope("urn:orders/Put", '<o:put xmlns:o="urn:orders"/>', reply_to=FACTORY.none)
    assert wsrm.post(body, **{"werkzeug.socket": socket})[0].startswith("202")  # type: ignore[arg-type]
    assert until(lambda: wsrm.rows("SELECT count(*) FROM entry WHERE outcome = 'delivered'") == [(1,)])
    with closing(sqlite3.connect(wsrm.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        del socket
        time.sleep(1.5)  # the watch has looked
        other.execute("ROLLBACK")
    assert until(lambda: wsrm.rows("SELECT state FROM sequences") == [("ended",)], 5)
    wsrm.middleware.close(5)
