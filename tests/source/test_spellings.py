"""The answers of a partner count however they are written: prefixes, extensions, encodings, the ways of HTTP."""

from __future__ import annotations

import codecs
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import pytest
from lxml import etree

from tests.protocol.test_names import FOREIGN, with_foreign
from tests.source.conftest import Open, Source
from tests.source.partner import ACTION, THERE, Partner, Said, envelope
from tests.source.test_acknowledgements import ONE, acknowledged, refused
from tests.source.test_replies import ask, echo, replying
from tests.source.test_sending import send
from wsrm_mq.envelope.render import create_sequence_response
from wsrm_mq.outbound.posting import Answer
from wsrm_mq.sequence.elements import EndpointReference
from wsrm_mq.sequence.faults import UnknownSequence
from wsrm_mq.testing import EnvelopeFactory, Reply

Post = Callable[..., Answer]


def rewriting(partner: Partner, rewritten: Callable[[bytes], bytes], charset: str | None = None) -> Post:
    """A line to the partner that has each answer written anew."""

    def post(url: str, headers: Mapping[str, str], body: bytes, who: str | None = None) -> Answer:
        answer = partner.post(url, headers, body, who)
        if not answer.content:
            return answer
        of = partner.speak.soap.media_type + ("" if charset is None else f"; charset={charset}")
        return answer._replace(headers=[("Content-Type", of)], content=rewritten(answer.content))

    return post


PREFIXES: Final[dict[str, Callable[[EnvelopeFactory], dict[str | None, str]]]] = {
    "swapped": lambda speak: {
        "soap": speak.rm.namespace,
        "wsrm": speak.addressing.namespace,
        "wsa": speak.soap.namespace,
    },
    "not ASCII": lambda speak: {
        "règle": speak.rm.namespace,
        "lieu": speak.addressing.namespace,
        "enveloppe": speak.soap.namespace,
    },
    "RM by default": lambda speak: {
        None: speak.rm.namespace,
        "a": speak.addressing.namespace,
        "e": speak.soap.namespace,
    },
    "addressing by default": lambda speak: {
        "r": speak.rm.namespace,
        None: speak.addressing.namespace,
        "e": speak.soap.namespace,
    },
}


def spelled(content: bytes, prefixes: dict[str | None, str]) -> bytes:
    """The same elements under these prefixes, all declared at the root."""
    old = etree.fromstring(content)
    new = etree.Element(old.tag, dict(old.attrib), nsmap=prefixes)  # type: ignore[arg-type]

    def copy(read: etree._Element, written: etree._Element) -> None:
        written.text = read.text
        for child in read:
            copy(child, etree.SubElement(written, child.tag, dict(child.attrib)))

    copy(old, new)
    return etree.tostring(new, encoding="utf-8")


def whole_sequence(source: Source, partner: Partner) -> None:
    """Two messages are acknowledged, and their sequence is ended, at the partner too."""
    send(source, "a", "b")
    assert source.flush(5)
    assert source.end(THERE, 5)
    assert partner.within(lambda: partner.saying("TerminateSequence"))
    assert source.at_rest()
    assert acknowledged(source) == ("1-3" if partner.speak.rm.has_last_message else "1-2")
    assert source.states()[0][0] == "terminated"
    assert len(partner.places) == len(set(partner.places))


@pytest.mark.spec("NS-004", half="source")
@pytest.mark.parametrize("prefixes", PREFIXES)
def test_any_prefix_or_the_default_namespace_will_do(open_source: Open, partner: Partner, prefixes: str) -> None:
    named = PREFIXES[prefixes](partner.speak)
    whole_sequence(open_source(post=rewriting(partner, lambda content: spelled(content, named))), partner)


@pytest.mark.spec("NS-007", "RSP-009", half="source")
def test_foreign_children_and_attributes_are_passed_over(open_source: Open, partner: Partner) -> None:
    whole_sequence(open_source(post=rewriting(partner, with_foreign)), partner)


@pytest.mark.spec("NS-007", "RSP-009", half="source")
def test_what_a_fault_says_besides_is_passed_over(source: Source, partner: Partner) -> None:
    send(source, "a")
    assert source.flush(5)
    gone = partner.fault(UnknownSequence("It is not here.", ONE))
    content = gone.content.replace(b"</wsrm:Identifier>", b"</wsrm:Identifier>" + FOREIGN.encode())
    assert content != gone.content
    gone = gone._replace(content=content)
    partner.says = lambda received: gone if received.sequence is not None and received.sequence[0] == ONE else None
    send(source, "b")
    assert source.in_time()
    assert partner.places == [(ONE, 1), (ONE, 2), ("urn:there:2", 1)]


@pytest.mark.spec("NS-010", half="source")
def test_a_range_whose_attributes_have_a_namespace_is_none(source: Source, partner: Partner) -> None:
    said = partner.saying_ack(ONE, (1, 5)).replace(b' Lower="', b' wsrm:Lower="').replace(b' Upper="', b' wsrm:Upper="')
    assert said.count(b"wsrm:Upper") == 1
    refused(source, partner, said)


ENCODED: Final = {
    "utf-8 with a mark": ("utf-8", codecs.BOM_UTF8),
    "utf-16-le": ("utf-16-le", b""),
    "utf-16-le with a mark": ("utf-16-le", codecs.BOM_UTF16_LE),
    "utf-16-be": ("utf-16-be", b""),
    "utf-16-be with a mark": ("utf-16-be", codecs.BOM_UTF16_BE),
}


@pytest.mark.spec("H-024", half="source")
@pytest.mark.parametrize("form", ENCODED)
def test_answers_may_be_in_utf_8_and_utf_16_with_and_without_byte_order_mark(
    open_source: Open, partner: Partner, form: str
) -> None:
    encoding, mark = ENCODED[form]
    charset = "utf-8" if encoding == "utf-8" else "utf-16"
    source = open_source(post=rewriting(partner, lambda content: mark + content.decode().encode(encoding), charset))
    echo(partner)
    asked = ask(source, "grün")
    send(source, "blau")
    assert source.flush(5)
    assert acknowledged(source) == "1-2"
    content = source.reply(asked, 0).content
    assert content.removeprefix(mark).decode(encoding).count("grün") == 1


@pytest.mark.spec("S-CRE-007")
@pytest.mark.spec("RSP-001", half="source")
@pytest.mark.parametrize("accepts", ["nothing", "none"])
def test_where_an_offer_is_declined_replies_come_without_numbers_and_nothing_is_acknowledged(
    source: Source, partner: Partner, accepts: str
) -> None:
    """CXF writes an Accept whose AcksTo is the none address."""
    speak = partner.speak
    versions = speak.soap, speak.addressing, speak.rm
    accept = EndpointReference(speak.none) if accepts == "none" else None

    def says(received: Reply) -> Said:
        if received.action == speak.rm.action("CreateSequence"):
            return create_sequence_response(*versions, received.message_id, ONE, accept=accept)
        return replying(partner, received) if received.action == ACTION else None

    partner.says = says
    assert [source.reply(ask(source, one), 5).status for one in "ab"] == [200, 200]
    assert source.end(THERE, 5)
    assert partner.within(lambda: partner.saying("TerminateSequence"))
    (create,) = partner.saying("CreateSequence")
    assert create.body.find("{*}Offer") is not None
    assert [place[0] for place in partner.places][:2] == [ONE, ONE]
    assert all(one.acks == () for one in partner.received)


class Connections:
    """How many were made to a server, and how many requests came on them."""

    def __init__(self) -> None:
        self.count = self.requests = 0


@pytest.fixture
def chunking(partner: Partner) -> Iterator[tuple[str, Connections]]:
    """The address of a partner that answers in chunks of seven bytes, over connections that it keeps."""
    connections = Connections()

    class Chunking(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            connections.count += 1

        def do_POST(self) -> None:
            connections.requests += 1
            answer = partner.post(self.path, {}, self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(answer.status)
            for name, value in (*answer.headers, ("Transfer-Encoding", "chunked")):
                self.send_header(name, value)
            self.end_headers()
            pieces = [answer.content[at : at + 7] for at in range(0, len(answer.content), 7)]
            for piece in (*pieces, b""):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))

        def log_message(self, *_arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Chunking) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/orders", connections
        server.shutdown()


@pytest.mark.spec("H-021", half="source")
def test_answers_may_come_in_chunks_and_connections_are_used_again(
    open_source: Open, partner: Partner, chunking: tuple[str, Connections]
) -> None:
    there, connections = chunking
    source = open_source(post=None)
    for one in range(10):
        source.send(envelope(partner.speak, str(one)), to=there, action=ACTION)
        assert source.flush(5)
    assert partner.places == [(ONE, number) for number in range(1, 11)]
    assert connections.requests == 11
    assert connections.count <= 2
