"""Whatever becomes of requests and answers, and whichever node is down: each message is in its queue once."""

from __future__ import annotations

import json
import random
import re
import time
from base64 import b64decode
from itertools import pairwise

import pytest

from tests.routes.net import Net, One, until
from wsrm_mq.routes import hops

ORIGIN = re.compile(rb'node="(\w+)" incarnation="\w+" position="(\d+)"')
CONTENT = re.compile(rb"<r:Content[^>]*>([^<]*)<")


def has(one: One) -> set[bytes]:
    """The bodies of all that a node has ever stored, and not deleted: as they came, or as they were put."""
    found = set()
    for (body,) in one.rows("SELECT body FROM message WHERE body IS NOT NULL"):
        content = CONTENT.search(body)
        found.add(b64decode(content[1]) if content else body)
    return found


def forgotten(one: One) -> set[bytes]:
    """The bodies of what it has handed over for good."""
    return {
        body
        for (body,) in one.rows(
            "SELECT m.body FROM entry e JOIN message m ON m.id = e.message JOIN routed r ON r.message = m.id "
            "WHERE r.sent_as IS NOT NULL AND e.outcome = 'delivered' AND m.body IS NOT NULL"
        )
    }


@pytest.mark.invariant("I13", "I14")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 30))])
def test_each_message_is_in_its_queue_once_and_no_node_forgets_what_the_next_has_not(
    net: Net, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``a`` leads to ``d`` by ``b``, and by ``c`` while that is away; ``e`` by ``b`` alone, so in order."""
    monkeypatch.setattr(hops, "AWAY_SECONDS", 0.3)
    monkeypatch.setattr(hops, "LADDER", (0.2,))
    monkeypatch.setattr(hops, "LOOK_SECONDS", 0.1)
    draw = random.Random(seed)
    a, b, c, d, e = (net.add(name) for name in "abcde")
    d.node.declare("free")
    e.node.declare("strict")
    a.node.route("free", b.url, cost=1)
    a.node.route("free", c.url, cost=2)
    a.node.route("strict", b.url)
    for one in (b, c):
        one.node.route("free", d.url)
    b.node.route("strict", e.url)
    fates = ["through"] * 6 + ["request lost", "answer lost", "answer lost"]
    net.fate = lambda _sender, _receiver, number: random.Random(f"{seed} {number}").choice(fates)
    put: dict[str, list[bytes]] = {"free": [], "strict": []}
    for turn in range(6):
        down = draw.choice([b, b, c, d, None])
        if down is not None:
            down.stop()
        for _ in range(draw.randrange(1, 15)):
            queue = draw.choice(["free", "strict"])
            put[queue].append(f"{queue} {turn} {len(put[queue])}".encode())
            a.node.put(queue, put[queue][-1], max_hops=3)
        time.sleep(draw.uniform(0, 0.6))
        gone = forgotten(a)  # before the others are looked at
        assert gone <= has(b) | has(c)
        if down is not None:
            down.start()
    net.fate = lambda *_: "through"
    assert until(lambda: len(d.bodies("free")) >= len(put["free"]) and len(e.bodies("strict")) >= len(put["strict"]))
    assert until(lambda: not any(one.waiting() for one in (a, b, c)))
    assert sorted(d.bodies("free")) == sorted(put["free"])
    assert e.bodies("strict") == put["strict"]
    assert [one.dead() for one in (a, b, c, d, e)] == [[]] * 5
    for one in (d, e):
        assert {len(json.loads(via)) for (via,) in one.rows("SELECT via FROM routed")} == {2}


@pytest.mark.invariant("I14")
@pytest.mark.parametrize("max_hops", [1, 2, 3, 4])
def test_no_more_nodes_have_a_message_than_may(net: Net, max_hops: int) -> None:
    nodes = [net.add(name) for name in "abcde"]
    for one, other in pairwise(nodes):
        one.node.route("orders", other.url)
    nodes[-1].node.declare("orders")
    nodes[0].node.put("orders", b"1", max_hops=max_hops)
    assert until(lambda: nodes[max_hops].dead())
    assert [one.dead()[0][0] if one.dead() else None for one in nodes].index("hop_count_exceeded") == max_hops
    assert [bool(one.rows("SELECT 1 FROM routed")) for one in nodes] == [number <= max_hops for number in range(5)]
