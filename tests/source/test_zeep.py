"""Clients of zeep over an RM Source: the calls of a program are stored before they leave."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zeep
from zeep.exceptions import Fault

from tests.source.partner import LOST, Partner, Said
from tests.support.source import OPPOSITES
from wsrm_mq.errors import ConfigurationError, NotFound, Pending
from wsrm_mq.source import ReliableClient, RMSource, reliable
from wsrm_mq.testing import EnvelopeFactory, Reply, RMVersion, SOAPVersion

WSDL = Path(__file__).parents[2] / "wsdl" / "orders.wsdl"
NAMESPACE = "urn:example:orders"
Connect = Callable[..., ReliableClient]


@pytest.fixture
def partner(rm: RMVersion) -> Partner:
    addressing = next(addressing for each, _soap, addressing in OPPOSITES if each is rm)
    made = Partner(EnvelopeFactory(rm, SOAPVersion.SOAP_1_1, addressing))

    def says(received: Reply) -> Said:
        if received.body_name != "echo":
            return None
        made.answer(received)
        text = received.body.findtext("{*}text") or ""
        return replied(
            made, received, f'<echoResponse xmlns="{NAMESPACE}"><echoResult>{text}</echoResult></echoResponse>'
        )

    made.says = says
    return made


def replied(partner: Partner, received: Reply, body: str, status: int = 200) -> Said:
    assert received.sequence is not None
    identifier = received.sequence.identifier
    headers = partner.speak.acknowledgement_header(identifier, *partner.ack(identifier).ranges)
    headers += f"<wsa:RelatesTo>{received.message_id}</wsa:RelatesTo>"
    return partner.answered(status, partner.speak.envelope(f"{received.action}Response", body, headers=headers))


@pytest.fixture
def connect(tmp_path: Path, partner: Partner) -> Iterator[Connect]:
    opened: list[ReliableClient] = []

    def make(**options: Any) -> ReliableClient:
        speak = partner.speak
        versions = {"rm": speak.rm.label, "addressing": speak.addressing.label}
        source = {"post": partner.post}
        made = ReliableClient(str(WSDL), store=tmp_path / "outbox.db", **{**versions, "source": source, **options})
        opened.append(made)
        return made

    yield make
    for one in opened:
        one.source.close()


def test_a_one_way_operation_returns_when_it_is_stored_and_one_with_a_reply_when_that_is_there(
    connect: Connect, partner: Partner
) -> None:
    with connect() as client:
        assert client.service.put_order(n=1, text="two seats") is None
        assert client.service.echo(text="hello") == "hello"
        assert client.source.flush(5)
        put, echo = (one for one in partner.received if one.sequence is not None)
        assert [one.sequence[:2] for one in (put, echo) if one.sequence] == [("urn:there:1", 1), ("urn:there:1", 2)]
        assert (put.body_name, put.addressing, echo.addressing) == ("put_order", *[partner.speak.addressing] * 2)
        bodies = [body for body in partner.bodies if b"urn:example:orders" in body]
        assert partner.speak.anonymous.encode() not in bodies[0]
        assert partner.speak.anonymous.encode() in bodies[1]
        assert all(body.count(b"Action") == 2 for body in bodies), "one start, and one end"


def test_a_fault_is_raised_as_zeep_raises_it(connect: Connect, partner: Partner) -> None:
    failed = "<soap:Fault><faultcode>soap:Client.NoStock</faultcode><faultstring>none left</faultstring></soap:Fault>"
    partner.says = lambda received: replied(partner, received, failed, 500) if received.body_name == "echo" else None
    with connect() as client, pytest.raises(Fault, match="none left"):
        client.service.echo(text="hello")


def test_what_is_not_replied_to_in_time_is_pending_and_answered_later_in_another_process(
    connect: Connect, partner: Partner
) -> None:
    says, partner.says = partner.says, lambda _received: LOST
    with connect(timeout=0.05) as client, pytest.raises(Pending) as pending:
        client.service.echo(text="hello")
    with pytest.raises(ConfigurationError, match="wsse"):
        connect(wsse=object())
    partner.says = says
    with connect() as client:
        assert client.source.flush(5)
        assert client.replies(pending.value.message_id) == "hello"
        with pytest.raises(NotFound, match="urn:never"):
            client.replies("urn:never")


def test_later_never_waits(connect: Connect, partner: Partner) -> None:
    says, partner.says = partner.says, lambda _received: LOST
    with connect() as client:
        later, put = client.later.echo(text="hello"), client.later.put_order(n=2, text="x")
        assert (later.done(), put.done()) == (False, False)
        with pytest.raises(Pending, match=later.message_id):
            later.result(0.01)
        partner.says = says
        client.source.try_now()
        assert (later.result(5), put.result(5)) == ("hello", None)
        assert later.done()


def test_a_client_that_is_there_already_is_made_reliable(tmp_path: Path, partner: Partner) -> None:
    speak = partner.speak
    versions = {"rm": speak.rm.label, "addressing": speak.addressing.label}
    with RMSource(tmp_path / "outbox.db", post=partner.post, **versions) as source:
        client = reliable(zeep.Client(str(WSDL)), source)
        assert client.service.echo(text="hello") == "hello"
        assert client.service.put_order(n=1, text="x") is None
        client.plugins = []
        with pytest.raises(ConfigurationError, match="ReliablePlugin"):
            client.service.echo(text="hello")


def test_the_version_is_the_newest_that_the_wsdl_announces() -> None:
    from wsrm_mq.source.zeep_client import announced

    wsdl = WSDL.read_bytes()
    assert announced(wsdl) == "1.1"
    assert announced(wsdl.replace(b"docs.oasis-open.org/ws-rx/wsrmp/200702", b"example")) == "1.0"
    assert announced(b"<definitions/>") == "1.1"
