"""A program that consumes uses the store of a wrapped service, and neither disturbs the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Wrapped
from tests.node.conftest import Connect, assert_sound
from tests.support.in_process import taken, until
from wsrm_mq.errors import NotAllowed
from wsrm_mq.wsgi import WSRMMiddleware


def test_a_service_with_a_name_and_a_node_share_a_store(
    in_process: Wrapped, tmp_path: Path, path: Path, connect: Connect
) -> None:
    called: list[str] = []

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        called.append(environ["wsrm.message_number"])
        return taken(start_response)

    service = in_process(app, application="orders")
    identifier = service.create()
    assert service.put(identifier, 1).startswith("200")
    (file,) = tmp_path.rglob("*.db")
    assert file == path
    with connect() as node:
        node.put_many("returns", range(300))
        assert service.put(identifier, 2).startswith("200")
        assert [one.json() for one in node.receive("returns", 2)] == [0, 1]
        assert until(lambda: len(called) == 2)
        assert_sound(path)
    names = "SELECT name, application FROM queue ORDER BY name"
    assert service.rows(names)[-1] == ("returns", None)
    assert service.rows(names)[0][1] == "orders"
    assert called == sorted(called)
    assert len(called) == 2


def test_a_node_is_taken_for_the_store_of_a_service(connect: Connect) -> None:
    node = connect()

    def app(_environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        return taken(start_response)

    with WSRMMiddleware(app, store=node, queue="orders"), pytest.raises(NotAllowed, match="queue of a wrapped service"):
        node.declare("orders")
