"""The pages on frameworks are followed as they stand."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.deploy.client import Client
from tests.deploy.page import Page
from tests.support.orders_server import within

PAGES = {"django": "SELECT text FROM orders_order ORDER BY id", "fastapi": "SELECT text FROM orders ORDER BY rowid"}
"""Page -> what its service has done."""


@pytest.mark.parametrize("name", PAGES)
def test_a_framework_s_page_deploys_a_service_that_does_each_order_once_in_order(name: str, tmp_path: Path) -> None:
    def done() -> list[str]:
        with closing(sqlite3.connect(tmp_path / "orders.db")) as connection:
            return [text for (text,) in connection.execute(PAGES[name])][2:]

    def put(client: Client, number: int) -> None:
        body = f'<o:put xmlns:o="urn:example:orders"><o:text>order {number}</o:text></o:put>'
        assert client.send(number, body).status == 200

    page = Page(name, tmp_path)
    with page:
        page.follow()
        with Client(page.port, "/soap/") as client:
            identifier = client.create()
            for number in (1, 3, 3, 2, 2):
                put(client, number)
            assert within(10, done, lambda orders: len(orders) == 3) == ["order 1", "order 2", "order 3"], page.log
            put(client, 5)
        page.kill()
        page.start()
        with Client(page.port, "/soap/", identifier) as client:
            put(client, 4)
            assert within(10, done, lambda orders: len(orders) == 5)[3:] == ["order 4", "order 5"], page.log


@pytest.mark.parametrize("name", PAGES)
def test_what_is_not_soap_passes_to_the_framework_untouched(name: str, tmp_path: Path) -> None:
    with Page(name, tmp_path) as page, Client(page.port) as client:
        answer = client.wire.ask(b"GET /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert answer.status == 404
        assert page.store.rows("SELECT count(*) FROM message") == [(0,)]
