"""The page on sending to other nodes is followed as it stands."""

from __future__ import annotations

import re
import time

import pytest

from tests.deploy.page import HOWTO
from tests.routes.net import Net, until
from tests.support.pages import Shell, shell
from wsrm_mq.queue.hopping import Origin
from wsrm_mq.routes.block import NAMESPACE, carried

__all__ = ["shell"]

PAGE = HOWTO / "send-to-other-nodes.md"
ATTRIBUTE = re.compile(r'\s(\w+)="')


@pytest.mark.timeout(300)
def test_an_order_arrives_over_a_hub_that_was_away_as_the_page_says(shell: Shell) -> None:
    assert shell.follow_page(PAGE, 90) > 15


def test_the_header_block_that_the_page_shows_is_read_and_has_what_is_written(net: Net) -> None:
    (shown,) = re.findall("```xml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    content = f'<r:Content xmlns:r="{NAMESPACE}">MQ==</r:Content>'
    come = carried(f"<e>{shown}{content}</e>".encode(), 1_000)
    assert come.origin == Origin("shop", "5f1c09aa4be2d310", 17, ("shop",))
    assert (come.target, come.one.body, come.one.header.receive_by, come.is_express) == ("orders", b"1", 60_873, True)
    a, b = net.add("a"), net.add("b")
    a.node.declare("admin")
    a.node.route("orders", b.url)
    own = {"type": "Order", "message_id": "o-1", "content_type": "text/plain", "group": "g", "durability": "express"}
    a.node.put("orders", b"1", report_to="admin", ttl=50, reach_by=time.time() + 50, **own)  # type: ignore[arg-type]
    assert until(lambda: net.carried)
    written = next(body for body in net.bodies if b"<r:Route" in body)
    block = re.search("<r:Route[^>]*>", written.decode())
    assert block is not None
    names = set(ATTRIBUTE.findall(block[0]))
    assert len(names) >= 14
    assert names < set(ATTRIBUTE.findall(shown))
