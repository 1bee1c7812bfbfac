"""Requests are signed as they leave, each time anew, and nothing that signs them is ever stored."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import zeep
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from lxml import etree
from signxml.verifier import SignatureConfiguration, XMLVerifier
from werkzeug.serving import make_server
from zeep.exceptions import SignatureVerificationFailed
from zeep.wsse import Compose
from zeep.wsse.username import UsernameToken

from tests.source.conftest import Open, Source
from tests.source.partner import ACTION, LOST, THERE, Partner, envelope
from tests.support.commands import Wsrm, document
from tests.support.orders_server import within
from wsrm_mq import WSRMMiddleware
from wsrm_mq.errors import BadRequest, ConfigurationError, Pending, StoreError
from wsrm_mq.events.telling import Event
from wsrm_mq.outbound.posting import Answer
from wsrm_mq.source import AsyncReliableClient, ReliableClient, RMSource, Signature, reliable
from wsrm_mq.testing import ManualClock, Reply

WSDL = Path(__file__).parents[2] / "wsdl" / "orders.wsdl"
DAY = 86_400_000
SECRET = "open-sesame"
WSSE = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-secext-1.0.xsd"
ECHOED = (
    '<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body><echoResponse xmlns="urn:example:orders">'
    "<echoResult>{}</echoResult></echoResponse></s:Body></s:Envelope>"
)


class Pair(NamedTuple):
    """Files of PEM; ``SECRET`` is the password of the key."""

    key: Path
    certificate: Path


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    there = tmp_path_factory.mktemp("keys")
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "orders")]), datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    closed = serialization.BestAvailableEncryption(SECRET.encode())
    pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (there / "key.pem").write_bytes(key.private_bytes(*pem, closed))
    (there / "certificate.pem").write_bytes(certificate)
    return Pair(there / "key.pem", there / "certificate.pem")


@pytest.fixture
def sign(pair: Pair) -> Callable[..., Signature]:
    return lambda clock: Signature(*pair, SECRET, clock=clock)


def covered(body: bytes, pair: Pair, now: int) -> set[str]:
    """The elements of an envelope that are signed, by another implementation. It holds ``now``, in ms."""
    tree = etree.fromstring(body)
    count = len(tree.findall(".//{*}Reference/{*}Transforms"))
    verified = XMLVerifier().verify(
        tree,
        x509_cert=pair.certificate.read_text(),
        expect_config=SignatureConfiguration(expect_references=count),
    )
    elements = [one.signed_xml for one in (verified if isinstance(verified, list) else [verified])]
    found = {etree.QName(one).localname: one for one in elements if one is not None}
    created, expires = (datetime.fromisoformat(one.text or "") for one in found["Timestamp"])
    assert created <= datetime.fromtimestamp(now / 1000, UTC) < expires
    return set(found)


class Gate:
    """A service behind our RM Destination, and before both what takes nothing that is not signed, now, in whole. Where
    it ``is_deaf`` it acknowledges nothing."""

    def __init__(self, store: Path, pair: Pair, clock: ManualClock) -> None:
        self.orders: list[str] = []
        self.came: list[tuple[str, bytes, set[str]]] = []
        self.is_deaf = False
        self._pair, self._clock = pair, clock
        self._destination = WSRMMiddleware(self._service, store=store, one_way=["put_order"])
        self.server = make_server("127.0.0.1", 0, self, threaded=True)
        self.wsdl = store.with_name("orders.wsdl")
        self.wsdl.write_text(WSDL.read_text().replace("127.0.0.1:8080", f"127.0.0.1:{self.server.port}"))
        self._thread = threading.Thread(target=self.server.serve_forever)
        self._thread.start()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        action = (Reply.parse(body).action or "").rpartition("/")[2]
        self.came.append((action, body, covered(body, self._pair, self._clock())))
        if self.is_deaf and action in ("put_order", "echo"):
            start_response("202 Accepted", [])
            return []
        environ["wsgi.input"] = _Read(body)
        answer: Iterable[bytes] = self._destination(environ, start_response)
        return answer

    def _service(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        order = etree.fromstring(environ["wsgi.input"].read())[-1][0]
        text = order.findtext("{*}text") or ""
        self.orders.append(text)
        start_response("200 OK", [("Content-Type", "text/xml; charset=utf-8")])
        return [ECHOED.format(text).encode()] if order.tag.endswith("echo") else []

    def stop(self) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()
        self._destination.close()


class _Read:
    """The body of a request, which was read already."""

    def __init__(self, body: bytes) -> None:
        self._left = body

    def read(self, size: int = -1) -> bytes:
        cut = len(self._left) if size is None or size < 0 else size
        found, self._left = self._left[:cut], self._left[cut:]
        return found


@pytest.fixture
def gate(tmp_path: Path, pair: Pair) -> Iterator[Gate]:
    made = Gate(tmp_path / "destination.db", pair, ManualClock())
    yield made
    made.stop()


def stored_bytes(path: Path) -> bytes:
    """All that is in a store's files."""
    return b"".join(one.read_bytes() for one in path.parent.rglob("*") if one.is_file() and path.name in str(one))


@pytest.mark.peer("P-69")
@pytest.mark.spec("S-RET-014")
def test_a_client_of_zeep_signs_each_resend_anew_and_a_day_later_it_still_verifies(
    gate: Gate,
    tmp_path: Path,
    pair: Pair,
    sign: Callable[..., Signature],
    partner: Partner,
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = gate._clock
    versions = {"rm": partner.speak.rm.label, "addressing": partner.speak.addressing.label}
    options = {"store": tmp_path / "outbox.db", "wsse": sign(clock), "source": {"clock": clock}}
    with ReliableClient(str(gate.wsdl), **versions, **options) as client:
        gate.is_deaf = True
        client.service.put_order(n=1, text="two seats")
        later = client.later.echo(text="hello")
        assert partner.within(lambda: [one for one in gate.came if one[0] == "echo"], 20)
        gate.is_deaf = False
        clock.advance(DAY)

        def is_answered() -> bool:
            clock.advance(500)
            client.source._engine.watch.nudge()
            return later.done() or bool(time.sleep(0.05))

        assert partner.within(is_answered, 60)
        assert later.result(0) == "hello"
        assert client.source.flush(30)
        clock.advance(1000)
        assert client.service.put_order(n=2, text="last") is None
        assert client.source.end(client.service._binding_options["address"], 30)
        assert partner.within(lambda: "TerminateSequence" in [action for action, _body, _parts in gate.came], 20)
    assert gate.orders == ["two seats", "hello", "last"]
    always = {"Body", "Timestamp", "BinarySecurityToken", "To", "Action", "MessageID"}
    parts: dict[str, list[set[str]]] = {}
    for action, _body, one in gate.came:
        parts.setdefault(action, []).append(one)
        assert always <= one, action
    assert len(parts["put_order"]) >= 3, "sent, sent again, and the last one"
    assert all("Sequence" in one for one in (*parts["put_order"], *parts["echo"]))
    assert all("ReplyTo" in one for one in (*parts["echo"], *parts["CreateSequence"]))
    first, again, *_more = (body for action, body, _parts in gate.came if action == "echo")
    ids = [etree.fromstring(body).findtext("{*}Header/{*}MessageID") for body in (first, again)]
    assert ids[0] == ids[1]
    assert Reply.parse(first).sequence == Reply.parse(again).sequence
    stamps = [etree.fromstring(body).findtext(".//{*}Timestamp/{*}Created") or "" for body in (first, again)]
    assert stamps[0] < stamps[1]
    assert first != again
    signatures = [
        one.encode() for body in (first, again) for one in etree.fromstring(body).xpath("//*/text()") if len(one) > 300
    ]
    assert len(signatures) == 4, "a certificate and a signature each"
    written = stored_bytes(tmp_path / "outbox.db")
    assert b"two seats" in written, "it is looked for where it would be"
    assert not any(secret in written for secret in (*signatures, SECRET.encode(), b"Security>", b"PRIVATE KEY"))
    assert SECRET not in caplog.text
    assert pair.key.name not in caplog.text


def test_what_is_to_be_signed_waits_for_a_program_that_can_and_is_said_to(
    open_source: Open, sign: Callable[..., Signature], partner: Partner, somewhere: Path, wsrm: Wsrm, pair: Pair
) -> None:
    source = open_source()
    source.sign(THERE, sign(source.clock))
    partner.says = lambda _received: LOST
    source.send(envelope(partner.speak), to=THERE, action=ACTION)
    assert partner.within(lambda: partner.bodies, 20)
    store = ("--store", source.path)
    (told,) = document(wsrm("source", "explain", "--json", *store))["explanations"]
    assert "can sign" not in told["explanation"]
    source.close()
    partner.says = lambda _received: None
    partner.bodies.clear()

    unable = open_source()
    unable.pass_time(600)
    sent = unable.send(envelope(partner.speak, "three seats"), to=THERE, action=ACTION)
    with pytest.raises(Pending):
        unable.wait(sent, 1.5)
    assert partner.bodies == []
    (told,) = document(wsrm("source", "explain", "--json", *store))["explanations"]
    assert "2 requests to" in told["explanation"]
    assert "for a client that can sign" in told["explanation"]
    (listed,) = document(wsrm("source", "list", "--json", *store))["requests"]
    assert (listed["signed"], listed["error"]) == (True, "it waits for a client that can sign")
    assert "for a client that can sign" in wsrm("status", *store).stdout

    able = open_source()
    able.sign(THERE, sign(able.clock))
    unable.wait(sent, 30)
    assert partner.texts() == ["two seats", "three seats"]
    assert all("Body" in covered(body, pair, able.clock()) for body in partner.bodies)
    (told,) = document(wsrm("source", "explain", "--json", *store))["explanations"] or [{"explanation": "Nothing"}]
    assert told["explanation"].startswith("Nothing")
    able.sign(THERE, None)
    partner.bodies.clear()
    unable.wait(unable.send(envelope(partner.speak, "plain"), to=THERE, action=ACTION), 30)
    assert not any(b"Security>" in body for body in partner.bodies)


def test_a_program_that_cannot_sign_sends_nothing_of_what_another_one_begins_to_sign(
    open_source: Open, sign: Callable[..., Signature], partner: Partner, pair: Pair
) -> None:
    unable, able = open_source(), open_source()
    unable.wait(unable.send(envelope(partner.speak), to=THERE, action=ACTION), 30)
    able.sign(THERE, sign(able.clock))
    partner.bodies.clear()
    for n in range(5):
        unable.wait(unable.send(envelope(partner.speak, f"order {n}"), to=THERE, action=ACTION), 30)
    assert len(partner.bodies) == 5
    assert all("Sequence" in covered(body, pair, able.clock()) for body in partner.bodies)


def test_a_comment_among_the_headers_is_no_part_of_the_signature(
    source: Source, partner: Partner, sign: Callable[..., Signature], pair: Pair
) -> None:
    source.sign(THERE, sign(source.clock))
    written = envelope(partner.speak).replace(b"<s:Body>", b"<s:Header><!-- of the shop --></s:Header><s:Body>")
    source.wait(source.send(written, to=THERE, action=ACTION), 30)
    assert b"of the shop" in partner.bodies[-1]
    assert "Sequence" in covered(partner.bodies[-1], pair, source.clock())


def test_a_program_that_is_sending_unsigned_what_another_one_begins_to_sign_sends_no_more_of_it(
    open_source: Open, sign: Callable[..., Signature], partner: Partner, pair: Pair
) -> None:
    unsigned: list[bytes] = []
    may_go_on = threading.Event()

    def post(url: str, headers: Mapping[str, str], body: bytes, who: str | None = None) -> Answer:
        unsigned.append(body)
        if b"order 0" in body:
            assert may_go_on.wait(30)
        return partner.post(url, headers, body, who)

    unable, able = open_source(post=post), open_source()
    first = unable.send(envelope(partner.speak, "order 0"), to=THERE, action=ACTION)
    assert partner.within(lambda: b"order 0" in b"".join(unsigned), 20)
    sent = [unable.send(envelope(partner.speak, f"order {n}"), to=THERE, action=ACTION) for n in range(1, 6)]
    able.sign(THERE, sign(able.clock))
    may_go_on.set()
    for one in (first, *sent):
        unable.wait(one, 30)
    assert partner.texts() == [f"order {n}" for n in range(6)]
    assert not any(b">order " in body for body in unsigned if b"order 0" not in body)
    assert sum(b"order 0" in body for body in unsigned) == 1


@pytest.mark.parametrize("use_digest", [True, False], ids=["digest", "text"])
def test_a_password_goes_with_what_leaves_and_is_not_stored(
    source: Source, partner: Partner, sign: Callable[..., Signature], pair: Pair, use_digest: bool
) -> None:
    """Every object of zeep's may be a signer; the tokens that others put in are signed by one that comes last."""
    user = UsernameToken("alice", SECRET, use_digest=use_digest)
    source.sign(THERE, Compose([user, sign(source.clock)]))
    source.wait(source.send(envelope(partner.speak), to=THERE, action=ACTION), 30)
    assert all("UsernameToken" in covered(body, pair, source.clock()) for body in partner.bodies)
    passwords = {etree.fromstring(body).findtext(f".//{{{WSSE}}}Password") or "" for body in partner.bodies}
    assert len(passwords) == (len(partner.bodies) if use_digest else 1)
    written = stored_bytes(source.path)
    assert b"two seats" in written
    assert not any(one.encode() in written for one in (*passwords, "alice", SECRET))


def test_a_signer_that_raises_has_nothing_sent_and_its_text_told_to_nobody(
    source: Source, partner: Partner, sign: Callable[..., Signature], caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def apply(self, envelope: Any, headers: Any) -> Any:
            raise RuntimeError(SECRET)

        def verify(self, envelope: Any) -> Any:
            return envelope

    source.sign(THERE, Broken())
    sent = source.send(envelope(partner.speak), to=THERE, action=ACTION)

    def why() -> str:
        with pytest.raises(Pending) as pending:
            source.wait(sent, 0)
        return str(pending.value)

    assert partner.within(lambda: f"the signer raised RuntimeError in {__file__}, line" in why(), 20)

    def is_told() -> bool:
        source.pass_time(0.5)
        time.sleep(0.02)
        return "source.away" in caplog.text

    assert partner.within(is_told, 20)
    assert partner.bodies == []
    source.sign(THERE, sign(source.clock))
    source.try_now()
    assert source.in_time(30)
    assert SECRET not in caplog.text
    assert SECRET.encode() not in stored_bytes(source.path)


def test_a_signer_that_hangs_holds_up_no_other_and_is_told_of_while_it_hangs(
    open_source: Open, partner: Partner, sign: Callable[..., Signature], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wsrm_mq.source.source.HANGS_SECONDS", 0.1)
    told: list[Event] = []
    source = open_source(on_event=told.append)
    is_asked, answers = threading.Event(), threading.Event()

    class Vault:
        def apply(self, envelope: Any, headers: Any) -> Any:
            is_asked.set()
            assert answers.wait(60)
            return envelope, headers

        def verify(self, envelope: Any) -> Any:
            return envelope

    elsewhere = "http://other.example/orders"
    source.sign(THERE, Compose([sign(source.clock), Vault()]))
    source.sign(elsewhere, Compose([sign(source.clock)]))
    held_up = source.send(envelope(partner.speak), to=THERE, action=ACTION)
    assert is_asked.wait(20)
    source.wait(source.send(envelope(partner.speak, "three seats"), to=elsewhere, action=ACTION), 30)
    assert partner.within(lambda: any(one.name == "source.away" for one in told), 20)
    (away,) = [one for one in told if one.name == "source.away"]
    assert away.fields["host"] == THERE
    assert away.fields["error"].startswith("its signer has not answered for ")
    answers.set()
    source.wait(held_up, 30)


def test_a_signer_that_the_store_does_not_take_is_none_so_the_next_call_gives_it_again(
    source: Source, sign: Callable[..., Signature]
) -> None:
    source.close()
    with pytest.raises(StoreError):
        source.sign(THERE, sign(source.clock))
    assert source.signers == {}


@pytest.mark.parametrize("value", [f"Bearer {SECRET}\n", f"{SECRET}\r\nX: y", f"{SECRET} \u2713"])
def test_a_header_that_cannot_be_sent_is_refused_and_its_value_told_to_nobody(
    open_source: Open, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigurationError, match="the value of Authorization is not one line") as refused:
        open_source(headers={"Authorization": value})
    assert SECRET not in str(refused.value)

    class Bearer:
        def apply(self, envelope: Any, headers: dict[str, str]) -> Any:
            return envelope, {**headers, "Authorization": value}

        def verify(self, envelope: Any) -> Any:
            return envelope

    source = open_source(post=None)
    nowhere = "http://127.0.0.1:9/orders"
    source.sign(nowhere, Bearer())
    sent = source.send(envelope(source.partner.speak), to=nowhere, action=ACTION)

    def why() -> str:
        with pytest.raises(Pending) as pending:
            source.wait(sent, 0)
        return str(pending.value)

    assert source.partner.within(lambda: "the signer's value of the header Authorization is not one line" in why(), 20)
    assert SECRET not in caplog.text
    assert SECRET.encode() not in stored_bytes(source.path)


def test_what_is_awaited_or_enqueued_is_signed_as_it_leaves_too(
    tmp_path: Path, gate: Gate, sign: Callable[..., Signature]
) -> None:
    signer, own = sign(gate._clock), tmp_path / "own.db"

    async def call() -> None:
        options = {"store": tmp_path / "outbox.db", "wsse": signer, "source": {"clock": gate._clock}}
        async with await asyncio.to_thread(AsyncReliableClient, str(gate.wsdl), **options) as client:
            assert await client.service.echo(text="hello") == "hello"
            with closing(sqlite3.connect(own)) as connection, connection:
                client.enqueue(connection).put_order(n=1, text="two seats")
            assert b"Security" not in own.read_bytes()
            client.source.relay(lambda: sqlite3.connect(own))
            wanted = ["hello", "two seats"]
            assert await asyncio.to_thread(within, 30, lambda: [*gate.orders], wanted.__eq__) == wanted

    asyncio.run(call())


def test_replies_are_verified_by_the_clients_own_object(
    tmp_path: Path, gate: Gate, sign: Callable[..., Signature]
) -> None:
    class Strict(Signature):
        def verify(self, envelope: Any) -> Any:
            raise SignatureVerificationFailed(envelope.findtext(".//{*}echoResult"))

    strict = sign(gate._clock)
    strict.__class__ = Strict
    with RMSource(tmp_path / "outbox.db", clock=gate._clock) as source:
        client = reliable(zeep.Client(str(gate.wsdl), wsse=[strict]), source)
        with pytest.raises(SignatureVerificationFailed, match="hello"):
            client.service.echo(text="hello")


def test_what_would_be_stored_with_its_secrets_or_signed_by_another_is_refused(
    tmp_path: Path, pair: Pair, sign: Callable[..., Signature], source: Source, partner: Partner
) -> None:
    signer = sign(ManualClock())
    post = {"post": partner.post}
    with ReliableClient(str(WSDL), store=tmp_path / "other.db", source=post) as client:
        client.wsse = UsernameToken("alice", SECRET)
        with pytest.raises(ConfigurationError, match="give wsse= to ReliableClient"):
            client.service.put_order(n=1, text="x")
        assert client.source.waiting == 0
        first = reliable(zeep.Client(str(WSDL), wsse=signer), client.source)
        assert reliable(zeep.Client(str(WSDL), wsse=signer), client.source) is not first
        with pytest.raises(ConfigurationError, match="another wsse"):
            reliable(zeep.Client(str(WSDL), wsse=sign(ManualClock())), client.source)
    with pytest.raises(ConfigurationError, match="no key and certificate of PEM"):
        Signature(pair.key, pair.certificate)
    with pytest.raises(ConfigurationError, match="no key and certificate of PEM"):
        Signature(pair.key, tmp_path / "missing.pem", SECRET)


def test_what_has_parts_is_refused_where_any_program_signs_and_what_waited_there_is_put_aside_at_once(
    open_source: Open, sign: Callable[..., Signature], partner: Partner, tmp_path: Path
) -> None:
    soap = partner.speak.soap
    kind = f'multipart/related; type="{soap.media_type}"; boundary="b"'
    root = b"--b\r\nContent-Type: " + soap.media_type.encode() + b"\r\n\r\n" + envelope(partner.speak, "seats")
    parts = root + b"\r\n--b\r\nContent-Type: image/png\r\nContent-ID: <one>\r\n\r\nPNG\r\n--b--\r\n"
    unable, able = open_source(), open_source()
    partner.says = lambda _received: LOST
    waited = unable.send(parts, to=THERE, action=ACTION, content_type=kind)
    unable.send(envelope(partner.speak, "behind"), to=THERE, action=ACTION)
    assert partner.within(lambda: partner.bodies, 20)
    able.sign(THERE, sign(able.clock))
    for source in (unable, able):
        with pytest.raises(BadRequest, match="parts"):
            source.send(parts, to=THERE, action=ACTION, content_type=kind)
        with pytest.raises(BadRequest, match="parts"), closing(sqlite3.connect(tmp_path / "own.db")) as own:
            source.enqueue(own, parts, to=THERE, action=ACTION, content_type=kind)
    partner.says = lambda _received: None
    assert able.in_time(30)
    ((message_id, error),) = [(one.message_id, one.error or "") for one in able.dead]
    assert message_id == waited.message_id
    assert "it has parts, and cannot be signed" in error
    assert partner.texts() == ["behind"]
