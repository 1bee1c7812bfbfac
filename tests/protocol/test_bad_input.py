"""What is no good message: each is answered by a clear fault or error, leaves nothing behind, and harms no other.

Good input in rare forms stands beside it: chunked, split, in other encodings, compressed, multipart.
"""

from __future__ import annotations

import codecs
import gzip
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import pytest

from tests.support.orders import Orders, chunked
from tests.support.source import Source, each_rm, each_rm_at_length, every_version, good_exchange, in_one_version
from wsrm_mq.testing import HTTPAnswer, HTTPWire, ReplyFault

from .conftest import Servers
from .conversation import UNKNOWN


class Bystander(NamedTuple):
    """A sequence with one message, made before the bad input came."""

    identifier: str

    def number_2(self, source: Source) -> bytes:
        """The message that it would take next, whole."""
        return source.speak.put(self.identifier, 2)


@pytest.fixture
def bystander(source: Source) -> Iterator[Bystander]:
    with unharmed(source) as bystander:
        yield bystander


@contextmanager
def unharmed(source: Source) -> Iterator[Bystander]:
    """Whatever the test sends: nothing accepted is lost, nothing is stored, and the server goes on."""
    identifier = source.create()
    assert source.put(identifier, 1).reply.ack.ranges == ((1, 1),)
    assert source.delivered(identifier) == [1]
    before, seen = source.store.everything(), source.server.mark()
    yield Bystander(identifier)
    assert source.store.everything() == before
    assert seen.calls() == []
    with Source(source.server, source.speak) as other:
        assert other.put(identifier, 2).reply.ack.ranges == ((1, 2),)
        assert other.delivered(identifier) == [1, 2]
        assert other.calls(identifier) == [1, 2]
    good_exchange(source.server, source.speak)


def clear(answer: HTTPAnswer, *statuses: int) -> HTTPAnswer:
    """An error with words in it, and none of ours that a client should not see."""
    assert answer.status in statuses, (answer.status, answer.body)
    assert answer.body.strip()
    assert not re.search(rb"Traceback|File \"|\.py\b|sqlite|root:", answer.body)
    return answer


def clear_fault(source: Source, answer: HTTPAnswer, *statuses: int) -> ReplyFault:
    """A fault of the SOAP version that was spoken to us, as XML, with a reason."""
    reply = clear(answer, *statuses).reply
    assert answer.fields["content-type"].startswith(source.speak.soap.media_type)
    assert reply.soap is source.speak.soap
    assert reply.fault is not None
    assert reply.fault.reason
    assert not reply.acks
    return reply.fault


# what cannot be read


class Spoilt(NamedTuple):
    """How a good message is spoilt, and what is said about it."""

    spoil: Callable[[bytes], bytes]
    reason: str


ENTITIES: Final = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
BOMB: Final = f'<!DOCTYPE bomb [<!ENTITY e0 "boom">{ENTITIES}]>'.encode()
MEGABYTE: Final = b"x" * 1_000_000
TO: Final = b"<wsa:To>"
NO_DTD: Final = "A document type declaration is not allowed"
NOT_XML: Final = "is not well-formed XML"
TOO_LONG: Final = "The header section is longer than 262144 bytes"
TOO_MANY: Final = "The header section has too many elements"

UNREADABLE: Final[dict[str, Spoilt]] = {
    "nothing": Spoilt(lambda _good: b"", "The request has no body"),
    "white space": Spoilt(lambda _good: b" \r\n", NOT_XML),
    "no XML": Spoilt(lambda _good: b"order=1&n=2", NOT_XML),
    "JSON": Spoilt(lambda _good: b'{"n": 1}', NOT_XML),
    "zeros": Spoilt(lambda good: b"\0" * len(good), NOT_XML),
    "no SOAP": Spoilt(lambda _good: b"<order><n>1</n></order>", "is not a SOAP envelope"),
    "broken off in the header": Spoilt(lambda good: good[: good.index(b"</soap:Header>") - 5], NOT_XML),
    "broken off behind the header": Spoilt(lambda good: good[: good.index(b"<soap:Body>")], NOT_XML),
    "broken off in the body": Spoilt(lambda good: good[: good.index(b"</t:put_order>")], NOT_XML),
    "broken off in the last tag": Spoilt(lambda good: good[:-1], NOT_XML),
    "without its last tag": Spoilt(lambda good: good[: good.rindex(b"</")], NOT_XML),
    "not UTF-8": Spoilt(lambda good: good.replace(TO, TO + b"\xff\xfe"), NOT_XML),
    "an undeclared prefix": Spoilt(lambda good: good.replace(b"<wsrm:Sequence ", b"<nobody:Sequence ", 1), NOT_XML),
    "DTD": Spoilt(lambda good: b'<!DOCTYPE x SYSTEM "http://127.0.0.1:9/x.dtd">' + good, NO_DTD),
    "internal DTD": Spoilt(lambda good: b"<!DOCTYPE x [<!ELEMENT x ANY>]>" + good, NO_DTD),
    "external entity": Spoilt(
        lambda good: b'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>' + good.replace(TO, TO + b"&e;"), NO_DTD
    ),
    "entity bomb": Spoilt(lambda good: BOMB + good.replace(TO, TO + b"&e9;"), NO_DTD),
    "a header of a megabyte": Spoilt(
        lambda good: good.replace(TO, b"<x:big xmlns:x='urn:x'>" + MEGABYTE + b"</x:big>" + TO), TOO_LONG
    ),
    "an attribute of a megabyte": Spoilt(lambda good: good.replace(TO, b"<wsa:To a='" + MEGABYTE + b"'>"), TOO_LONG),
    "a deep header": Spoilt(lambda good: good.replace(TO, b"<a>" * 5000 + b"</a>" * 5000 + TO), TOO_MANY),
    "very many headers": Spoilt(lambda good: good.replace(TO, b"<a/>" * 60_000 + TO), TOO_MANY),
}


@pytest.mark.spec("H-020", "F-031")
@pytest.mark.parametrize("spoilt", UNREADABLE.values(), ids=UNREADABLE.keys())
@each_rm_at_length
def test_what_cannot_be_read_is_refused(spoilt: Spoilt, source: Source, bystander: Bystander) -> None:
    answer = source.post(spoilt.spoil(bystander.number_2(source)))
    fault = clear_fault(source, answer, 400, 500)
    assert (fault.code, fault.subcode) == ("Sender", "")
    assert spoilt.reason in fault.reason


@pytest.mark.spec("H-020")
@each_rm
def test_another_soap_version_is_told_which_ones_there_are(source: Source, bystander: Bystander) -> None:
    namespace = source.speak.soap.namespace.encode()
    answer = source.post(bystander.number_2(source).replace(namespace, b"urn:example:soap-3"))
    fault = clear(answer, 500).reply.fault
    assert fault is not None
    assert fault.code == "VersionMismatch"
    assert fault.reason


@each_rm
def test_a_body_of_the_service_that_is_broken_is_refused_where_it_is_looked_at(servers: Servers, speak: Orders) -> None:
    with Source(servers(verify_body=True), speak) as source, unharmed(source) as bystander:
        good = bystander.number_2(source)
        for bad in (good[: good.index(b"</t:put_order>")], good.replace(b"</t:n>", b"</t:m>")):
            fault = clear_fault(source, source.post(bad), 400, 500)
            assert fault.code == "Sender"
            assert NOT_XML in fault.reason


@each_rm
def test_a_body_of_the_service_that_is_broken_is_otherwise_the_services_to_answer(source: Source) -> None:
    """Its headers are whole, so it is a message: accepted, settled by the service's fault, and nothing waits for it."""
    identifier = source.create()
    bad = source.speak.put(identifier, 1).replace(b"</t:n>", b"</t:m>")
    assert source.post(bad).reply.ack.ranges == ((1, 1),)
    assert source.put(identifier, 2).reply.ack.ranges == ((1, 2),)
    assert source.delivered(identifier) == [2]
    assert source.store.outcomes(identifier) == {1: "delivered", 2: "delivered"}
    good_exchange(source.server, source.speak)


# what can be read and makes no sense


class Senseless(NamedTuple):
    """A Sequence header, what is said about it, and the subcode."""

    envelope: Callable[[Source, str], bytes]
    reason: str
    subcode: str = ""


def numbered(number: str) -> Callable[[Source, str], bytes]:
    return lambda source, identifier: source.speak.put(identifier, number)


def identified(wrong: str) -> Callable[[Source, str], bytes]:
    return lambda source, _identifier: source.speak.put(wrong, 2)


SENSELESS: Final[dict[str, Senseless]] = {
    "two headers": Senseless(
        lambda source, identifier: source.speak.put(identifier, 2, headers=source.speak.sequence_header(identifier, 3)),
        "more than one Sequence header",
    ),
    "0": Senseless(numbered("0"), "MessageNumber has to be 1 or more"),
    "1e3": Senseless(numbered("1e3"), "MessageNumber is not a number of 64 bits"),
    "2 to the 64": Senseless(numbered(str(2**64)), "MessageNumber is not a number of 64 bits"),
    "unknown sequence": Senseless(identified(UNKNOWN), "not that of a sequence known here", "UnknownSequence"),
    "empty identifier": Senseless(identified(""), "Identifier of Sequence cannot be used: it is not an absolute URI"),
    "huge identifier": Senseless(
        identified("urn:x:" + "y" * 100_000), "Identifier of Sequence cannot be used: it is longer than 1024 bytes"
    ),
}


@pytest.mark.spec("H-020", "D-SEQ-011", "D-SEQ-012", "D-SEQ-013", "D-SEQ-017")
@pytest.mark.parametrize("senseless", SENSELESS.values(), ids=SENSELESS.keys())
@every_version
def test_what_makes_no_sense_is_refused(senseless: Senseless, source: Source, bystander: Bystander) -> None:
    answer = source.post(senseless.envelope(source, bystander.identifier))
    fault = clear_fault(source, answer, 500)
    assert (fault.code, fault.subcode) == ("Sender", senseless.subcode)
    assert senseless.reason in fault.reason
    assert fault.namespace == (source.speak.rm.namespace if senseless.subcode else "")
    assert fault.identifier == (UNKNOWN if senseless.subcode else None)


@pytest.mark.spec("D-SEQ-015", "D-SEQ-016")
@every_version
def test_2_to_the_63_rolls_over_and_loses_nothing(source: Source) -> None:
    identifier = source.create()
    assert source.put(identifier, 1).reply.ack.ranges == ((1, 1),)
    fault = clear_fault(source, source.put(identifier, 2**63), 400, 500)
    assert (fault.code, fault.subcode, fault.identifier) == ("Sender", "MessageNumberRollover", identifier)
    assert "above the largest" in fault.reason
    assert source.delivered(identifier) == [1]
    assert source.store.received(identifier) == [(1, 1)]
    assert source.store.outcomes(identifier) == {1: "delivered"}
    good_exchange(source.server, source.speak)


# HTTP


@pytest.mark.spec("H-020")
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "BREW"])
@each_rm_at_length
def test_another_method_is_refused(method: str, source: Source, bystander: Bystander) -> None:
    with Source(source.server, source.speak) as other:
        request = other.request(bystander.number_2(source), "Connection: close")
        other.wire.send(request.replace(b"POST", method.encode(), 1))
        answer = other.wire.read()
    assert answer.status in ((400, 405) if method == "BREW" else (405,))  # some servers know no such method themselves
    assert method == "HEAD" or b"POST" in clear(answer, 405).body


WRONG_TYPES: Final = ("text/plain", "application/json", "application/x-www-form-urlencoded", "image/png", "text", "")


@pytest.mark.spec("H-020")
@pytest.mark.parametrize("content_type", WRONG_TYPES)
@each_rm_at_length
def test_another_media_type_is_refused_where_a_path_is_named(
    content_type: str, servers: Servers, speak: Orders
) -> None:
    """A service that does not look would run the message, as often as it is sent, and acknowledge nothing."""
    with Source(servers(paths=["/orders"]), speak) as source, unharmed(source) as bystander:
        answer = source.post(bystander.number_2(source), content_type=content_type)
        assert b"text/xml" in clear(answer, 415).body
        assert "application/soap+xml" in answer.fields["accept"]


@each_rm
def test_another_media_type_elsewhere_is_not_ours_to_judge(servers: Servers, speak: Orders) -> None:
    with Source(servers(paths=["/orders"]), speak, "/plain") as source:
        before = source.store.everything()
        assert source.post(b'{"n": 1}', content_type="application/json").status >= 400  # the service's own answer
        assert source.store.everything() == before
    good_exchange(source.server, speak)


@pytest.mark.spec("H-020")
@pytest.mark.parametrize("content_type", ["multipart/related", 'multipart/related; type="text/xml"; boundary=""'])
@each_rm
def test_parts_without_a_boundary_are_refused(content_type: str, source: Source, bystander: Bystander) -> None:
    answer = source.post(bystander.number_2(source), content_type=content_type)
    fault = clear(answer, 400, 500).reply.fault
    assert fault is not None
    assert (fault.code, "boundary" in fault.reason) == ("Sender", True)


CLOSING: Final = b"\r\n--edge--\r\n"
CUT: Final[dict[str, Callable[[bytes], bytes]]] = {
    "in the envelope": lambda whole: whole[: whole.index(b"</soap:Body>")],
    "behind the envelope": lambda whole: whole[: whole.index(b"\r\n--edge\r\nContent-Type: image")],
    "in the attachment": lambda whole: whole[: whole.index(b"PNG")],
    "behind the attachment": lambda whole: whole.removesuffix(CLOSING),
    "in the closing boundary": lambda whole: whole.removesuffix(b"-\r\n"),
    "behind another boundary": lambda whole: whole.removesuffix(b"--\r\n") + b"\r\n",
    "behind the boundary of another": lambda whole: whole.replace(b"edge--\r\n", b"edge--of-another"),
}


@pytest.mark.parametrize("cut", CUT.values(), ids=CUT.keys())
@each_rm_at_length
def test_parts_without_their_closing_boundary_are_refused_whatever_the_length_says(
    cut: Callable[[bytes], bytes], source: Source, bystander: Bystander
) -> None:
    """Half a message that is acknowledged is lost: the whole one that is sent again would be a duplicate."""
    whole = in_parts(bystander.number_2(source), source.speak)
    for code, fields in ((bytes, ()), (gzip.compress, ("Content-Encoding: gzip",))):
        answer = source.post(code(cut(whole.body)), *fields, content_type=whole.content_type)
        fault = clear(answer, 400, 500).reply.fault
        assert fault is not None
        assert (fault.code, "closing boundary" in fault.reason) == ("Sender", True)
    terminate = in_parts(source.speak.terminate(bystander.identifier), source.speak)
    assert source.post(cut(terminate.body), content_type=terminate.content_type).status in (400, 500)


SHORT: Final[dict[str, Callable[[Source, bytes], bytes]]] = {
    "nothing of it": lambda source, good: source.request(b"", f"Content-Length: {len(good)}"),
    "half of it": lambda source, good: source.request(good[: len(good) // 2], f"Content-Length: {len(good)}"),
    "all but a byte": lambda source, good: source.request(good[:-1], f"Content-Length: {len(good)}"),
    "a chunk": lambda source, good: source.request(b"%x\r\n" % len(good) + good[:-9], "Transfer-Encoding: chunked"),
    "no last chunk": lambda source, good: source.request(chunked(good, [])[:-5], "Transfer-Encoding: chunked"),
}


@pytest.mark.parametrize("sent", SHORT.values(), ids=SHORT.keys())
@in_one_version
def test_a_body_that_is_cut_off_is_not_accepted(
    sent: Callable[[Source, bytes], bytes], source: Source, bystander: Bystander
) -> None:
    """The connection ends before the body does: often no client is there to be answered."""
    with Source(source.server, source.speak) as broken:
        broken.wire.send(sent(broken, bystander.number_2(source)))
        broken.wire.socket.shutdown(socket.SHUT_WR)
        try:
            clear(broken.wire.read(), 400, 411)
        except ConnectionError:
            pass


WRONG_LENGTHS: Final = {
    "no number": "Content-Length: many",
    "negative": "Content-Length: -5",
    "two": "Content-Length: 5\r\nContent-Length: 6",
    "no chunk size": "Transfer-Encoding: chunked",
    "unknown coding": "Transfer-Encoding: scrambled",
}


@pytest.mark.spec("H-020")
@pytest.mark.parametrize("length", WRONG_LENGTHS.values(), ids=WRONG_LENGTHS.keys())
@each_rm
def test_a_length_that_is_none_is_refused(length: str, source: Source, bystander: Bystander) -> None:
    with HTTPWire(source.server.port) as wire:
        wire.send(source.request(bystander.number_2(source) + b"\r\n", length, "Connection: close"))
        clear(wire.read(), 400, 411, 501)


CODINGS: Final[dict[str, tuple[str, Callable[[bytes], bytes]]]] = {
    "gzip that is none": ("gzip", lambda good: good),
    "gzip cut off": ("gzip", lambda good: gzip.compress(good)[:60]),
    "gzip cut off behind the header section": ("gzip", lambda good: gzip.compress(good)[:-9]),
    "no name": ("", gzip.compress),
}


@pytest.mark.spec("H-020")
@pytest.mark.parametrize(("coding", "code"), CODINGS.values(), ids=CODINGS.keys())
@each_rm
def test_a_body_that_is_not_coded_as_it_says_is_refused(
    coding: str, code: Callable[[bytes], bytes], source: Source, bystander: Bystander
) -> None:
    answer = source.post(code(bystander.number_2(source)), f"Content-Encoding: {coding}")
    assert clear_fault(source, answer, 400, 500).code == "Sender"


@pytest.mark.spec("H-020")
@pytest.mark.parametrize("coding", ["br", "deflate", "gzip, br"])
@each_rm
def test_a_coding_that_is_not_known_is_refused_with_those_that_are(
    coding: str, source: Source, bystander: Bystander
) -> None:
    answer = source.post(bystander.number_2(source), f"Content-Encoding: {coding}")
    assert b"gzip" in clear(answer, 415).body
    assert answer.fields["accept-encoding"] == "gzip, identity" or b"cannot expand" in answer.body


# good messages in rare forms


class Form(NamedTuple):
    """A good message as it may also be sent, and the fields that go with it."""

    body: bytes
    fields: tuple[str, ...] = ()
    content_type: str | None = None


def plain(good: bytes, _speak: Orders) -> Form:
    return Form(good)


def in_chunks(good: bytes, _speak: Orders) -> Form:
    return Form(chunked(good, [1, 2, 3, 500]), ("Transfer-Encoding: chunked",))


def with_mark(good: bytes, _speak: Orders) -> Form:
    return Form(codecs.BOM_UTF8 + good)


def in_utf_16(good: bytes, speak: Orders) -> Form:
    return Form(good.decode().encode("utf-16"), content_type=f"{speak.soap.media_type}; charset=utf-16")


def with_a_long_end(good: bytes, _speak: Orders) -> Form:
    return Form(good + b" " * 100 + b"<!-- the end --> \r\n")


def compressed(good: bytes, _speak: Orders) -> Form:
    return Form(gzip.compress(good), ("Content-Encoding: gzip",))


def in_parts(good: bytes, speak: Orders) -> Form:
    part = f"--edge\r\nContent-Type: {speak.content_type}\r\n\r\n".encode()
    body = part + good + b"\r\n--edge\r\nContent-Type: image/png\r\n\r\n\x89PNG\r\n--edge--\r\n"
    return Form(body, content_type=f'multipart/related; type="{speak.soap.media_type}"; boundary=edge')


def in_lines_of_unix(good: bytes, speak: Orders) -> Form:
    form = in_parts(good, speak)
    return form._replace(body=form.body.replace(b"\r\n", b"\n"))


def in_parts_with_an_epilogue(good: bytes, speak: Orders) -> Form:
    form = in_parts(good, speak)
    return form._replace(body=form.body.removesuffix(b"\r\n") + b" \t\r\nThe end." + b"\r\n" * 10_000)


def in_parts_without_a_last_line_end(good: bytes, speak: Orders) -> Form:
    form = in_parts(good, speak)
    return form._replace(body=form.body.removesuffix(b"\r\n"))


FORMS: Final = [
    plain,
    in_chunks,
    with_mark,
    in_utf_16,
    with_a_long_end,
    compressed,
    in_parts,
    in_lines_of_unix,
    in_parts_with_an_epilogue,
    in_parts_without_a_last_line_end,
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("piece", [100_000, 37], ids=["at once", "in pieces"])
@each_rm
def test_a_good_message_in_a_rare_form_is_accepted_and_reaches_the_service_as_it_was_sent(
    form: Callable[[bytes, Orders], Form], piece: int, source: Source
) -> None:
    with Source(source.server, source.speak, "/plain") as other:
        identifier = other.create()
        good = other.speak.put(identifier, 1)
        sent = form(good, other.speak)
        request = other.request(sent.body, *sent.fields, content_type=sent.content_type)
        for start in range(0, len(request), piece):
            other.wire.send(request[start : start + piece])
        assert other.wire.read().reply.ack.ranges == ((1, 1),)
        other.delivered(identifier)
        attempts = other.server.rows("select body from requests where sequence = ?", identifier)
        assert [body for (body,) in attempts][:1] == [good if form is in_chunks else sent.body]
        assert other.store.outcomes(identifier) == {1: "delivered"}
