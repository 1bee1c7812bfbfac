"""Clients of zeep over an RM Source: the calls of a program are stored before they leave."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import requests
import zeep
from zeep.exceptions import Fault
from zeep.wsdl.utils import etree_to_string

from tests.source.partner import LOST, Partner, Said
from tests.support.source import OPPOSITES
from wsrm_mq.errors import ConfigurationError, NotFound, Pending
from wsrm_mq.outbound.posting import Answer
from wsrm_mq.sequence.faults import WSRMRequired
from wsrm_mq.source import ReliableClient, RMSource, reliable
from wsrm_mq.testing import EnvelopeFactory, ManualClock, Reply, RMVersion, SOAPVersion
from wsrm_mq.versions import WSA_2004, WSA_2005, WSRM_1_0, WSRM_1_1, AddressingVersion

WSDL = Path(__file__).parents[2] / "wsdl" / "orders.wsdl"
SERVICE = str(Path(__file__).parents[1] / "outbound" / "service.pem")
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


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"source": {"ca": "missing.pem"}}, ConfigurationError),
        ({"service_name": "missing"}, ValueError),
        ({"port_name": "missing"}, ValueError),
    ],
)
def test_a_client_that_cannot_be_made_leaves_nothing_that_sends(
    tmp_path: Path, options: dict[str, Any], error: type[Exception]
) -> None:
    before = set(threading.enumerate())
    with pytest.raises(error):
        ReliableClient(str(WSDL), store=tmp_path / "outbox.db", **options)
    assert set(threading.enumerate()) <= before


def test_a_client_of_asyncio_is_refused_before_anything_is_stored(tmp_path: Path) -> None:
    with RMSource(tmp_path / "outbox.db") as source:
        client = zeep.AsyncClient(str(WSDL), transport=zeep.Transport())
        with pytest.raises(ConfigurationError, match=r"AsyncReliableClient\(wsdl, store=…\)"):
            reliable(client, source)
        assert source.waiting == 0


@pytest.mark.parametrize(
    ("has", "option", "told"),
    [
        ({"auth": ("ann", "secret")}, "headers", {"headers": {"Authorization": "Basic YW5uOnNlY3JldA=="}}),
        ({"headers": {"X-Key": "secret", "User-Agent": "zeep"}}, "headers", {"headers": {"X-Key": "secret"}}),
        ({"cookies": {"session": "secret"}}, "headers", {"headers": {"Cookie": "session=secret"}}),
        ({"verify": False}, "ca=", {"ca": SERVICE}),
        ({"cert": SERVICE}, "certificate=", {"certificate": SERVICE}),
        ({"proxies": {"http": "http://proxy:3128"}}, "proxy=", {"proxy": "http://proxy:3128"}),
    ],
)
@pytest.mark.parametrize("rm", [WSRM_1_1], ids=["rm1.1"])
def test_what_the_session_of_a_transport_has_for_its_requests_is_refused_unless_the_source_has_it_too(
    connect: Connect, partner: Partner, has: dict[str, Any], option: str, told: dict[str, Any]
) -> None:
    """Else requests would leave without the password, or by a connection that the program did not want."""
    session = requests.Session()
    for name, value in has.items():
        setattr(session, name, value)
    transport = zeep.Transport(session=session)
    with pytest.raises(ConfigurationError, match=f"has {next(iter(has))}.*{option}"):
        connect(transport=transport)
    with connect(transport=transport, source={"post": partner.post, **told}) as client:
        assert client.service.echo(text="hello") == "hello"


@pytest.mark.parametrize("rm", [WSRM_1_1], ids=["rm1.1"])
def test_a_cookie_that_the_server_of_the_wsdl_has_set_stops_nothing(connect: Connect) -> None:
    """A load balancer's."""
    transport = zeep.Transport()
    transport.session.cookies.set("AWSALB", "node-1", domain="partner.example")
    with connect(transport=transport) as client:
        assert client.service.echo(text="hello") == "hello"


class WithAttachment(zeep.Transport):
    """MTOM, as programs add it to zeep."""

    photo = bytes(range(256)) * 8
    head = b"--part\r\nContent-Type: application/xop+xml; charset=utf-8; type=text/xml\r\nContent-ID: <root>\r\n\r\n"

    def post_xml(self, address: str, envelope: Any, headers: dict[str, str]) -> Any:
        rest = b"\r\n--part\r\nContent-ID: <photo>\r\n\r\n" + self.photo + b"\r\n--part--\r\n"
        kind = 'multipart/related; boundary=part; type="application/xop+xml"; start="<root>"; start-info="text/xml"'
        return self.post(address, self.head + etree_to_string(envelope) + rest, {**headers, "Content-Type": kind})


@pytest.mark.peer("P-57")
def test_a_request_with_attachments_is_stored_and_sent_again_byte_for_byte(connect: Connect, partner: Partner) -> None:
    bodies: list[tuple[Mapping[str, str], bytes]] = []
    lost = [LOST]

    def post(url: str, headers: Mapping[str, str], body: bytes, who: str | None = None) -> Answer:
        if not headers["Content-Type"].startswith("multipart/"):
            return partner.post(url, headers, body, who)
        bodies.append((headers, body))
        if lost:
            raise lost.pop()
        root = body.removeprefix(WithAttachment.head).partition(b"\r\n--part\r\n")[0]
        return partner.post(url, headers, root, who)

    transport = WithAttachment()
    with connect(transport=transport, source={"post": post}) as client:
        assert client.service.echo(text="hello") == "hello"
        assert client.later.echo(text="later").result(5) == "later"
    assert "post" not in vars(transport), "another client may use it"
    (headers, first), (_headers, again), *_others = bodies
    assert first == again
    assert first.endswith(WithAttachment.photo + b"\r\n--part--\r\n")
    assert first.count(b":Sequence ") == 1
    assert 'boundary=part; type="application/xop+xml"' in headers["Content-Type"]
    assert headers["SOAPAction"] == f'"{next(one.action for one in partner.received if one.body_name == "echo")}"'


def test_a_transport_with_a_post_of_its_own_is_refused_as_that_would_never_be_called(connect: Connect) -> None:
    class Other(zeep.Transport):
        def post(self, *_arguments: Any) -> Any: ...

    with pytest.raises(ConfigurationError, match=r"Other\.post is never called.*post_xml"):
        connect(transport=Other())


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
        f'<n:{name} xmlns:n="{NETRMP}" Milliseconds="{milliseconds}"/>'
        for name, milliseconds in (("InactivityTimeout", 600_000), ("AcknowledgementInterval", 200))
    )
    wsdl = announcing(assertion("1.1", f"<wsp:Policy/>{beside}"))
    assert spoken(connect(wsdl=wsdl, rm=None), partner) == {WSRM_1_1}


@pytest.mark.spec("POL-006", "RSP-014", half="source")
@pytest.mark.parametrize("rm", [WSRM_1_1], ids=["rm1.1"])
def test_where_the_wsdl_requires_reliable_messaging_no_request_leaves_without_it(
    connect: Connect, partner: Partner, announcing: Callable[..., str]
) -> None:
    """Whether it claims to conform to the Reliable Secure Profile or not."""
    required = partner.fault(WSRMRequired("It takes messages of a sequence only.", None))
    partner.says = lambda received: required if received.rm is None else None
    conformant = '<c:Conformant xmlns:c="http://ws-i.org/profiles/rsp/1.0/"/>'
    assert spoken(connect(wsdl=announcing(assertion("1.1") + conformant), rm=None), partner) == {WSRM_1_1}


@pytest.mark.parametrize("has_name", [True, False], ids=["named input", "unnamed input"])
def test_an_operation_without_any_action_has_that_of_its_names(
    connect: Connect, partner: Partner, tmp_path: Path, has_name: bool
) -> None:
    wsdl = re.sub(r' soapAction="[^"]*"', ' soapAction=""', WSDL.read_text())
    wsdl = wsdl.replace('<wsdl:input name="echo"', '<wsdl:input name="question"' if has_name else "<wsdl:input")
    (tmp_path / "named.wsdl").write_text(wsdl)
    with connect(wsdl=str(tmp_path / "named.wsdl")) as client:
        assert client.service.echo(text="hello") == "hello"
        assert client.replies(client.later.echo(text="hello").message_id) in (None, "hello")
    (action,) = {one.action for one in partner.received if one.body_name == "echo"}
    assert action == f"{NAMESPACE}:Application:{'question' if has_name else 'echoRequest'}"


@pytest.mark.parametrize("rm", [WSRM_1_0], ids=["rm1.0"])
@pytest.mark.parametrize("version", [WSA_2004, WSA_2005], ids=lambda one: str(one.label))
def test_with_1_0_the_addressing_that_the_wsdl_asserts_is_spoken_also_where_another_one_imports_it(
    connect: Connect, partner: Partner, announcing: Callable[..., str], tmp_path: Path, version: AddressingVersion
) -> None:
    partner.speak = partner.speak.having(addressing=version)
    said = {
        WSA_2004: '<a:UsingAddressing xmlns:a="http://schemas.xmlsoap.org/ws/2004/08/addressing/policy"/>',
        WSA_2005: '<a:Addressing xmlns:a="http://www.w3.org/2007/05/addressing/metadata"/>',
    }[version]
    announcing(assertion("1.0") + said)
    service = WSDL.read_text().partition("<wsdl:service")[2].partition("</wsdl:service>")[0]
    (tmp_path / "importing.wsdl").write_text(
        f'<wsdl:definitions xmlns:wsdl="http://schemas.xmlsoap.org/wsdl/" xmlns:tns="{NAMESPACE}" targetNamespace='
        f'"urn:other" xmlns:wsdlsoap11="http://schemas.xmlsoap.org/wsdl/soap/"><wsdl:import namespace="{NAMESPACE}" '
        f'location="announcing.wsdl"/><wsdl:service{service}</wsdl:service></wsdl:definitions>'
    )
    client = connect(wsdl=str(tmp_path / "importing.wsdl"), rm=None, addressing=None)
    assert spoken(client, partner) == {WSRM_1_0}
    assert {one.addressing for one in partner.received} == {version}
    assert client.source.offers, "it has an operation that is replied to"


@pytest.mark.peer("P-32")
def test_a_sequence_is_kept_alive_for_as_long_as_the_wsdl_says_that_one_lives(
    connect: Connect, partner: Partner, announcing: Callable[..., str], rm: RMVersion
) -> None:
    namespace, clock = NETRMP if rm is WSRM_1_1 else RMP["1.0"], ManualClock()
    wsdl = announcing(assertion(rm.label, f'<n:InactivityTimeout xmlns:n="{namespace}" Milliseconds="600000"/>'))
    with connect(wsdl=wsdl, rm=None, source={"post": partner.post, "clock": clock}) as client:
        client.service.put_order(n=1, text="x")
        assert client.source.flush(5)
        clock.advance(301_000)
        client.source._engine.watch.nudge()
        assert partner.within(lambda: partner.saying("AckRequested"))


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
