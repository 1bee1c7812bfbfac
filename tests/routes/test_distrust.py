"""Nodes that are wrong, or mean harm: each has a word only on what its token is for."""

from __future__ import annotations

import pytest

from tests.routes.net import Net, until
from wsrm_mq.errors import BadRequest
from wsrm_mq.queue import hopping
from wsrm_mq.queue.adding import Header, Put
from wsrm_mq.queue.hopping import Origin
from wsrm_mq.queue.routing import node_name, routes
from wsrm_mq.routes.block import Leaving, carried


def test_who_sends_for_one_queue_in_the_name_of_another_node_takes_nothing_from_the_other_queues(net: Net) -> None:
    a, b, foe = net.add("a"), net.add("b"), net.add("c")
    for queue in ("junk", "payroll"):
        b.node.declare(queue)
    for one in (a, foe):
        one.node.route("*", b.url)
    with a.node.reader() as db:
        name = node_name(db)

    def forge(tx: object) -> None:
        (way,) = routes(tx)  # type: ignore[arg-type]
        for position in range(1, 30):
            hopping.forward(tx, way, "junk", Put(b"x"), Origin(*name, position))  # type: ignore[arg-type]

    foe.node.call(forge)
    foe.routing._sending.look()
    assert until(lambda: len(b.bodies("junk")) == 29)
    a.node.put_many("payroll", [b"1", b"2", b"3"])
    assert until(lambda: a.waiting() == 0 and b.bodies("payroll") == [b"1", b"2", b"3"])


def test_reports_go_only_where_the_node_that_hands_a_message_over_may_put_itself(net: Net) -> None:
    b = net.add("b", may=lambda _tx, _principal, target: target == "junk")
    foe = net.add("c")
    for queue in ("junk", "payroll"):
        b.node.declare(queue)
    foe.node.route("*", b.url)
    header = Header(report_to="payroll")

    def forge(tx: object) -> None:
        (way,) = routes(tx)  # type: ignore[arg-type]
        for position, target in enumerate(("nowhere", "junk", "junk")):
            one = Put(b"x", header=header, asks=5)
            hopping.forward(tx, way, target, one, Origin("b", "x", position))  # type: ignore[arg-type]

    foe.node.call(forge)
    foe.routing._sending.look()
    assert until(lambda: len(b.bodies("junk")) == 2)
    assert [reason for reason, _why in b.dead()] == ["not_allowed"]
    assert b.bodies("payroll") == []


@pytest.mark.parametrize(
    ("attributes", "properties"),
    [
        ("", "no JSON"),
        ("", "[1]"),
        ("", '{"a": NaN}'),
        ('messageId="#17"', "{}"),
        (f'type="{"x" * 1001}"', "{}"),
    ],
)
def test_what_no_program_could_have_put_is_refused_before_a_consumer_stumbles_over_it(
    attributes: str, properties: str
) -> None:
    said = {"target": "orders", "node": "a", "incarnation": "x", "position": 1}
    sound = Leaving("http://b/rm", said, ("a",), properties="{}").envelope(b"1")
    assert carried(sound, 0).target == "orders"
    wrong = Leaving("http://b/rm", said, ("a",), properties).envelope(b"1")
    with pytest.raises(BadRequest):
        carried(wrong.replace(b"<r:Route ", f"<r:Route {attributes} ".encode()), 0)
