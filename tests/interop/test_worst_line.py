"""Clients of Java's stacks over lines that lose, keep back and repeat what goes either way, while our server is killed.

The service has its effects exactly once by its inbox, where a kill may come in the middle of an operation.
"""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest

from tests.support.orders_server import within
from tests.support.programs import free_port
from tests.support.proxy import EverySecond, EverySecondRequest, Proxy
from wsrm_mq.testing import Reply
from wsrm_mq.versions import RMVersion

from .conftest import all_acknowledged, assert_read, both_versions, texts
from .java_client import JavaClient
from .reliable import Reliable

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

POLL = b"/MakeConnection<"


class EverySecondPoll(EverySecond):
    """And every second MakeConnection is lost, or its answer."""

    def __init__(self) -> None:
        super().__init__()
        self._polls = itertools.count(1_000)

    def number(self, body: bytes) -> int | None:
        return next(self._polls) if POLL in body else super().number(body)


@both_versions
@pytest.mark.peer("P-18", "P-21")
def test_cxf_has_all_done_once_in_order_where_copies_come_late_and_answers_too(
    rm: RMVersion, shared_cxf: JavaClient, reliable: Reliable
) -> None:
    with Proxy(reliable.port, line := EverySecond(duplicates=0.3, delay=0.2)) as proxy:
        shared_cxf.open(address=proxy.url, rm=rm.namespace, interval="1000")
        shared_cxf.put(1, 80)
        assert all_acknowledged(shared_cxf)
        assert [call.result for call in shared_cxf.echo(81, 100)] == texts(81, 100)
        assert all_acknowledged(shared_cxf)
        shared_cxf.close()
    assert line.traffic.requests_lost == line.traffic.answers_lost == 25
    assert line.traffic.duplicates > 20
    assert reliable.done(100) == texts(1, 100)


@both_versions
@pytest.mark.peer("P-09", "P-14", "P-28")
def test_a_decoupled_cxf_has_every_reply_where_every_second_request_of_ours_is_lost(
    rm: RMVersion, shared_cxf: JavaClient, tmp_path: Path
) -> None:
    """Five callers share one sequence: its numbers, not theirs, are in order. A reply whose answer is lost comes
    again, and the line repeats some that were taken."""
    with (
        Proxy(line=EverySecondRequest(duplicates=0.3, delay=0.1)) as back,
        Reliable(tmp_path, decoupled="127.0.0.1", send_proxy=back.url, resend=",".join(["0.5"] * 20)) as reliable,
    ):
        address = f"http://127.0.0.1:{free_port()}/client"
        shared_cxf.open(address=reliable.url, rm=rm.namespace, interval="2000", decoupled=address)
        shared_cxf.put(1, 50)
        calls = shared_cxf.echo(51, 100, threads=5)
        assert [call.result for call in calls] == texts(51, 100)
        assert all_acknowledged(shared_cxf)
        assert within(30, lambda: unsettled_replies(reliable), lambda count: count == 0) == 0
        done = reliable.done(100)
        assert (done[:50], sorted(done[50:])) == (texts(1, 50), sorted(texts(51, 100)))
        assert reliable.numbers() == list(range(1, 101))
        shared_cxf.close()
    replies = Counter(message_id(sent.request) for sent in back.exchanges if b"echoResponse" in sent.request)
    assert len(replies) == 50
    assert max(replies.values()) > 1
    assert back.line.traffic.requests_lost > 10
    assert back.line.traffic.answers_lost > 10
    assert reliable.store.rows("select reason from entry where outcome = 'dead'") == []


def unsettled_replies(reliable: Reliable) -> int:
    query = "select count(*) from entry join lane on lane.id = entry.lane where kind = 'outgoing' and outcome is null"
    [(count,)] = reliable.store.rows(query)
    return int(count)


def message_id(body: bytes) -> str | None:
    return Reply.parse(body).message_id


@pytest.mark.peer("P-16", "P-18")
def test_metro_fetches_its_replies_where_polls_are_lost_and_the_server_is_killed(
    metro: JavaClient, tmp_path: Path
) -> None:
    """An operation takes longer than a response is waited for. Metro cannot bear a poll that fails beside a message on
    its way: the line waits for the server that comes back, and of messages one is on its way at a time."""
    options = {"rm": "WSRM200702", "polls": "1000", "interval": "300", "closing": "300"}
    with (
        Reliable(tmp_path, hold_wait="0.05", once=True, takes=0.2) as reliable,
        Proxy(reliable.port, EverySecond(), patience=60) as one_way,
        Proxy(reliable.port, line := EverySecondPoll(), patience=60) as two_way,
    ):
        metro.open(address=one_way.url, wsdl=f"{reliable.url}?wsdl", **options)
        metro.tell("put", 1, 10)
        kill(reliable, 5)
        metro.calls()
        metro.close()
        assert reliable.done(10) == texts(1, 10)
        metro.open(address=two_way.url, wsdl=f"{reliable.url}?wsdl", **options)
        metro.tell("echo", 11, 20, 1)
        kill(reliable, 15)
        assert [call.result for call in metro.calls()] == texts(11, 20)
        metro.close()
    fetched = [one for one in two_way.exchanges if POLL in one.request and one.answer and one.answer.body]
    assert fetched
    assert sum(POLL in one.request and one.answer is None for one in two_way.exchanges) > 0
    assert line.traffic.requests_lost + line.traffic.answers_lost > 5
    assert reliable.done(20) == texts(1, 20)
    assert reliable.ends() == [("ended", 11), ("ended", 11)]


def kill(reliable: Reliable, count: int) -> None:
    """When so many operations are done; and start it again."""
    assert len(reliable.done(count)) >= count
    reliable.kill()
    reliable.start()


@pytest.mark.peer("P-28")
def test_two_stacks_on_one_server_that_is_killed_twice_lose_and_reorder_nothing(
    shared_cxf: JavaClient, metro: JavaClient, tmp_path: Path
) -> None:
    with (
        Reliable(tmp_path, once=True) as reliable,
        Proxy(reliable.port, of_cxf := EverySecond(duplicates=0.2)) as proxy,
        Proxy(reliable.port, of_metro := EverySecond(duplicates=0.2)) as other,
    ):
        shared_cxf.open(address=proxy.url, interval="500")
        metro.open(address=other.url, wsdl=f"{reliable.url}?wsdl", rm="WSRM200702", interval="200", closing="300")
        shared_cxf.tell("put", 1, 30)
        metro.tell("put", 101, 130)
        kill(reliable, 20)
        shared_cxf.calls()
        metro.calls()
        assert all_acknowledged(shared_cxf)
        shared_cxf.tell("echo", 31, 50, 1)
        metro.tell("echo", 131, 150, 1)
        kill(reliable, 80)
        assert_read(shared_cxf.calls(), texts(31, 50))
        assert [call.result for call in metro.calls()] == texts(131, 150)
        assert all_acknowledged(shared_cxf)
        shared_cxf.close()
        metro.close()
    done = reliable.done(100)
    assert [text for text in done if text in texts(1, 50)] == texts(1, 50)
    assert [text for text in done if text in texts(101, 150)] == texts(101, 150)
    assert len(done) == 100
    assert all(line.traffic.requests_lost and line.traffic.answers_lost for line in (of_cxf, of_metro))
