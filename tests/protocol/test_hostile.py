"""What a hostile client sends over HTTP, in every version: refused in normal time, without a trace or an access."""

from __future__ import annotations

import gzip
import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.orders_server import within
from tests.support.source import Source, each_rm, every_version
from wsrm_mq.testing import HTTPAnswer

from .conftest import Servers

SOON = 5.0
"""Seconds: a loaded machine's normal time, far below what an expansion would take."""
LAUGHS = "".join([f'<!ENTITY l{n} "' + f"&l{n - 1};" * 10 + '">' for n in range(1, 12)])


@pytest.fixture
def port() -> Iterator[socket.socket]:
    """Where an access to the network would show."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.2)
        yield listening


def address(port: socket.socket) -> str:
    return f"http://127.0.0.1:{port.getsockname()[1]}"


def refused(answer: HTTPAnswer) -> None:
    assert answer.status >= 400
    assert answer.elements("SequenceAcknowledgement") == [] if answer.body.startswith(b"<") else True


def spoiled(source: Source, prolog: str, inside: str) -> None:
    """A message with ``prolog`` before the envelope, and its text replaced, is refused."""
    identifier = source.create()
    before = source.store.everything()
    envelope = prolog.encode() + source.speak.put(identifier, 1, "the-text").replace(b"the-text", inside.encode())
    begun = time.monotonic()
    refused(source.post(envelope))
    assert time.monotonic() - begun < SOON
    assert source.store.everything() == before


@pytest.mark.spec("SEC-022")
@every_version
def test_a_document_type_is_refused_before_an_entity_of_it_is_processed(source: Source) -> None:
    spoiled(source, f'<!DOCTYPE x [<!ENTITY l0 "lol">{LAUGHS}]>', "&l11;")
    spoiled(source, "<!DOCTYPE x [<!ELEMENT x ANY>]>", "plain")


@pytest.mark.spec("SEC-023")
@every_version
def test_no_entity_include_or_schema_location_makes_the_server_read_or_call_anything(
    source: Source, port: socket.socket
) -> None:
    for system in (address(port), "file:///etc/hostname"):
        spoiled(source, f'<!DOCTYPE x [<!ENTITY e SYSTEM "{system}/e">]>', "&e;")
        spoiled(source, f'<!DOCTYPE x [<!ENTITY % p SYSTEM "{system}/p">%p;]>', "plain")
        spoiled(source, f'<!DOCTYPE x SYSTEM "{system}/x.dtd">', "plain")
    identifier = source.create()
    text_only = (
        f'<i:include xmlns:i="http://www.w3.org/2001/XInclude" href="{address(port)}/i" parse="text"/>'
        '<i:include xmlns:i="http://www.w3.org/2001/XInclude" href="file:///etc/hostname" parse="text"/>'
        '<q:x xmlns:q="urn:q" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
        f' xsi:schemaLocation="urn:q {address(port)}/q.xsd"/>'
    )
    answer = source.put(identifier, 1, headers=text_only)
    assert answer.reply.ack.ranges == ((1, 1),)
    assert source.delivered(identifier) == [1]
    hostname = Path("/etc/hostname").read_bytes().strip()
    assert not hostname or hostname not in answer.body
    with pytest.raises(TimeoutError):
        port.accept()


ATTRIBUTES = " ".join([f'a{n}=""' for n in range(100_000)])
DECLARATIONS = " ".join([f'xmlns:p{n}="urn:{n}"' for n in range(100_000)])
HUGE = {
    "an attribute of 10 MiB": '<q:x xmlns:q="urn:q" a="' + "x" * (10 << 20) + '"/>',
    "100,000 attributes": f'<q:x xmlns:q="urn:q" {ATTRIBUTES}/>',
    "10,000 deep": '<q:x xmlns:q="urn:q">' + "<q:y>" * 10_000 + "</q:y>" * 10_000 + "</q:x>",
    "a name of 1 MiB": "<q:" + "n" * (1 << 20) + ' xmlns:q="urn:q"/>',
    "100,000 declarations": f'<q:x xmlns:q="urn:q" {DECLARATIONS}/>',
}


@pytest.mark.spec("SEC-024")
@pytest.mark.parametrize("block", HUGE)
@each_rm
def test_what_is_huge_is_refused_in_normal_time(block: str, source: Source) -> None:
    identifier = source.create()
    before = source.store.everything()
    begun = time.monotonic()
    refused(source.put(identifier, 1, headers=HUGE[block]))
    assert time.monotonic() - begun < SOON
    assert source.store.everything() == before
    assert source.put(identifier, 1).reply.ack.ranges == ((1, 1),)


@pytest.mark.spec("SEC-025")
@every_version
def test_an_identifier_of_a_mebibyte_is_refused(source: Source) -> None:
    before = source.store.everything()
    long = "urn:" + "x" * (1 << 20)
    for answer in (source.put(long, 1), source.ask(long), source.terminate(long)):
        refused(answer)
        assert len(answer.body) < 4_096
    assert source.store.everything() == before


@pytest.mark.spec("SEC-026")
@every_version
def test_what_is_compressed_or_in_parts_is_measured_as_it_expands(servers: Servers, source: Source) -> None:
    limited = servers(max_body=200_000)
    with Source(limited, source.speak) as small:
        identifier = small.create()
        before = small.store.everything()
        large = small.speak.put(identifier, 1, "x" * 400_000)
        packed = gzip.compress(large)
        assert len(packed) < 10_000
        answer = small.post(packed, "Content-Encoding: gzip")
        assert answer.status in (413, 415), answer.body
        bomb = gzip.compress(
            small.speak.put(identifier, 1).replace(b"<soap:Header>", b"<soap:Header>" + b" " * (64 << 20))
        )
        begun = time.monotonic()
        refused(small.post(bomb, "Content-Encoding: gzip"))
        assert time.monotonic() - begun < SOON
        kind = f'multipart/related; boundary=b; type="{small.speak.soap.media_type}"'
        parts = b"--b\r\nContent-Type: " + small.speak.content_type.encode() + b"\r\n\r\n" + large + b"\r\n--b--\r\n"
        assert small.post(parts, content_type=kind).status == 413
        headers = b"--b\r\n" + b"X-Filler: y\r\n" * 10_000 + b"\r\n" + small.speak.put(identifier, 1) + b"\r\n--b--\r\n"
        refused(small.post(headers, content_type=kind))
        assert small.store.everything() == before
        assert small.put(identifier, 1).reply.ack.ranges == ((1, 1),)


@pytest.mark.spec("SEC-027")
@every_version
def test_what_a_client_writes_makes_no_line_of_the_log(source: Source) -> None:
    """Line ends as character references, a bidi override, an escape sequence's beginning where XML allows one."""
    before = source.server.log.stat().st_size
    forged = "CRITICAL forged everything is lost"
    hostile = f"urn:x&#13;&#10;{forged}&#x202e;&#x9b;2J"
    assert source.put(hostile, 1).status >= 400
    assert source.ask(hostile).status >= 400
    assert source.put(f"urn:forged:{uuid.uuid4()}", 1, action=f"urn:a&#10;{forged}").status >= 400
    time.sleep(0.1)
    with source.server.log.open("rb") as log:
        log.seek(before)
        written = log.read().decode()
    assert not [line for line in written.splitlines() if line.startswith(forged)]
    assert "\u202e" not in written
    assert "\x9b" not in written


@pytest.mark.spec("SEC-001")
@each_rm
def test_identifiers_do_not_repeat_and_leave_nothing_to_guess(source: Source) -> None:
    """122 bits of a version 4 UUID, each about as often set as not; a unit test has ten thousand of them."""
    values = [uuid.UUID(source.create().removeprefix("urn:uuid:")) for _ in range(300)]
    assert len(set(values)) == len(values)
    assert {(each.version, each.variant) for each in values} == {(4, uuid.RFC_4122)}
    fixed = {*range(62, 64), *range(76, 80)}
    for bit in set(range(128)) - fixed:
        assert 80 < sum(each.int >> bit & 1 for each in values) < 220, bit


@pytest.mark.spec("SEC-012")
@each_rm
def test_even_numbers_only_stay_within_the_cap(servers: Servers, source: Source) -> None:
    """A cap of 300: what would be one range more is turned away, what joins two is taken."""
    with Source(servers(bounds={"wsrm_mq.config.settings.MAX_RANGES": 300}), source.speak) as even:
        identifier = even.create()
        for number in range(2, 602, 2):
            assert len(even.put(identifier, number).reply.ack.ranges) == number // 2
        for number in (602, 604, 100_000):
            answer = even.put(identifier, number)
            assert (answer.status, "retry-after" in answer.fields) == (503, True)
        assert len(even.ask(identifier).reply.ack.ranges) == 300
        assert len(even.put(identifier, 3).reply.ack.ranges) == 299
        assert len(even.put(identifier, 602).reply.ack.ranges) == 300
        assert within(5, lambda: len(even.store.received(identifier)), lambda count: count == 300) == 300
