"""What is no good message: each is answered by a clear fault or error, leaves nothing behind, and harms nobody else.

Good input in rare forms stands beside it: chunked, split, in other encodings, compressed, multipart.
"""

from __future__ import annotations

import codecs
import gzip
import re
import socket
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from tests.support.orders_server import OrdersServer
from tests.support.raw import Answer, chunked
from tests.support.source import Source, every_version, good_exchange, in_one_version
from wsrm_mq.testing import EnvelopeFactory
from wsrm_mq.versions import SOAPVersion

from .conversation import UNKNOWN


class Aftermath(NamedTuple):
    """A sequence with one message, made before the bad input came."""

    identifier: str
    before: list[Any]


@pytest.fixture
def harmless(source: Source) -> Iterator[Aftermath]:
    """Whatever the test sends: nothing accepted is lost, nothing is stored, and the server goes on."""
    identifier = source.create()
    assert source.put(identifier, 1).reply.ack.ranges == ((1, 1),)
    assert source.delivered(identifier) == [1]
    before = source.store.everything()
    yield Aftermath(identifier, before)
    assert source.store.everything() == before
    with Source(source.server, source.speak) as other:
        assert other.put(identifier, 2).reply.ack.ranges == ((1, 2),)
        assert other.delivered(identifier) == [1, 2]
        assert other.calls(identifier) == [1, 2]
    good_exchange(source.server, source.speak)


def is_clear(answer: Answer, statuses: tuple[int, ...]) -> bool:
    """An error with words in it, and none of ours that nobody should see."""
    assert answer.status in statuses, (answer.status, answer.body)
    assert answer.body.strip()
    assert not re.search(rb"Traceback|File \"|\.py\b|sqlite", answer.body)
    return True


# what cannot be read

ENTITIES = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
BOMB = f'<!DOCTYPE bomb [<!ENTITY e0 "boom">{ENTITIES}]>'
UNREADABLE: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda _good: b"",
    "white space": lambda _good: b" \r\n",
    "no XML": lambda _good: b"order=1&n=2",
    "JSON": lambda _good: b'{"n": 1}',
    "zeros": lambda good: b"\0" * len(good),
    "no SOAP": lambda _good: b"<order><n>1</n></order>",
    "broken off in the header": lambda good: good[: good.index(b"</soap:Header>") - 5],
    "broken off behind the header": lambda good: good[: good.index(b"<soap:Body>")],
    "not UTF-8": lambda good: good.replace(b"<wsa:To>", b"<wsa:To>\xff\xfe"),
    "an undeclared prefix": lambda good: good.replace(b"<wsrm:Sequence ", b"<nobody:Sequence ", 1),
    "DTD": lambda good: b'<!DOCTYPE x SYSTEM "http://127.0.0.1:9/x.dtd">' + good,
    "internal DTD": lambda good: b"<!DOCTYPE x [<!ELEMENT x ANY>]>" + good,
    "external entity": lambda good: (
        b'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>' + good.replace(b"<wsa:To>", b"<wsa:To>&e;")
    ),
    "entity bomb": lambda good: BOMB.encode() + good.replace(b"<wsa:To>", b"<wsa:To>&e9;"),
    "a header of a megabyte": lambda good: good.replace(
        b"<wsa:To>", b"<x:big xmlns:x='urn:x'>" + b"x" * 1_000_000 + b"</x:big><wsa:To>"
    ),
    "an attribute of a megabyte": lambda good: good.replace(b"<wsa:To>", b"<wsa:To a='" + b"x" * 1_000_000 + b"'>"),
    "a deep header": lambda good: good.replace(b"<wsa:To>", b"<a>" * 5000 + b"</a>" * 5000 + b"<wsa:To>"),
    "very many headers": lambda good: good.replace(b"<wsa:To>", b"<a/>" * 60_000 + b"<wsa:To>"),
}


@pytest.mark.spec("H-020", "F-031")
@pytest.mark.parametrize("spoil", UNREADABLE.values(), ids=UNREADABLE.keys())
@every_version
def test_what_cannot_be_read_is_refused(
    spoil: Callable[[bytes], bytes], source: Source, harmless: Aftermath
) -> None:
    bad = spoil(source.order(harmless.identifier, 2))
    answer = source.post(bad)
    assert is_clear(answer, (400, 500))
    assert answer.reply.soap is source.speak.soap
    assert answer.reply.fault is not None
    assert answer.reply.fault.code in ("Sender", "VersionMismatch")
    assert answer.reply.fault.reason
    assert b"root:" not in answer.body


@pytest.mark.spec("H-020")
@in_one_version
def test_another_soap_version_is_told_which_ones_there_are(source: Source, harmless: Aftermath) -> None:
    good = source.order(harmless.identifier, 2)
    answer = source.post(good.replace(b"http://www.w3.org/2003/05/soap-envelope", b"urn:example:soap-3"))
    assert is_clear(answer, (500,))
    assert answer.reply.fault is not None
    assert answer.reply.fault.code == "VersionMismatch"


@pytest.mark.spec("H-020", "D-SEQ-011", "D-SEQ-012", "D-SEQ-013")
@pytest.mark.parametrize(
    "sequence",
    ["two headers", "0", "1e3", str(2**64), "unknown", "empty identifier", "huge identifier"],
)
@every_version
def test_what_makes_no_sense_is_refused(sequence: str, source: Source, harmless: Aftermath) -> None:
    identifier, number = harmless.identifier, "2"
    options: dict[str, Any] = {}
    if sequence == "two headers":
        options["headers"] = source.speak.sequence_header(identifier, 3)
    elif sequence in ("unknown", "empty identifier", "huge identifier"):
        identifier = {"unknown": UNKNOWN, "empty identifier": "", "huge identifier": "urn:x:" + "y" * 100_000}[sequence]
    else:
        number = sequence
    answer = source.put(identifier, number, **options)
    assert is_clear(answer, (400, 500))
    assert answer.reply.fault is not None
    assert answer.reply.fault.code == "Sender"


# HTTP


@pytest.mark.spec("H-020", versions="all")
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "BREW"])
@in_one_version
def test_another_method_is_refused(method: str, source: Source, harmless: Aftermath) -> None:
    ...


@in_one_version
def test_a_body_shorter_than_its_length_is_not_accepted(source: Source, harmless: Aftermath) -> None:
    """The connection ends before the body does: nobody is there to be answered."""
    good = source.order(harmless.identifier, 2)
    for kept in (0, 1, len(good) // 2, len(good) - 1):
        with Source(source.server, source.speak) as broken:
            broken.wire.send(broken.request(good[:kept], f"Content-Length: {len(good)}"))
            broken.wire.socket.shutdown(socket.SHUT_WR)
            try:
                answer = broken.wire.read()
            except EOFError:
                continue
            assert answer.status >= 400
