"""The scan of a request for its RM and addressing headers, without its body.

``Scanner`` scans with a memory for messages that are alike.

Reading is lenient where stacks are known to err and strict where the meaning would be in doubt (conformance §6). A
message without RM is the wrapped application's business: no rule but those of ``outline`` is applied to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar
from xml.etree.ElementTree import Element

from wsrm_mq.envelope.headers import Headers, Reader, RMBody, read_make_connection
from wsrm_mq.envelope.outline import Outline, read_outline
from wsrm_mq.envelope.seen import Seen, first_fault
from wsrm_mq.envelope.stream import Limits, Source, envelope_in, malformed, parse_content_type
from wsrm_mq.errors import EnvelopeError
from wsrm_mq.sequence.elements import AckRequested, SequenceAcknowledgement, SequenceHeader
from wsrm_mq.versions import MAKE_CONNECTION_NAMESPACE, RM_VERSIONS, WSA_2005, WSRM_1_1, SOAPVersion

_DEFAULT_LIMITS: Final = Limits()
_MAKE_CONNECTION: Final = (MAKE_CONNECTION_NAMESPACE, "MakeConnection")
_SECURITY_MARKERS: Final = ("UsesSequenceSTR", "UsesSequenceSSL")
_Value = TypeVar("_Value")


class _RMElements(NamedTuple):
    sequence: SequenceHeader | None = None
    ack_requested: tuple[AckRequested, ...] = ()
    acknowledgements: tuple[SequenceAcknowledgement, ...] = ()
    body: RMBody | None = None
    ignored: tuple[str, ...] = ()


_NO_ELEMENTS: Final = _RMElements()


def scan(
    source: Source,
    content_type: str,
    soap_action: str | None = None,
    limits: Limits = _DEFAULT_LIMITS,
    outline: Outline | None = None,
) -> Headers:
    """Reads ``source`` (bytes, or anything with ``read(size)``) as far as the start tag of Body's first
    child.

    ``content_type`` and ``soap_action`` are the HTTP fields as sent. A file is left wherever reading stopped.
    An empty ``outline`` is filled. Raises ``EnvelopeError`` with the fault to answer; its ``context`` is what could
    be read of the headers.
    """
    source, content, offset = envelope_in(source, content_type, limits)
    charset = content.charset
    http_action = parse_content_type(content_type).parameters.get("action", content.parameters.get("action"))
    outline = outline or Outline()
    try:
        read_outline(source, charset, limits, outline)
        soap = outline.soap
        assert soap is not None  # the pass ends well only inside an envelope
        seen = Seen(outline, soap)
        if seen.body_name == (soap.namespace, "Fault"):
            from wsrm_mq.envelope.arrived_fault import read_fault

            arrived = read_fault(source, outline, seen, charset, limits)
            if arrived is not None:
                rm, fault_of_rm = arrived
                headers = _headers(seen, limits, charset, offset, strict=False)
                told = _acknowledgements(seen, Reader(rm, WSA_2005, outline, charset, limits), limits, [])
                return headers._replace(rm=rm, body=fault_of_rm, acknowledgements=told)
        if seen.rms:
            http_action = soap_action if soap is SOAPVersion.SOAP_1_1 else http_action
            fault = first_fault(seen, http_action, limits)
            if fault is not None:
                raise EnvelopeError(fault)
        return _headers(seen, limits, charset, offset, strict=bool(seen.rms))
    except EnvelopeError as error:
        if outline.soap is not None:
            error.context = _headers(Seen(outline, outline.soap), limits, charset, offset, strict=False)
        raise


def _headers(seen: Seen, limits: Limits, charset: str | None, offset: int, *, strict: bool) -> Headers:
    """Make ``Headers``. With ``strict`` the RM elements are read too, and a malformed element raises ``EnvelopeError``;
    otherwise malformed elements are left out."""
    rm = seen.rms[0] if seen.rms else None
    addressing = seen.addressings[0] if seen.addressings else None
    reader = Reader(rm or WSRM_1_1, addressing or WSA_2005, seen.outline, charset, limits)
    endpoint = reader.header_endpoint if strict else _forgiving(reader.header_endpoint)
    blocks = seen.addressing_blocks
    of_rm = _rm_elements(seen, reader, limits) if strict else _NO_ELEMENTS
    return Headers(
        seen.soap,
        addressing,
        rm,
        seen.action,
        seen.text("MessageID"),
        seen.text("To"),
        seen.text("RelatesTo"),
        endpoint(blocks["ReplyTo"]) if "ReplyTo" in blocks else None,
        endpoint(blocks["FaultTo"]) if "FaultTo" in blocks else None,
        of_rm.sequence,
        of_rm.ack_requested,
        of_rm.acknowledgements,
        of_rm.body,
        seen.body_name,
        tuple(seen.mandatory),
        charset,
        offset,
        of_rm.ignored,
    )


def _rm_elements(seen: Seen, reader: Reader, limits: Limits) -> _RMElements:
    """Read the RM elements. An error in a header that only rides along does not stop the message that carries it (§6
    row 44)."""
    blocks = seen.rm_blocks
    sequence: SequenceHeader | None = None
    ack_requested: tuple[AckRequested, ...] = ()
    acknowledgements: tuple[SequenceAcknowledgement, ...] = ()
    body: RMBody | None = None
    ignored: list[str] = []
    if "Sequence" in blocks:
        sequence = reader.sequence(blocks["Sequence"][0])
    if "AckRequested" in blocks:
        is_alone = seen.action == seen.rms[0].action("AckRequested")
        read = reader.ack_requested if is_alone else _forgiving(reader.ack_requested, ignored)
        asking = blocks["AckRequested"]
        if len(asking) > limits.ack_requested:
            too_many = f"The message has {len(asking)} AckRequested headers; {limits.ack_requested} are answered."
            if is_alone:
                raise malformed(too_many)
            ignored.append(too_many)
        ack_requested = tuple(dict.fromkeys(filter(None, map(read, asking[: limits.ack_requested]))))
    if "SequenceAcknowledgement" in blocks:
        acknowledgements = _acknowledgements(seen, reader, limits, ignored)
        is_alone = seen.action == seen.rms[0].action("SequenceAcknowledgement")
        if is_alone and not (acknowledgements or ack_requested):
            reader.acknowledgement(blocks["SequenceAcknowledgement"][0])  # raises what is wrong with it
    if seen.body_name == _MAKE_CONNECTION and seen.outline.body is not None:
        body = read_make_connection(seen.outline.body[0])
    elif seen.body_name is not None and seen.body_name[0] in RM_VERSIONS and seen.outline.body is not None:
        uses_security = next((marker for marker in _SECURITY_MARKERS if marker in blocks), None)
        body = reader.body(seen.outline.body[0], uses_security)
    return _RMElements(sequence, ack_requested, acknowledgements, body, tuple(ignored))


def _acknowledgements(
    seen: Seen, reader: Reader, limits: Limits, ignored: list[str]
) -> tuple[SequenceAcknowledgement, ...]:
    """Read the acknowledgements. The reasons why some cannot be read go to ``ignored``."""
    told = seen.rm_blocks.get("SequenceAcknowledgement", [])[: limits.ack_requested]
    return tuple(filter(None, map(_forgiving(reader.acknowledgement, ignored), told)))


def _forgiving(
    read: Callable[[Element], _Value], ignored: list[str] | None = None
) -> Callable[[Element], _Value | None]:
    """Make a reader from ``read`` that answers ``None`` for a malformed element; the reason goes to ``ignored``."""

    def attempt(element: Element) -> _Value | None:
        try:
            return read(element)
        except EnvelopeError as error:
            if ignored is not None:
                ignored.append(error.fault.reason)
            return None

    return attempt


# ``scan`` with a memory for messages that are alike.
#
# A source writes the header section of all its messages alike, but for three values: the Identifier of the sequence,
# the MessageNumber and the MessageID. Of a message that was scanned, the bytes around these values are kept. A message
# that has the same bytes there is the same XML with other text in three elements, so its headers are known without
# parsing.
#
# The equality is of bytes, from the first one to the start tag of the first child of Body: nothing that ``scan`` looks
# at is taken on trust. Whatever does not fit goes to ``scan``, and so does every doubt. It gives 45 of about 55 µs a
# message.

_KINDS: Final = 256
"""Kinds of messages in the cache."""
_LONGEST: Final = 8_192
"""Bytes of a header section that is kept."""

_START: Final = rb"<(?:[\w.-]+:)?(MessageNumber|MessageID|Identifier)"
_ANY: Final = re.compile(_START + rb"(?![\w.:-])")
_FIELD: Final = re.compile(_START + rb"(?:\s[^<>]*)?>([^<>&]+)</")
_VALUE: Final = {
    b"Identifier": re.compile(rb"([A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9:._/#?=+%~-]+)"),
    b"MessageID": re.compile(rb"([A-Za-z0-9:._/#?=+%~-]+)"),
    b"MessageNumber": re.compile(rb"[ \t\r\n]*([0-9]{1,18})[ \t\r\n]*"),
}
"""Text that can be put for another of its kind and means nothing else to an XML parser."""
_START_TAG: Final = re.compile(rb"""<(?:[^<>"']|"[^<"]*"|'[^<']*')*>""")

Match = Callable[[bytes, int], re.Match[bytes] | None]


class _Alike(NamedTuple):
    """The parts that messages have in common: their headers, and the bytes around each of the fields."""

    headers: Headers
    """The headers that they have in common, but for the fields."""
    before: bytes
    """The bytes before the first field."""
    fields: list[tuple[bytes, Match, bytes]]
    """(local name, pattern of its text, bytes that follow it), in the order of the document."""


class Scanner:
    """Scans with one set of limits. May be used by several threads at a time."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._longest = min(_LONGEST, limits.header_bytes)
        self._known: dict[tuple[str, str | None, bytes], _Alike] = {}

    def scan(self, source: Source, content_type: str, soap_action: str | None = None) -> Headers:
        """Answers and raises as ``scan`` does."""
        first = _FIELD.search(source, 0, self._longest) if isinstance(source, bytes) else None
        if first is None or len(content_type) + len(soap_action or "") > _LONGEST:  # the sender chooses them
            return scan(source, content_type, soap_action, self._limits)
        assert isinstance(source, bytes)
        key = (content_type, soap_action, source[: first.start(2)])
        known = self._known.get(key)
        headers = self._recognise(source, known) if known is not None else None
        if headers is not None:
            return headers
        outline = Outline()
        headers = scan(source, content_type, soap_action, self._limits, outline)
        alike = _alike(source, outline.first_in_body, headers)
        if alike is not None:
            if len(self._known) >= _KINDS:
                self._known = {}
            self._known[key] = alike
        return headers

    def _recognise(self, source: bytes, known: _Alike) -> Headers | None:
        """The headers of ``source``, which begins as they do, if all of it is alike."""
        position = len(known.before)
        found: dict[bytes, str] = {}
        for name, match, following in known.fields:
            text = match(source, position)
            if text is None or not source.startswith(following, end := text.end()):
                return None
            found[name] = text[1].decode("ascii")
            position = end + len(following)
        sequence = known.headers.sequence
        identifier, number = found[b"Identifier"], int(found[b"MessageNumber"])
        if number == 0 or position > self._longest or len(identifier) > self._limits.identifier_bytes:
            return None
        assert sequence is not None
        return known.headers._replace(
            sequence=SequenceHeader(identifier, number, sequence.last), message_id=found.get(b"MessageID")
        )


def _alike(source: bytes, first_in_body: int | None, headers: Headers) -> _Alike | None:
    """The parts of a message to remember; ``None`` where its three values are not three plain texts, each in the only
    element of its name."""
    if first_in_body is None or headers.sequence is None or headers.offset:
        return None
    start_tag = _START_TAG.match(source, first_in_body)
    if start_tag is None or start_tag.end() > _LONGEST:
        return None
    head = source[: start_tag.end()]
    if not head.isascii() or b"<!" in head or b"<?" in head[1:]:
        return None
    found = list(_FIELD.finditer(head))
    names = [field[1] for field in found]
    if len(set(names)) < len(names) or len(names) != len(_ANY.findall(head)):
        return None
    meant = {b"MessageNumber": str(headers.sequence.number), b"Identifier": headers.sequence.identifier}
    if headers.message_id is not None:
        meant[b"MessageID"] = headers.message_id
    if set(names) != set(meant):
        return None
    after: list[tuple[bytes, Match, bytes]] = []
    ends = [field.start(2) for field in found[1:]] + [len(head)]
    for field, end in zip(found, ends, strict=True):
        text = _VALUE[field[1]].fullmatch(field[2])
        if text is None or text[1].decode("ascii") != meant[field[1]]:
            return None
        after.append((field[1], _VALUE[field[1]].match, head[field.end(2) : end]))
    return _Alike(headers._replace(alike=object()), head[: found[0].start(2)], after)
