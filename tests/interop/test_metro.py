"""Metro's client, as it is by itself but for what a test names: it offers a sequence for replies, prefers Fast Infoset,
resends after 2 seconds, and keeps the caller until its message is acknowledged."""

from __future__ import annotations

import pytest

from tests.support.proxy import EverySecond, Proxy
from wsrm_mq.versions import MAKE_CONNECTION_NAMESPACE, WSRM_1_0, WSRM_1_1, RMVersion

from .conftest import both_versions, texts
from .java_client import JavaClient
from .reliable import Reliable

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

NAMES = {WSRM_1_0: "WSRM200502", WSRM_1_1: "WSRM200702"}


@both_versions
@pytest.mark.peer("P-15", "P-18", "P-21", "P-27")
def test_a_hundred_messages_survive_a_bad_line_and_are_ended(
    rm: RMVersion, metro: JavaClient, reliable: Reliable
) -> None:
    """The line keeps messages and answers back longer than Metro waits before it sends again, and repeats some when
    others have passed. Its own 2 seconds for each loss would be minutes."""
    with Proxy(reliable.port, line := EverySecond(duplicates=0.3, delay=0.3)) as proxy:
        metro.open(address=proxy.url, wsdl=f"{reliable.url}?wsdl", rm=NAMES[rm], interval="200", closing="300")
        metro.put(1, 50)
        assert [call.result for call in metro.echo(51, 100)] == texts(51, 100)
        metro.close()
    assert line.traffic.requests_lost == line.traffic.answers_lost == 25
    assert line.traffic.duplicates > 20
    assert reliable.done(100) == texts(1, 100)
    assert reliable.store.rows("select state, ended from sequences where kind = 'rm'") == [("ended", "terminated")]


@pytest.mark.peer("P-07", "P-68")
def test_the_wsdl_alone_switches_reliable_messaging_on(metro: JavaClient, reliable: Reliable) -> None:
    with Proxy(reliable.port, EverySecond()) as proxy:
        metro.open(address=proxy.url, wsdl=f"{reliable.url}?wsdl")
        metro.put(1, 2)
        assert [call.result for call in metro.echo(3, 4)] == texts(3, 4)
        metro.close()
    assert reliable.done(4) == texts(1, 4)
    assert reliable.ends() == [("ended", 5)]
    first, *_ = proxy.exchanges
    assert first.fields["accept"].startswith("application/fastinfoset")
    assert WSRM_1_1.namespace.encode() in first.request


@pytest.mark.peer("P-18")
def test_a_client_that_makes_connections_gets_its_answers_where_one_is_open(
    metro: JavaClient, reliable: Reliable
) -> None:
    """Its AcksTo and its ReplyTo are addresses of WS-MakeConnection. No call has to wait for the next poll."""
    with Proxy(reliable.port, EverySecond()) as proxy:
        options = {"rm": NAMES[WSRM_1_1], "polls": "2000", "interval": "200", "closing": "300"}
        metro.open(address=proxy.url, wsdl=f"{reliable.url}?wsdl", **options)
        metro.put(1, 10)
        assert [call.result for call in metro.echo(11, 20)] == texts(11, 20)
        metro.close()
    assert reliable.done(20) == texts(1, 20)
    assert reliable.ends() == [("ended", 21)]
    first, *_ = proxy.exchanges
    assert f"{MAKE_CONNECTION_NAMESPACE}/anonymous?id=".encode() in first.request
