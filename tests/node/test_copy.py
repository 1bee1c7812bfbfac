"""A wrapped service in mode ``copy``: its application is called, and what it has taken is published."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import Wrapped
from tests.node.conftest import Connect, assert_sound
from tests.support.in_process import FACTORY, InProcess, taken, until
from wsrm_mq.queue.topics import topic_of

PUT = "urn:example:orders/put"


@pytest.fixture
def refused() -> list[int]:
    """Numbers that the application fails for."""
    return []


@pytest.fixture
def service(in_process: Wrapped, refused: list[int]) -> InProcess:
    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        if environ.get("wsrm.message_number") in refused:
            start_response("500 Internal Server Error", [])
            return []
        return taken(start_response)

    return in_process(app, mode="copy", one_way=(PUT,), retry=[], on_poison="dead_letter")


def test_subscriptions_get_copies_in_order_of_what_the_application_has_taken(
    service: InProcess, connect: Connect, refused: list[int]
) -> None:
    node = connect("audit")
    node.declare("large", properties={"number": "number(//*[local-name()='MessageNumber'])"})
    node.bind("orders/#", "large", filter="number > 2")
    node.bind("returns/#", "large")
    everything = node.subscribe(topic="orders/put", name="all", client="audit", max_backlog=9)
    refused.append(2)
    identifier = service.create()
    for number in (3, 1, 2):
        assert service.put(identifier, number).startswith("200")
    got = [everything.next(timeout=5), everything.next(timeout=5)]
    assert [one.body for one in got if one is not None] == [FACTORY.message(identifier, n) for n in (1, 3)] or all(
        f">{n}</".encode() in one.body for n, one in zip((1, 3), got, strict=True) if one is not None
    )
    assert [(one.topic, one.type) for one in got if one is not None] == [("orders/put", PUT)] * 2
    everything.close()
    (one,) = node.receive("large", 9)
    assert one.properties == {"number": 3}
    assert one.ack() == "settled"
    assert_sound(service.path)
    bodies = "SELECT count(*) FROM message WHERE body IS NULL"
    assert service.rows(bodies) == [(0,)], "the endpoint keeps them as long as its retain says"


def test_a_full_subscription_gets_no_copy_and_delays_no_delivery(service: InProcess, connect: Connect) -> None:
    node = connect("audit")
    node.declare("few", max_messages=1)
    node.bind("orders/#", "few")
    identifier = service.create()
    for number in (1, 2):
        service.put(identifier, number)
    delivered = "SELECT count(*) FROM entry WHERE outcome = 'delivered'"
    assert until(lambda: service.rows(delivered) == [(2,)])
    assert node.stats("few").ready == 1
    ((reason,),) = service.rows("SELECT reason FROM ledger WHERE event = 'unrouted'")
    assert reason.startswith("orders/put: few has 1 message")


@pytest.mark.parametrize(
    ("endpoint", "action", "topic"),
    [
        ("/orders", "urn:shop:orders/place", "orders/place"),
        ("/a/b/", "http://shop/#place", "a/b/place"),
        ("/orders", None, "orders"),
        ("/", "urn:put", "put"),
        ("/", "", "message"),
        ("/a*", "urn:x\u00e9", "a_/x_"),
    ],
)
def test_a_topic_is_the_path_and_the_end_of_the_action(endpoint: str, action: str | None, topic: str) -> None:
    assert topic_of(endpoint, action) == topic
