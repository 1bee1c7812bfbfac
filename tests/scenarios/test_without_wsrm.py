"""One-way messages without WS-RM, stored because ``queue_one_way`` says so."""

from __future__ import annotations

import pytest

from tests.support.orders import PUT_ORDER, Orders, put_order
from tests.support.orders_server import OrdersServer, within
from tests.support.policies import Start
from tests.support.source import Source
from wsrm_mq.testing import HTTPWire


def put(source: Source, n: int, text: str = "") -> int:
    """Send a one-way order without WS-RM; the status of its answer."""
    return source.post(one_way(source, put_order(n, text))).status


def one_way(source: Source, body: str) -> bytes:
    return source.speak.envelope(PUT_ORDER, body, reply_to="none")


def numbers(server: OrdersServer, count: int, seconds: float = 10) -> list[int]:
    """The orders in the order in which their operations ended, as soon as there are ``count``."""

    def seen() -> list[int]:
        return [n for (n,) in server.rows("select n from effects order by rowid")]

    return within(seconds, seen, lambda found: len(found) >= count)


@pytest.mark.scenario("Q-036", "Q-035")
def test_they_are_answered_at_once_and_run_in_order_of_receipt_on_their_connection(start: Start, speak: Orders) -> None:
    server = start(queue_one_way=True)
    with Source(server, speak) as slow, Source(server, speak) as other:
        assert put(slow, 1, "gate=go") == 202
        assert [put(slow, n) for n in (2, 3, 4)] == [202] * 3
        assert put(other, 11) == 202
        assert numbers(server, 1) == [11], "another connection does not wait"
        server.open_gate("go")
        assert numbers(server, 5) == [11, 1, 2, 3, 4]
    found = slow.store.rows("select kind, rm, connection is not null, expected from sequences order by key")
    assert found == [("connection", "none", 1, 5), ("connection", "none", 1, 2)]


@pytest.mark.scenario("Q-036")
def test_after_a_kill_they_run_in_order_of_receipt(start: Start, speak: Orders) -> None:
    server = start(queue_one_way=True)
    with Source(server, speak) as source:
        assert put(source, 1, "gate=go") == 202
        assert [put(source, n) for n in range(2, 21)] == [202] * 19
    assert within(5, lambda: server.rows("select n from calls"), bool) == [(1,)]
    server.kill()
    server.open_gate("go")
    server.start()
    assert numbers(server, 20) == list(range(1, 21))
    assert server.rows("select n from calls where n = 1") == [(1,), (1,)]


def test_what_one_of_them_does_with_the_inbox_is_done_once(start: Start, speak: Orders) -> None:
    server = start(queue_one_way=True, one_way=[f"{PUT_ORDER.rpartition('/')[0]}/put_once"])
    with Source(server, speak) as source:
        body = put_order(1, "die-after=1").replace("put_order", "put_once")
        source.send(one_way(source, body))  # the process may end before all of its answer is sent
        server.died()
    server.start()
    assert within(10, lambda: source.store.rows("select outcome from entry"), lambda rows: rows == [("delivered",)])
    assert numbers(server, 1) == [1]
    assert len(server.rows("select 1 from calls")) == 2


def test_one_that_cannot_be_delivered_goes_to_the_dead_letters_and_the_others_go_on(
    start: Start, speak: Orders
) -> None:
    server = start(queue_one_way=True, retry=[0.05])
    with Source(server, speak) as source:
        assert [put(source, n, "fail=99" if n == 2 else "") for n in (1, 2, 3)] == [202] * 3
        assert numbers(server, 2) == [1, 3]
    wanted = [("delivered",), ("dead",), ("delivered",)]
    outcomes = within(
        5, lambda: source.store.rows("select outcome from entry order by id"), lambda rows: rows == wanted
    )
    assert outcomes == wanted


def test_where_no_connection_is_shown_each_is_delivered_by_itself_after_a_kill_too(start: Start, speak: Orders) -> None:
    server = start(queue_one_way=True, shows_connections=False, retry=[0.2])
    with Source(server, speak) as source:
        assert put(source, 1, "gate=go") == 202
        assert [put(source, n, "fail=1" if n == 4 else "") for n in range(2, 7)] == [202] * 5
        assert sorted(numbers(server, 5)) == [2, 3, 4, 5, 6], "none waits for another"
        settled = "select count(*) from entry where outcome = 'delivered'"
        assert within(5, lambda: source.store.rows(settled), lambda rows: rows == [(5,)]) == [(5,)]
        server.kill()
        server.open_gate("go")
        server.start()
        assert sorted(numbers(server, 6)) == [1, 2, 3, 4, 5, 6]
    with Source(server, speak) as source:
        assert put(source, 7, "fail=99") == 202
    assert server.rows("select count(*) from calls where n = 1") == [(2,)]
    asked = "select state, reason, sequence, number from messages order by position"
    wanted = [*[("delivered", None, None, None)] * 6, ("dead", "max_failures", None, None)]
    assert within(10, lambda: source.store.rows(asked), lambda rows: rows == wanted) == wanted
    assert source.store.rows("select count(*) from sequences") == [(0,)]


def test_two_way_requests_pass_as_before(start: Start, speak: Orders) -> None:
    server = start(queue_one_way=True)
    with Source(server, speak) as source:
        body = "<t:echo xmlns:t='urn:example:orders'><t:text>hello</t:text></t:echo>"
        answer = source.post(speak.envelope("urn:example:orders/echo", body, reply_to=""))
        assert answer.text("echoResult") == "hello"
    assert source.store.rows("select count(*) from message") == [(0,)]


def test_a_connection_at_its_bound_gets_503_until_there_is_room(start: Start, speak: Orders) -> None:
    server = start(queue_one_way=True, max_per_connection=3)
    with Source(server, speak) as source, Source(server, speak) as other:
        assert [put(source, n, "gate=go" if n == 1 else "") for n in (1, 2, 3)] == [202] * 3
        refused = source.post(speak.envelope(PUT_ORDER, put_order(4), reply_to="none"))
        assert (refused.status, refused.fields["retry-after"]) == (503, "5")
        assert put(other, 11) == 202
        assert source.store.rows("select count(*) from message") == [(4,)]
        server.open_gate("go")
        assert within(5, lambda: put(source, 4), lambda status: status == 202) == 202
        assert sorted(numbers(server, 5)) == [1, 2, 3, 4, 11]


@pytest.mark.parametrize("step", [3_600, -3_600])
def test_a_clock_that_is_stepped_by_an_hour_loses_and_disorders_nothing(start: Start, speak: Orders, step: int) -> None:
    server = start(queue_one_way=True)
    with Source(server, speak) as source:
        for n in range(1, 6):
            assert put(source, n) == 202
        assert numbers(server, 5) == [1, 2, 3, 4, 5]
        server.set_clock(step)
        for n in range(6, 11):
            assert put(source, n) == 202
        assert numbers(server, 10) == list(range(1, 11))


def test_a_connection_that_is_silent_for_long_is_over(start: Start, speak: Orders) -> None:
    server = start(queue_one_way=True, connection_idle=0.5)
    with Source(server, speak) as source:
        assert put(source, 1) == 202
        ended = within(5, lambda: source.store.rows("select ended from lane"), lambda rows: rows[0][0] is not None)
        assert ended == [("terminated",)]
        assert put(source, 2) == 202
        assert numbers(server, 2) == [1, 2]


def test_a_port_that_another_client_takes_is_another_connection(start: Start, speak: Orders) -> None:
    server = start(queue_one_way=True, retry=[3600.0])
    with Source(server, speak) as source:
        port = source.wire.socket.getsockname()[1]
        assert put(source, 1, "fail=99") == 202
        source.wire.reset()
        source.wire = HTTPWire(server.port, own_port=port)
        assert put(source, 2) == 202
        assert numbers(server, 1) == [2], "it does not wait for what failed on the other one"
    names = [name for (name,) in source.store.rows("select connection from message order by id")]
    assert len(set(names)) == 2
    assert {name.partition("/")[0] for name in names} == {f"127.0.0.1:{port}"}
