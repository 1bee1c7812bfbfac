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
from wsrm_mq.testing import EnvelopeFactory, ManualClock, Reply, RMVersion, SOAPVersion
from wsrm_mq.versions import WSRM_1_0, WSRM_1_1

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
        made = ReliableClient(
            **{"wsdl": str(WSDL), "store": tmp_path / "outbox.db", **versions, "source": source, **options}
        )
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


RMP = {"1.0": "http://schemas.xmlsoap.org/ws/2005/02/rm/policy", "1.1": "http://docs.oasis-open.org/ws-rx/wsrmp/200702"}
NETRMP = "http://schemas.microsoft.com/ws-rx/wsrmp/200702"


@pytest.fixture
def announcing(tmp_path: Path) -> Callable[..., str]:
    """Makes the WSDL with other policies; without them it is that of one that announces nothing."""

    def make(*alternatives: str) -> str:
        wsdl = WSDL.read_text(encoding="utf-8")
        begin, _, rest = wsdl.partition("<wsp:ExactlyOne>")
        policies = "".join(f"<wsp:All>{one}</wsp:All>" for one in alternatives)
        made = tmp_path / "announcing.wsdl"
        made.write_text(f"{begin}<wsp:ExactlyOne>{policies}</wsp:ExactlyOne>{rest.rpartition('</wsp:ExactlyOne>')[2]}")
        return str(made)

    return make


def assertion(version: str, content: str = "", **attributes: str) -> str:
    said = "".join(f' wsp:{name}="{value}"' for name, value in attributes.items())
    return f'<r:RMAssertion xmlns:r="{RMP[version]}"{said}>{content}</r:RMAssertion>'


def spoken(client: ReliableClient, partner: Partner) -> set[RMVersion | None]:
    """The versions of what is sent."""
    with client:
        client.service.put_order(n=1, text="x")
        client.service.put_order(n=2, text="x")
        assert client.source.flush(5)
    assert len(partner.received) == 3
    return {received.rm for received in partner.received}


@pytest.mark.spec("POL-012", "POL-007")
def test_one_version_that_the_wsdl_announces_is_spoken_for_a_whole_sequence(
    connect: Connect, partner: Partner, announcing: Callable[..., str], rm: RMVersion
) -> None:
    optional = assertion(rm.label, Optional="true")
    both = (assertion("1.0"), optional) if rm.label == "1.1" else (optional,)
    assert spoken(connect(wsdl=announcing(*both), rm=None), partner) == {rm}


@pytest.mark.spec("POL-013")
@pytest.mark.parametrize("rm", [WSRM_1_1], ids=["rm1.1"])
def test_what_wcf_states_beside_the_nested_policy_does_no_harm(
    connect: Connect, partner: Partner, announcing: Callable[..., str]
) -> None:
    beside = "".join(
        f'<n:{name} xmlns:n="{NETRMP}" Milliseconds="200"/>'
        for name in ("InactivityTimeout", "AcknowledgementInterval")
    )
    wsdl = announcing(assertion("1.1", f"<wsp:Policy/>{beside}"))
    assert spoken(connect(wsdl=wsdl, rm=None), partner) == {WSRM_1_1}


@pytest.mark.spec("POL-002")
@pytest.mark.parametrize("rm", [WSRM_1_0], ids=["rm1.0"])
def test_what_is_not_acknowledged_is_sent_again_when_the_wsdl_says(
    connect: Connect, partner: Partner, announcing: Callable[..., str]
) -> None:
    partner.says = lambda received: partner.answered(202) if received.sequence is not None else None
    timing = '<r:BaseRetransmissionInterval Milliseconds="{}"/><r:ExponentialBackoff/>'
    timing += '<r:AcknowledgementInterval Milliseconds="20000"/>'
    clock = ManualClock()
    wsdl = announcing(assertion("1.0", timing.format(5_000)))
    with connect(wsdl=wsdl, rm=None, source={"post": partner.post, "clock": clock}) as client:
        client.service.put_order(n=1, text="x")
        store = client.source._engine.store

        def waits(sendings: int, least: int) -> bool:
            """Whether the next sending is due after so many milliseconds, or up to a fifth more."""
            with store.reader() as db:
                (until,) = db.execute("SELECT max(retry_at) FROM lane WHERE owner IS NULL").fetchone()
            waited = None if until is None else until - clock()
            return len(partner.places) == sendings and waited is not None and least <= waited <= 1.2 * least

        assert partner.within(lambda: waits(1, 20_000))
        clock.advance(24_000)
        client.source._engine.watch.nudge()
        assert partner.within(lambda: waits(2, 40_000))
