"""Filters over what a queue promotes: put, received, looked at, settled."""

from __future__ import annotations

import re

import pytest

from tests.support.pages import DOCS
from wsrm_mq.errors import ConfigurationError, FilterError
from wsrm_mq.node import Node

PROMOTED = {"id": "//{urn:shop}id", "amount": "number(//{urn:shop}amount)", "region": "$.region"}


def order(id: str, amount: int) -> str:
    return f"<order xmlns='urn:shop'><id>{id}</id><amount>{amount}</amount></order>"


def test_properties_of_bodies_are_promoted_when_they_are_put(node: Node) -> None:
    node.declare("orders", properties=PROMOTED)
    for body in (order("7", 50), order("8", 500), {"region": "eu"}, "<order"):
        node.put("orders", body)
    node.put("orders", order("9", 1), properties={"id": "said", "mine": True})
    seen = [one.properties for one in node.peek("orders")]
    found = [{"id": "7", "amount": 50}, {"id": "8", "amount": 500}, {"region": "eu"}, {}]
    assert seen == [*found, {"id": "9", "mine": True, "amount": 1}]
    assert [one.properties["id"] for one in node.peek("orders", filter="amount >= 50")] == ["7", "8"]
    assert [one.properties["id"] for one in node.receive("orders", 9, filter="amount < 100 and mine = true")] == ["9"]
    assert [one.json() for one in node.receive("orders", 9, filter="region in ('eu')")] == [{"region": "eu"}]


def test_a_body_in_another_charset_is_read_as_its_content_type_says(node: Node) -> None:
    node.declare("orders", properties={"name": "//name"})
    node.put("orders", "<name>Müller</name>".encode("iso-8859-1"), content_type='text/xml; charset="ISO-8859-1"')
    assert len(node.peek("orders", filter="name = 'Müller'")) == 1


@pytest.mark.scenario("Q-072")
def test_a_filter_settles_what_was_never_delivered_too(node: Node) -> None:
    for number in range(20):
        node.put("orders", b"", properties={"id": "7", "status": "cancel" if number % 8 == 0 else "new"})
    node.receive("orders", 3)
    assert node.settle("orders", "id = '7' and status != 'cancel'", "expire") == (17, 0)
    assert [one.properties["status"] for one in node.peek("orders")] == ["cancel"] * 3
    assert {one.reason for one in node.dead("orders").peek()} == {"forced_expire"}


def test_what_cannot_be_read_is_refused_and_nothing_is_done(node: Node) -> None:
    with pytest.raises(ConfigurationError, match="The property id cannot be found by '//p:id'"):
        node.declare("orders", properties={"id": "//p:id"})
    assert node.keys() == []
    node.put("orders", b"")
    for act in (node.settle, lambda queue, filter: node.peek(queue, filter=filter)):
        with pytest.raises(FilterError, match=r"This text has no end.*Character 6 of the filter"):
            act("orders", "id = '7")
    assert len(node.peek("orders")) == 1


def test_the_example_of_the_page_is_so(node: Node) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (DOCS / "reference" / "filters.md").read_text(), re.S)
    exec(example, {"node": node})
    assert node.peek("orders") == []
    assert [one.properties for one in node.dead("orders").peek()] == [{"id": "7", "amount": 50}]
