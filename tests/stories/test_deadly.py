"""A message that its process dies of, four times: what is told while the service is down, and what helps."""

from __future__ import annotations

import pytest

from tests.stories.conftest import Operator, Serve, done
from tests.support.orders import OrderSender
from tests.support.orders_server import OrdersServer, within

DEATHS = 4


@pytest.fixture
def deadly(serve: Serve) -> tuple[OrdersServer, OrderSender, int]:
    """A service that was killed four times while it ran number 2; numbers 1 and 3 are good."""
    server = serve(retry=[0.1, 0.1])
    sender = OrderSender(server)
    sender.send(1)
    assert done(server, 1)
    sender.send(2, "gate=never")
    sender.send(3)
    for death in range(DEATHS):
        wanted = [(2,)] * (death + 1)
        assert within(10, lambda: server.rows("select n from calls where n = 2"), wanted.__eq__) == wanted
        pid = server.pid
        server.kill()
        if death < DEATHS - 1:
            server.start()
    return server, sender, pid


@pytest.mark.parametrize("act", ["sequence skip", pytest.param("sequence hold", marks=pytest.mark.long)])
def test_a_message_that_kills_the_service_is_named_and_put_aside_while_that_is_down(
    operator: Operator, deadly: tuple[OrdersServer, OrderSender, int], act: str
) -> None:
    server, sender, pid = deadly
    explained = operator.type(f"wsrm-mq sequence explain {sender.identifier}")
    assert f"Each of the last {DEATHS} processes that ran number 2 died while it ran" in explained
    assert f"(process {pid} on " in explained, "which was the last"
    assert "it goes on by itself" not in explained
    first = next(line for line in explained.splitlines() if line.startswith("next:"))
    assert f"wsrm-mq sequence skip {sender.identifier} 2 " in first
    status, examined = operator.status(), operator.type("wsrm-mq doctor")
    assert status.startswith("CRITICAL  "), "before all else"
    for told in (status, examined):
        assert told.index("processes that ran number 2 died") < told.index("No process of the service lives")
        assert "sequence skip" in told
    operator.follow(explained, act)
    server.start()
    if act == "sequence hold":
        sender.disconnect()
        sender.send(4)
        assert done(server, 1)
        held = operator.type(f"wsrm-mq sequence explain {sender.identifier}")
        assert held.startswith("held: ")
        operator.type(f"wsrm-mq message discard {_position(operator, sender)} --reason 'it kills us'")
        operator.follow(held, "sequence resume")
        assert done(server, 1, 3, 4)
    else:
        assert done(server, 1, 3)
    assert "processes that ran number 2" not in operator.status()


def _position(operator: Operator, sender: OrderSender) -> str:
    listed = operator.type(f"wsrm-mq message list seq:{sender.identifier} msg:2")
    return listed.splitlines()[1].split("\t")[0]


def test_a_process_that_died_once_speaks_against_no_message(operator: Operator, serve: Serve) -> None:
    server = serve()
    sender = OrderSender(server)
    sender.send(1, "gate=never")
    assert within(10, lambda: server.rows("select n from calls"), bool)
    server.kill()
    explained = operator.type(f"wsrm-mq sequence explain {sender.identifier}")
    assert "start the service, it goes on by itself" in explained
    assert "sequence skip" not in explained
