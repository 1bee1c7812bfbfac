"""A node keeps what it has as long as the service beside it says, or as its queues do."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.conftest import Wrapped
from tests.routes.net import Net, until
from tests.support.in_process import taken
from wsrm_mq.delivery.janitor import Janitor
from wsrm_mq.node.opened import KEPT, Upkeep
from wsrm_mq.queue import retention
from wsrm_mq.store import queues


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Janitors sweep many times a second."""
    defaults = {**(Janitor.__init__.__kwdefaults__ or {}), "witness_seconds": 0.05, "sweep_seconds": 0.05}
    monkeypatch.setattr(Janitor.__init__, "__kwdefaults__", defaults)
    monkeypatch.setattr(retention, "GRACE", 100)


def test_what_a_service_has_done_is_kept_though_its_store_takes_from_other_nodes(
    net: Net, in_process: Wrapped, soon: None, tmp_path: Any
) -> None:
    def app(_environ: dict[str, Any], start_response: Any) -> list[bytes]:
        return taken(start_response)

    service = in_process(app, one_way=())
    identifier = service.create()
    for number in (1, 2):
        assert service.put(identifier, number).startswith("20")
    settled = "SELECT count(*) FROM entry WHERE outcome = 'delivered' AND settled_at IS NOT NULL"
    assert until(lambda: service.rows(settled) == [(2,)])
    b = net.nodes["b"] = type(net.add("a"))(net, "b")
    b.path = service.path
    b.start()
    b.node.declare("orders")
    net.nodes["a"].node.route("*", b.url)
    net.nodes["a"].node.put("orders", b"1")
    assert until(lambda: b.bodies("orders") == [b"1"])
    time.sleep(0.7)
    assert service.rows("SELECT count(*) FROM message WHERE body IS NOT NULL AND id <= 2") == [(2,)]


def test_where_no_service_is_a_node_keeps_house_by_itself(net: Net) -> None:
    a, b = net.add("a"), net.add("b")
    b.node.declare("orders")
    a.node.route("*", b.url)
    a.node.put("orders", b"1")
    assert until(lambda: b.bodies("orders") == [b"1"] and a.waiting() == 0)
    for one in (a, b):
        with one.node.reader() as db:
            assert db.execute(queues.IS_SERVED).fetchone() == (0,), one.name
    assert Upkeep(a.node.store, a.node.telling)._policy_of(None) is KEPT
