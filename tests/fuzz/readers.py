"""Gives what ``mutations`` makes to everything that reads what peers write, and holds each to what must be:

- it answers, or raises the error that its caller knows (``EnvelopeError`` of a request), nothing else,
- what is written of what was read is well-formed, and no address of a peer brings in a header block that is ours,
- what is changed of an envelope leaves its Body as it was.
"""

from __future__ import annotations

import io
import random
import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple
from xml.etree import ElementTree

from lxml import etree

from tests.fuzz.failed import Failed
from tests.fuzz.messages import DIALECTS, Case, description, good
from tests.fuzz.mutations import mutated
from wsrm_mq.decoding.decode import decoded
from wsrm_mq.envelope.headers import Headers
from wsrm_mq.envelope.render import create_sequence_response
from wsrm_mq.envelope.rewrite import (
    NotAnEnvelope,
    blocks,
    body_digest,
    complete_reply,
    demote,
    fault_in,
    piggyback,
    strip,
    without_security,
)
from wsrm_mq.envelope.scan import Scanner, scan
from wsrm_mq.envelope.stream import Limits, check_whole, ends_once
from wsrm_mq.envelope.wsdl import Announcement, announce, move_ports, operations_in, parsed, remove_outputs, written
from wsrm_mq.errors import EnvelopeError
from wsrm_mq.sequence.elements import CreateSequence, EndpointReference
from wsrm_mq.versions import ADDRESSING_VERSIONS, RM_OF_NAMESPACE, SOAP_VERSIONS, WSA_2005, WSRM_1_1

LIMITS: Final = Limits()
SOURCES: Final = 0.85
"""The share of messages; the others are WSDLs."""
OURS: Final = frozenset(("", *SOAP_VERSIONS, *ADDRESSING_VERSIONS, *RM_OF_NAMESPACE))
ADDRESSED: Final = frozenset(("Action", "MessageID", "To", "RelatesTo"))
PLANTED_IN: Final = 50

_warm = Scanner(LIMITS)


class Wrong(Exception):
    """What a reader made of a case is not what it has to be."""


class Reader(NamedTuple):
    read: Callable[[Case], object]
    known: tuple[type[Exception], ...] = ()
    """What its callers expect that it raises."""


def read_headers(case: Case) -> None:
    """Alike from bytes, from a stream, and by the memory of messages that are alike."""
    told = [
        _said(lambda: scan(case.body, case.content_type)),
        _said(lambda: scan(io.BytesIO(case.body), case.content_type)),
        _said(lambda: _warm.scan(case.body, case.content_type)),
    ]
    if told != [told[0]] * len(told):
        raise Wrong(f"scans differ: {told}")


def _said(of: Callable[[], Headers]) -> object:
    try:
        return of()._replace(alike=None)
    except EnvelopeError as error:
        return error.fault, error.status


def write_to_addresses(case: Case) -> None:
    """An answer to each address that a message gives."""
    headers = scan(case.body, case.content_type)
    for reference in _references(headers):
        addressing, rm = headers.addressing or WSA_2005, headers.rm or WSRM_1_1
        answer = create_sequence_response(headers.soap, addressing, rm, headers.message_id, "urn:x", to=reference)
        names = [etree.QName(block.tag) for block in ElementTree.fromstring(answer)[0]]
        ours = sorted(name.localname for name in names if (name.namespace or "") in OURS)
        if len(set(ours)) < len(ours) or not ADDRESSED.issuperset(ours):
            raise Wrong(f"an address of a peer made header blocks: {ours}")


def _references(headers: Headers) -> Iterator[EndpointReference]:
    body = headers.body
    of_body = (body.acks_to, body.offer and body.offer.endpoint) if isinstance(body, CreateSequence) else ()
    yield from filter(None, (headers.reply_to, headers.fault_to, *of_body))


def rewrite(case: Case) -> None:
    headers = scan(case.body, case.content_type)
    digest = body_digest(case.body, case.content_type)
    for change in (demote, strip):
        if body_digest(change(case.body, headers), case.content_type) != digest:
            raise Wrong(f"{change.__name__} has changed the Body")


def complete(case: Case) -> None:
    """As an application's reply."""
    for speak in DIALECTS[:2]:
        body, place = complete_reply(case.body, case.content_type, speak.soap, WSA_2005, "urn:request", "urn:action")
        again = piggyback(body, case.content_type, b"<x/>", place)
        if _is_xml(case) and _is_xml(case._replace(body=again)) is False:
            raise Wrong("a reply that was well-formed is not any more")


def _is_xml(case: Case) -> bool:
    try:
        etree.fromstring(case.body)
    except (etree.XMLSyntaxError, ValueError):
        return False
    return True


def describe(case: Case) -> None:
    """As a WSDL: what is written can be read, and says it already."""
    operations_in(case.body)
    root = parsed(case.body)
    remove_outputs(root, ["urn:put", "{urn:example:orders}put"])
    move_ports(root, "https://shop.example/soap")
    announced = announce(root, Announcement(inactivity=60_000))
    if announced and announce(parsed(written(root)), Announcement()):
        raise Wrong("it is announced twice")


def tell(case: Case) -> None:
    """In words, alone and as a request whose HTTP may be cut in the middle of the body."""
    fields = f"Content-Type: {case.content_type}\r\nContent-Encoding: {case.encoding}\r\nTransfer-Encoding: chunked"
    chunk = b"%x\r\n%b\r\n0\r\n\r\n" % (len(case.body), case.body)
    request = f"{case.method} /orders HTTP/1.1\r\n{fields}\r\n\r\n".encode("latin-1", "replace") + chunk
    for content in (case.body, request, request[: len(request) // 2]):
        if not all(told.what for told in decoded(content)):
            raise Wrong("nothing is told of it")


READERS: Final = {
    "headers": Reader(read_headers),
    "addresses": Reader(write_to_addresses, (EnvelopeError,)),
    "rewriting": Reader(rewrite, (EnvelopeError,)),
    "reply": Reader(complete, (NotAnEnvelope,)),
    "faults": Reader(lambda case: fault_in(case.body, case.content_type)),
    "blocks": Reader(lambda case: blocks(case.body, case.content_type)),
    "redaction": Reader(lambda case: without_security(case.body, case.content_type)),
    "wholeness": Reader(lambda case: check_whole(io.BytesIO(case.body), case.content_type, LIMITS), (EnvelopeError,)),
    "ending": Reader(lambda case: ends_once(case.body, case.content_type)),
    "WSDL": Reader(describe, (ValueError,)),
    "words": Reader(tell),
}


def fuzz_readers(seconds: float, seed: int, plant: str = "") -> int:
    """Run for ``seconds``; answers how many cases there were. Raises ``Failed``. ``plant``: a reader of this name makes
    a mistake."""
    rng = random.Random(seed)
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end or count <= PLANTED_IN:
        is_message = rng.random() < SOURCES
        whole = (
            good(rng, rng.choice(DIALECTS), ["urn:example:one", "urn:example:two"]) if is_message else description(rng)
        )
        case = mutated(rng, whole)
        count += 1
        for name, reader in READERS.items():
            try:
                if name == plant and count == PLANTED_IN:
                    raise RuntimeError("planted")
                reader.read(case)
            except reader.known:
                pass
            except Exception as error:
                raise Failed(f"{name}: {error!r}", case) from error
    return count
