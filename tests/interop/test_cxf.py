"""Apache CXF's client, as it is by itself but for what a test names: it makes offers, of HTTP/2 and of a sequence for
replies, resends after 3 seconds and keeps its messages in Derby."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.orders_server import within
from tests.support.programs import free_port
from tests.support.proxy import Broken, EverySecond, EverySecondAnswer, Proxy
from wsrm_mq.testing import Reply
from wsrm_mq.versions import RM_VERSIONS, WSRM_1_0, WSRM_1_1, AddressingVersion, RMVersion, SOAPVersion

from .conftest import StartClient, all_acknowledged, assert_read, both_versions, texts
from .java_client import JavaClient
from .reliable import Reliable

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

BINDINGS = {
    SOAPVersion.SOAP_1_1: "http://schemas.xmlsoap.org/wsdl/soap/http",
    SOAPVersion.SOAP_1_2: "http://www.w3.org/2003/05/soap/bindings/HTTP/",
}
A_MINUTE_AGO = "wsrm_mq.destination.answers._OLD_REPLY_MS"


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[Reliable]:
    """It acknowledges a copy alone without waiting until the reply that it has sent is a minute old."""
    with Reliable(tmp_path, {A_MINUTE_AGO: 0}) as service:
        yield service


@both_versions
@pytest.mark.peer("P-01", "P-18")
def test_a_hundred_one_way_messages_survive_a_bad_line_and_a_kill(
    rm: RMVersion, cxf: StartClient, reliable: Reliable, tmp_path: Path
) -> None:
    with Proxy(reliable.port, line := Broken(50)) as proxy:
        options = {"address": proxy.url, "rm": rm.namespace, "store": str(tmp_path / "derby")}
        client = cxf()
        client.open(**options)
        assert {call.result for call in client.put(1, 49)} == {""}, "no caller is told of a loss"
        assert all_acknowledged(client)
        client.put(50, 50)
        client.kill()
        line.mended = True
        client = cxf()
        client.open(**options)
        assert client.unacknowledged() == 1
        client.put(51, 100)
        assert all_acknowledged(client)
        client.close()
    assert line.traffic.requests_lost + line.traffic.answers_lost >= 50
    assert reliable.done(100) == texts(1, 100)
    assert reliable.ends() == [("created", 101)], "restarted, it does not know where to close what it began before"


@both_versions
@pytest.mark.peer("P-15", "P-18")
def test_a_hundred_two_way_messages_survive_a_bad_line_and_a_kill(
    rm: RMVersion, cxf: StartClient, impatient: Reliable, tmp_path: Path
) -> None:
    """A caller waits until its lost message is sent again: 3 seconds each would be minutes. So early a copy may cross
    the first transmission, and then CXF now and then hands its caller an error, or a reply not unwrapped. The reply to
    a message from before its restart it cannot relate to a call; it is content when a copy is acknowledged alone."""
    with Proxy(impatient.port, line := Broken(50)) as proxy:
        options = {"address": proxy.url, "rm": rm.namespace, "store": str(tmp_path / "derby"), "interval": "300"}
        client = cxf()
        client.open(**options)
        assert_read(client.echo(1, 49), texts(1, 49))
        client.tell("echo", 50, 50, 1)
        assert impatient.done(50) == texts(1, 50)
        client.kill()
        line.mended = True
        client = cxf()
        client.open(**options)
        assert client.unacknowledged() == 1
        assert_read(client.echo(51, 100), texts(51, 100))
        assert all_acknowledged(client)
        client.close()
    assert line.traffic.requests_lost + line.traffic.answers_lost >= 50
    assert impatient.done(100) == texts(1, 100)
    assert impatient.ends() == [("created", 101)]


@both_versions
@pytest.mark.peer("P-15")
def test_callers_in_threads_on_one_port_all_get_their_replies(
    rm: RMVersion, cxf: StartClient, reliable: Reliable
) -> None:
    """CXF sends no request again that another caller's response has acknowledged."""
    with Proxy(reliable.port, line := EverySecondAnswer()) as proxy:
        client = cxf()
        client.open(address=proxy.url, rm=rm.namespace)
        calls = client.echo(1, 100, threads=4)
        assert_read(calls, texts(1, 100))
        assert all_acknowledged(client)
        client.close()
    assert (line.traffic.answers_lost, line.traffic.requests_lost) == (50, 0)
    assert sorted(reliable.done(100)) == sorted(texts(1, 100))


@both_versions
def test_a_client_that_shuts_down_ends_its_sequence_as_far_as_it_ever_does(
    rm: RMVersion, shared_cxf: JavaClient, reliable: Reliable
) -> None:
    """In 1.1 it closes and does not terminate; in 1.0 it sends a last message and does not terminate."""
    shared_cxf.open(address=reliable.url, rm=rm.namespace)
    shared_cxf.put(1, 2)
    shared_cxf.echo(3, 4)
    shared_cxf.close()
    assert reliable.ends() == [("closed", 5) if rm.has_close else ("created", 6)]


@pytest.mark.parametrize(
    ("rm", "is_decoupled"),
    [(WSRM_1_1, False), (WSRM_1_0, False), (WSRM_1_0, True)],
    ids=["rm1.1", "rm1.0", "rm1.0-decoupled"],
)
@pytest.mark.peer("P-48")
def test_a_client_that_ends_its_sequence_is_told_of_the_end_of_the_one_that_it_offered(
    rm: RMVersion, is_decoupled: bool, cxf: StartClient, tmp_path: Path
) -> None:
    """On the response to its acknowledgement of the reply, or at its address."""
    with Reliable(tmp_path, decoupled="127.0.0.1") as reliable, Proxy(reliable.port) as proxy:
        own = {"decoupled": f"http://127.0.0.1:{free_port()}/client"} if is_decoupled else {}
        client = cxf()
        client.open(address=proxy.url, rm=rm.namespace, last="true", **own)
        assert [call.result for call in client.echo(1, 1)] == texts(1, 1)
        over = [("terminated", "1")]
        states = "select state, acknowledged from outbound_sequence"
        assert within(20, lambda: reliable.store.rows(states), lambda rows: rows == over) == over
        action = rm.action("TerminateSequence")
        letters = "select outcome from entry join message m on m.id = message where m.action = ?"
        sent = [("delivered",)] if is_decoupled else []
        assert within(10, lambda: reliable.store.rows(letters, action), lambda rows: rows == sent) == sent
        told = [one for one in proxy.exchanges if one.answer is not None and f">{action}<".encode() in one.answer.body]
        assert len(told) == (0 if is_decoupled else 1)
        assert "Exception" not in client.log
        client.close()


@pytest.mark.peer("P-48")
@pytest.mark.parametrize("soap", SOAPVersion, ids=lambda soap: f"soap{soap.label}")
@pytest.mark.parametrize(
    ("rm", "wsa"),
    [(rm, wsa) for rm in RM_VERSIONS.values() for wsa in rm.addressings],
    ids=lambda version: version.label,
)
def test_the_service_follows_the_versions_of_the_client(
    rm: RMVersion, wsa: AddressingVersion, soap: SOAPVersion, shared_cxf: JavaClient, reliable: Reliable
) -> None:
    with Proxy(reliable.port) as proxy:
        shared_cxf.open(address=proxy.url, rm=rm.namespace, wsa=wsa.namespace, soap=BINDINGS[soap])
        shared_cxf.put(1, 2)
        assert [call.result for call in shared_cxf.echo(3, 4)] == texts(3, 4)
        assert shared_cxf.unacknowledged() == 0
        shared_cxf.close()
    assert len(proxy.exchanges) > 4
    for one in proxy.exchanges:
        assert one.fields["upgrade"] == "h2c"
        assert one.answer is not None
        assert one.answer.status < 300
        for message in (one.request, one.answer.body):
            assert not message or all(version.namespace.encode() in message for version in (wsa, soap))


@pytest.mark.peer("P-68")
def test_where_reliable_messaging_is_required_the_wsdl_alone_switches_it_on(
    shared_cxf: JavaClient, tmp_path: Path
) -> None:
    with Reliable(tmp_path, require_rm="true") as reliable:
        shared_cxf.open(address=reliable.url, wsdl=f"{reliable.url}?wsdl")
        shared_cxf.put(1, 2)
        assert [call.result for call in shared_cxf.echo(3, 4)] == texts(3, 4)
        shared_cxf.close()
        assert reliable.ends() == [("closed", 5)]


@both_versions
@pytest.mark.peer("P-03", "P-09", "P-48")
def test_a_client_with_an_address_of_its_own_gets_acknowledgements_and_replies_there(
    rm: RMVersion, cxf: StartClient, tmp_path: Path
) -> None:
    """Killed with what the line has lost, it has all across after its restart. In 1.0 it terminates its sequences. Now
    and then CXF cannot hand a reply to its caller (the page says so); the reply is acknowledged all the same."""
    with Reliable(tmp_path, decoupled="127.0.0.1") as reliable, Proxy(reliable.port, EverySecond()) as proxy:
        options = {
            "address": proxy.url,
            "rm": rm.namespace,
            "store": str(tmp_path / "derby"),
            "interval": "300",
            "decoupled": f"http://127.0.0.1:{free_port()}/client",
        }
        client = cxf()
        client.open(**options)
        client.put(1, 40)
        client.kill()
        client = cxf()
        client.open(**options)
        assert client.unacknowledged() > 0
        client.put(41, 80)
        assert all_acknowledged(client)
        assert_read(client.echo(81, 100), texts(81, 100))
        assert all_acknowledged(client)
        assert reliable.done(100) == texts(1, 100)
    answers = [one.answer.status for one in proxy.exchanges if one.answer is not None and not is_empty(one.request)]
    assert set(answers) == {202}, "nothing came on the responses"


def is_empty(request: bytes) -> bool:
    """Whether it is an acknowledgement without one in it: CXF, on a busy machine, sends one now and then, when what it
    had to say has just left with another message. That is refused."""
    said = Reply.parse(request)
    return (said.action or "").endswith("/SequenceAcknowledgement") and not said.acks
