"""The description of bytes from the wire in words, with the mistakes in them.

The scanner is the one that serves: a destination refuses the same messages in the same words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from lxml import etree

from wsrm_mq.destination.answers import Answer
from wsrm_mq.destination.commits import check_selection, is_without_effect
from wsrm_mq.destination.coverage import Coverage
from wsrm_mq.destination.request_body import told_length
from wsrm_mq.envelope.headers import Headers
from wsrm_mq.envelope.scan import scan
from wsrm_mq.envelope.stream import (
    Limits,
    check_closed,
    content_coding,
    envelope_in,
    expand,
    parse_content_type,
    pieces,
)
from wsrm_mq.errors import EnvelopeError
from wsrm_mq.sequence.elements import CloseSequence, CreateSequence, MakeConnection, SequenceFault, TerminateSequence
from wsrm_mq.versions import (
    ADDRESSING_VERSIONS,
    RM_OF_NAMESPACE,
    RM_VERSIONS,
    SOAP_VERSIONS,
    AddressingVersion,
    RMVersion,
    SOAPVersion,
)

# HTTP messages in a file: the bytes of a connection, a recording, or an envelope alone. Mistakes are reported, and the
# rest is read all the same.


_REQUEST: Final = re.compile(rb"([A-Z]{3,20}) (\S{1,8000}) HTTP/\d(?:\.\d)?\r?\n")
_RESPONSE: Final = re.compile(rb"HTTP/\d(?:\.\d)? (\d{3})(?: [^\r\n]{0,500})?\r?\n")
_NEXT: Final = re.compile(
    rb"^(?:[A-Z]{3,20} \S{1,8000} HTTP/\d(?:\.\d)?|HTTP/\d(?:\.\d)? \d{3}(?: [^\r\n]{0,500})?)\r?$", re.M
)
_HEAD_END: Final = re.compile(rb"^\r?\n", re.M)
_BETWEEN: Final = re.compile(rb"(?:\s+|#[^\n]*(?:\n|\Z))*")
"""White space, and comment lines of a recorder."""
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,12})[ \t]*(?:;[^\r\n]{0,1000})?\r?\n")
_LINE_END: Final = re.compile(rb"\r?\n")
_BOUNDARY: Final = re.compile(rb"--([!-~]{1,200})[ \t]*\r?\n")
_GZIP: Final = b"\x1f\x8b"
_ENVELOPE: Final = re.compile(rb"(?:<\?xml[^<>]{1,200}\?>\s{0,20})?<((?:[A-Za-z_][\w.-]{0,60}:)?Envelope)[\s>]")
_UNREADABLE: Final = {
    b"\x16\x03": "These are bytes of TLS: record behind what ends it, or have the client log its messages.",
    b"PRI * HTTP/2.0": "This is HTTP/2: record what the client says in HTTP/1.1.",
    **dict.fromkeys(
        (b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\xc3\xd4", b"\x4d\x3c\xb2\xa1", b"\xa1\xb2\x3c\x4d", b"\x0a\x0d\x0d\x0a"),
        "This is a recording of packets: write what one side has sent to a file (tcpflow, or Wireshark's Follow TCP "
        "Stream, shown as raw), and decode that.",
    ),
}
"""Recordings of another kind, by their first bytes."""
_BEFORE_XML: Final = b"\xef\xbb\xbf \t\r\n"
_MOST: Final = 100
"""The most messages of one file."""
_FIELDS_READ: Final = 200
_LONGEST: Final = 8_192
"""The most bytes of a field."""


@dataclass
class RawMessage:
    """A request or a response; neither where an envelope lies in the file alone. ``body`` is expanded."""

    start: str = ""
    method: str = ""
    target: str = ""
    status: int | None = None
    fields: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    problems: list[str] = field(default_factory=list)

    def get(self, name: str) -> str | None:
        """The value of a field; of one that comes several times, all of them."""
        values = [value for known, value in self.fields if known.lower() == name]
        return ", ".join(values) if values else None


def raw_messages(content: bytes, limits: Limits) -> Iterator[RawMessage]:
    """Read the messages in ``content``, at least one. A compressed file is expanded, and each message when it is asked
    for."""
    if content.startswith(_GZIP):
        packed = RawMessage(fields=[("Content-Encoding", "gzip")], body=content)
        _expand(packed, limits)
        if packed.problems:
            yield packed
            return
        content = packed.body
    position = _after_blanks(content, 0)
    begun = _started(content, position)
    if begun is None or begun.method == "PRI":
        yield from _without_http(content)
        return
    count = 0
    while begun is not None:
        count += 1
        position = _read_head(begun, content, content.index(b"\n", position) + 1)
        position = _after_blanks(content, _read_body(begun, content, position))
        following = _started(content, position) if count < _MOST else None
        if following is None and position < len(content):
            what = "no message of HTTP" if count < _MOST else f"not looked at: {_MOST} messages are"
            begun.problems.append(f"Behind it are {len(content) - position} bytes that are {what}.")
        _expand(begun, limits)
        yield begun
        begun = following


def _after_blanks(content: bytes, position: int) -> int:
    between = _BETWEEN.match(content, position)
    return between.end() if between is not None else position


def _started(content: bytes, position: int) -> RawMessage | None:
    request, response = _REQUEST.match(content, position), _RESPONSE.match(content, position)
    if request is not None:
        return RawMessage(_text(request[0]), _text(request[1]), _text(request[2]))
    return RawMessage(_text(response[0]), status=int(response[1])) if response is not None else None


def _without_http(content: bytes) -> Iterator[RawMessage]:
    """No start line: an envelope, or one with attachments, whose boundary is its first line; or the log of a client,
    with envelopes in it."""
    opening = _BOUNDARY.match(content)
    if opening is not None:
        yield RawMessage(fields=[("Content-Type", f'multipart/related; boundary="{_text(opening[1])}"')], body=content)
        return
    found = [] if content.lstrip(_BEFORE_XML).startswith(b"<") else list(islice(_in_text(content), _MOST))
    problems = [told for first, told in _UNREADABLE.items() if content.startswith(first)]
    yield from found or [RawMessage(body=content, problems=problems)]


def _in_text(content: bytes) -> Iterator[RawMessage]:
    """The envelopes in a text, each to its end tag; to the end of the text, where there is none."""
    position = 0
    while (start := _ENVELOPE.search(content, position)) is not None:
        end_tag = b"</" + start[1] + b">"
        end = content.find(end_tag, start.end())
        position = end + len(end_tag) if end >= 0 else len(content)
        yield RawMessage(body=content[start.start() : position])


def _read_head(message: RawMessage, content: bytes, position: int) -> int:
    end = _HEAD_END.search(content, position)
    lines = content[position : end.start() if end is not None else len(content)].split(b"\n", _FIELDS_READ)
    if len(lines) > _FIELDS_READ:
        message.problems.append(f"The header section has more than {_FIELDS_READ} lines; the others are not looked at.")
    for line in lines[:_FIELDS_READ]:
        name, colon, value = _text(line[:_LONGEST]).partition(":")
        if line[:1] in (b" ", b"\t") and message.fields:
            known, before = message.fields[-1]
            message.fields[-1] = known, f"{before} {_text(line[:_LONGEST]).strip()}"
        elif colon and name and name == name.strip():
            message.fields.append((name, value.strip()))
        elif line.strip():
            message.problems.append(f"A line of the header section is no field: {_text(line)[:60]!r}.")
    if end is None and (message.status is None or message.get("content-length") not in (None, "0")):
        message.problems.append("The header section of HTTP does not end: there is no empty line.")
    return end.end() if end is not None else len(content)


def _read_body(message: RawMessage, content: bytes, position: int) -> int:
    """Fill in the body; answers where it ends."""
    field = message.get("content-length")
    length = told_length({"CONTENT_LENGTH": field})
    if "chunked" in (message.get("transfer-encoding") or "").lower():
        if field is not None:
            message.problems.append("Both Content-Length and Transfer-Encoding are there; the length does not count.")
        if _CHUNK.match(content, position) is not None:
            return _read_chunks(message, content, position)
        message.problems.append("It says that it is chunked, and is not; it may have been saved without its chunks.")
    elif length is not None:
        return _read_counted(message, content, position, length)
    elif field is not None:
        message.problems.append(f"Content-Length is {field[:30]!r}, which is no number.")
    following = _NEXT.search(content, position)
    end = following.start() if following is not None else len(content)
    message.body = content[position:end]
    if message.method and field is None and message.body.strip():
        message.problems.append("The request has a body and no Content-Length.")
    return end


def _read_counted(message: RawMessage, content: bytes, position: int, length: int) -> int:
    message.body = content[position : position + length]
    if len(message.body) < length:
        message.problems.append(f"The body breaks off: {len(message.body)} of {length} bytes are there.")
    return position + len(message.body)


def _read_chunks(message: RawMessage, content: bytes, position: int) -> int:
    pieces = []
    while (opening := _CHUNK.match(content, position)) is not None:
        size = int(opening[1], 16)
        piece = content[opening.end() : opening.end() + size]
        pieces.append(piece)
        position = opening.end() + len(piece)
        line_end = _LINE_END.match(content, position)
        position = line_end.end() if line_end is not None else position
        if size == 0 or len(piece) < size:
            break
    message.body = b"".join(pieces)
    if opening is None or int(opening[1], 16):
        message.problems.append(f"The chunked body breaks off after {len(message.body)} bytes.")
    return position


def _expand(message: RawMessage, limits: Limits) -> None:
    coding = content_coding(message.get("content-encoding") or "")
    if not coding or not message.body:
        return
    if coding != "gzip":
        message.problems.append(f"Content-Encoding {coding[:30]!r} is not expanded here; gzip is.")
        return
    try:
        message.body = expand(message.body, limits).read()
    except EnvelopeError as error:
        message.problems.append(str(error))


def _text(line: bytes) -> str:
    return line.decode("latin-1").rstrip("\r\n")


# The elements of an envelope that are of the protocol, as facts: name and value.

_TOLD: Final = frozenset((*ADDRESSING_VERSIONS, *RM_OF_NAMESPACE, *SOAP_VERSIONS))
"""Namespaces whose elements are taken apart. Elements of others may be secret, for example those of WS-Security."""
_FACTS: Final = 50
_LENGTH: Final = 1_000
"""The most characters of a value that are told."""
_DEPTH: Final = 12
_WORD: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the envelope, from 1 on."""

    line: int
    column: int | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """A header block, or the first child of Body."""

    namespace: str
    name: str
    line: int
    must_understand: bool
    facts: tuple[tuple[str, str], ...] = ()
    """The path and the value of each text in an element of the protocol's namespaces."""


def parsed(envelope: bytes, charset: str | None) -> tuple[Any, list[tuple[str, Position]]]:
    """Parse an envelope: its root, ``None`` where there is none, and the problems of the XML. XML that is not
    well-formed is read as far as possible."""
    try:
        return etree.fromstring(envelope, _parser(charset)), []
    except etree.XMLSyntaxError as error:
        line, column = error.position
        what = (error.msg or "there is none").partition(", line ")[0]
        problem = f"The XML cannot be read: {what}.", Position(max(line, 1), column)
    try:
        return etree.fromstring(envelope, _parser(charset, recover=True)), [problem]
    except etree.XMLSyntaxError:
        return None, [problem]


def _parser(charset: str | None, *, recover: bool = False) -> Any:
    rules: dict[str, Any] = {"resolve_entities": False, "no_network": True, "load_dtd": False, "recover": recover}
    try:
        return etree.XMLParser(encoding=charset, **rules)
    except LookupError:
        return etree.XMLParser(**rules)


def elements(parent: Any) -> list[Any]:
    """The child elements; comments and the like are left out."""
    return [child for child in parent if isinstance(child.tag, str)]


def _name_of(element: Any) -> tuple[str, str]:
    """(namespace, local name); a prefix that is not declared stays in the name."""
    namespace, _, local = element.tag.rpartition("}")
    return namespace.removeprefix("{"), local


def _place_of(root: Any, reason: str) -> Position | None:
    """Find the place of the first element of the protocol that ``reason`` names."""
    named = set(_WORD.findall(reason))
    for element in root.iter(etree.Element) if root is not None else ():
        namespace, name = _name_of(element)
        if name in named and namespace in _TOLD and element.sourceline:
            return Position(element.sourceline)
    return None


def _block_of(element: Any) -> Block:
    namespace, name = _name_of(element)
    mandatory = any(element.get(f"{{{soap}}}mustUnderstand", "").strip() in ("1", "true") for soap in SOAP_VERSIONS)
    facts = tuple(_facts(element)) if namespace in _TOLD else ()
    return Block(namespace, name, element.sourceline or 0, mandatory, facts)


def _facts(element: Any) -> Iterator[tuple[str, str]]:
    for count, (path, leaf) in enumerate(_leaves(element, ())):
        if count == _FACTS:
            yield "…", "and more"
            return
        lower, upper = leaf.get("Lower"), leaf.get("Upper")
        text = f"{lower}–{upper}" if lower is not None or upper is not None else (leaf.text or "").strip()
        yield "/".join(path), text[:_LENGTH]


def _leaves(element: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    children = elements(element)
    if not children or len(path) >= _DEPTH:
        yield path, element
    for child in children if len(path) < _DEPTH else ():
        yield from _leaves(child, (*path, _name_of(child)[1]))


_LIMITS: Final = Limits()
_COVERAGE: Final = Coverage(None, only_soap=True)
_BLOCKS: Final = 100
_SECURITY: Final = ("UsesSequenceSTR", "UsesSequenceSSL")
_NOTHING_TO_DO: Final = "The message is one of WS-ReliableMessaging, but carries nothing to act on."


@dataclass(frozen=True, slots=True)
class Problem:
    """``at`` is a place in the envelope, ``None`` for a problem of HTTP or of the whole message."""

    text: str
    at: Position | None = None


@dataclass(frozen=True, slots=True)
class Versions:
    soap: str | None = None
    addressing: str | None = None
    rm: str | None = None


@dataclass
class Decoded:
    """One message of a file. ``receiver`` is the reaction of a destination, empty for a response."""

    raw: RawMessage
    """The HTTP message without its body."""
    size: int
    """Bytes of the body, expanded."""
    what: str = ""
    versions: Versions = Versions()
    blocks: list[Block] = field(default_factory=list)
    body: Block | None = None
    receiver: str = ""
    problems: list[Problem] = field(default_factory=list)


def decoded(content: bytes) -> Iterator[Decoded]:
    """The messages in ``content``: any bytes at all, at least one message."""
    for raw in raw_messages(content, _LIMITS):
        told = _decoded(raw)
        raw.body = b""  # many may follow, and expanded each is large
        yield told


def _decoded(raw: RawMessage) -> Decoded:
    told = Decoded(raw, len(raw.body), problems=[Problem(text) for text in raw.problems])
    if not raw.body.strip():
        told.what = _empty(raw)
        if raw.status is None:
            told.problems.append(Problem("There is no envelope."))
        return told
    envelope, content_type = _envelope(told)
    root, wrong = parsed(envelope, parse_content_type(content_type).charset)
    told.problems += [Problem(text, at) for text, at in wrong]
    soap = _read_tree(told, root)
    refusal, headers = _scanned(raw, content_type or (soap.media_type if soap is not None else ""))
    if headers is not None:
        told.versions = Versions(headers.soap.label, _label(headers.addressing), _label(headers.rm))
        told.problems += [Problem(reason, _place_of(root, reason)) for reason in headers.ignored]
    if refusal is not None and not (wrong and "well-formed" in str(refusal)):
        told.problems.append(Problem(str(refusal), _place_of(root, str(refusal))))
    told.what = _what_it_is(soap, told.blocks, told.body)
    told.problems += [Problem(text, Position(one.line)) for one in told.blocks for text in _contradicts(one)]
    if raw.status is None:
        told.receiver = _receiver(told, refusal, headers)
    return told


def _label(version: AddressingVersion | RMVersion | None) -> str | None:
    return version.label if version is not None else None


def _empty(raw: RawMessage) -> str:
    if raw.status is None:
        return "A request without a body." if raw.start else "Nothing: the file is empty."
    return "A response without a body: nothing is acknowledged by it."


def _envelope(told: Decoded) -> tuple[bytes, str]:
    """The envelope, alone or the root part of several; and its Content-Type."""
    raw = told.raw
    content_type = raw.get("content-type") or ""
    content = parse_content_type(content_type)
    if not content.is_multipart:
        return raw.body, content_type
    try:
        part = envelope_in(raw.body, content_type, _LIMITS)
        envelope = b"".join(pieces(part.source, len(raw.body)))
        check_closed(raw.body, content)
    except EnvelopeError as error:
        told.problems.append(Problem(str(error)))
        return raw.body, content_type
    charset = part.content.parameters.get("charset", "")
    return envelope, f"{part.content.media_type}; charset={charset}" if charset else part.content.media_type


def _read_tree(told: Decoded, root: Any) -> SOAPVersion | None:
    """Fill in the contents of the envelope, whether a destination would take it or not."""
    if root is None:
        return None
    namespace, name = _name_of(root)
    soap = SOAP_VERSIONS.get(namespace)
    if soap is None or name != "Envelope":
        told.body = _block_of(root)
        return None
    told.versions = Versions(soap.label)
    for child in elements(root):
        if _name_of(child) == (namespace, "Header"):
            told.blocks += [_block_of(block) for block in elements(child)[:_BLOCKS]]
        elif _name_of(child) == (namespace, "Body") and told.body is None:
            first = elements(child)[:1]
            told.body = _block_of(first[0]) if first else None
    told.problems += [Problem(text) for text in _unsuited(told.raw, soap)]
    return soap


def _unsuited(raw: RawMessage, soap: SOAPVersion) -> Iterator[str]:
    """Problems of an HTTP header that contradicts the envelope."""
    content = parse_content_type(raw.get("content-type") or "")
    other = next(version for version in SOAPVersion if version is not soap)
    if content.media_type == other.media_type:
        yield (
            f"Content-Type is {content.media_type}, that of SOAP {other.label}; the envelope is SOAP {soap.label}, "
            f"whose is {soap.media_type}."
        )


def _scanned(raw: RawMessage, content_type: str) -> tuple[EnvelopeError | None, Headers | None]:
    """Scan a message as the destination does: the refusal, and the headers as far as they were read."""
    try:
        headers = scan(raw.body, raw.get("content-type") or content_type, raw.get("soapaction"), _LIMITS)
        if isinstance(headers.body, MakeConnection):
            check_selection(headers.body, headers)
        return None, headers
    except EnvelopeError as error:
        return error, error.context if isinstance(error.context, Headers) else None


def _contradicts(block: Block) -> Iterator[str]:
    """Problems of a block that a destination does not send or the schema forbids, and that is read all the same."""
    said = {path for path, _ in block.facts}
    if block.name == "SequenceAcknowledgement" and {"AcknowledgementRange", "None"} <= said:
        yield "SequenceAcknowledgement says None beside ranges; the ranges count."
    if block.name in _SECURITY and block.namespace in RM_OF_NAMESPACE:
        yield f"{block.name} is not offered: no sequence is bound to a token or a TLS session."


def _receiver(told: Decoded, refusal: EnvelopeError | None, headers: Headers | None) -> str:
    raw = told.raw
    if raw.start:
        business = _COVERAGE.business(_environ(raw))
        if isinstance(business, Answer):
            said = business.body.decode().strip()
            told.problems.append(Problem(said))
            return f"It answers {business.status}: {said}"
        coding = content_coding(raw.get("content-encoding") or "")
        if coding not in ("", "gzip"):
            return "It answers 415: it expands gzip, and no other Content-Encoding."
    if refusal is not None:
        return f"It answers with a fault ({refusal.fault.name}), and nothing is stored."
    if headers is not None and is_without_effect(headers):
        return "It answers an empty 202: the message names no sequence that is to be changed."
    if told.body is not None and told.body.namespace in RM_OF_NAMESPACE and told.body.name.endswith("Response"):
        return "It is for a source: a destination has no use for it, answers with a fault (Sender), and stores nothing."
    taken = _taken_as(headers) if headers is not None else None
    if taken is None:
        told.problems.append(Problem(_NOTHING_TO_DO))
        return "It answers with a fault (Sender), and nothing is stored."
    return taken


def _environ(raw: RawMessage) -> dict[str, Any]:
    path, _, _query = raw.target.partition("?")
    return {
        "REQUEST_METHOD": raw.method,
        "PATH_INFO": path if path.startswith("/") else f"/{path}",
        "CONTENT_TYPE": raw.get("content-type") or "",
        "CONTENT_LENGTH": str(len(raw.body)),
    }


# a sentence for a message, and one for the reaction of a destination

_BODIES: Final = {
    "CreateSequence": "It asks for a sequence.",
    "CreateSequenceResponse": "It gives the sequence that was asked for.",
    "CloseSequence": "It closes a sequence: no further message of it is to be taken.",
    "CloseSequenceResponse": "It confirms that a sequence is closed.",
    "TerminateSequence": "It ends a sequence.",
    "TerminateSequenceResponse": "It confirms that a sequence has ended.",
    "MakeConnection": "It asks for a message that waits for its sender.",
}
"""The sentence for a message, by the RM element in its Body."""
_ACTIONS: Final = {
    "SequenceAcknowledgement": "It acknowledges messages, and carries none itself.",
    "AckRequested": "It asks what has arrived, and carries no message itself.",
    "LastMessage": "It says which message of a sequence was the last.",
}
"""The sentence for a message with an empty Body, by the end of its RM action."""

_TAKEN: Final = {
    CreateSequence: "It opens a sequence and answers CreateSequenceResponse, where the addresses in it can be reached.",
    CloseSequence: "It takes no further message of the sequence, and answers CloseSequenceResponse with the last "
    "acknowledgement; UnknownSequence, if it never opened the sequence for this sender.",
    TerminateSequence: "It ends the sequence, and acknowledges a last time; UnknownSequence, if it never opened the "
    "sequence for this sender.",
    MakeConnection: "It answers with a message that waits for the address, or with an empty 202.",
    SequenceFault: "It takes note of the fault, gives it to no service, and answers an empty 202.",
}
"""The reaction of a destination, by the element that the scanner found in Body."""


def _what_it_is(soap: SOAPVersion | None, blocks: Sequence[Block], body: Block | None) -> str:
    """Describe a message by its envelope, whether a destination would take it or not."""
    if soap is None:
        return f"XML that is no SOAP envelope: its root is {body.name}." if body is not None else "No XML."
    if body is not None and (body.namespace, body.name) == (soap.namespace, "Fault"):
        return _fault(blocks, body)
    if body is not None and body.namespace in RM_OF_NAMESPACE:
        return _BODIES.get(body.name, f"It holds {body.name}, which is no message of WS-ReliableMessaging.")
    sequence = next((one for one in blocks if one.namespace in RM_VERSIONS and one.name == "Sequence"), None)
    if sequence is not None:
        return _numbered(dict(sequence.facts))
    action = next((value for one in blocks if one.name == "Action" for _, value in one.facts), "")
    namespace, _, local = action.rpartition("/")
    if namespace in RM_VERSIONS and local in _ACTIONS:
        return _ACTIONS[local]
    return f"A message outside of any sequence; its Body holds {body.name if body is not None else 'nothing'}."


def _numbered(facts: Mapping[str, str]) -> str:
    number, identifier = facts.get("MessageNumber") or "without a number", facts.get("Identifier") or "without a name"
    return f"Message {number}{', the last one,' if 'LastMessage' in facts else ''} of the sequence {identifier}."


def _fault(blocks: Sequence[Block], body: Block) -> str:
    """SOAP 1.1 has the code of WS-ReliableMessaging in a header."""
    codes = [value for path, value in body.facts if path == "faultcode" or path.endswith("/Value")]
    codes += [
        value for one in blocks if one.name == "SequenceFault" for path, value in one.facts if path == "FaultCode"
    ]
    reasons = [value for path, value in body.facts if path == "faultstring" or path.endswith("/Text")]
    reason = f": {reasons[0]}" if reasons and reasons[0] else ""
    return f"A fault, {' / '.join(code.rpartition(':')[2] for code in codes) or 'without a code'}{reason}"


def _taken_as(headers: Headers) -> str | None:
    """Describe the reaction to a request whose headers can be read; ``None`` where it asks for nothing."""
    if isinstance(headers.body, CreateSequence) and headers.body.uses_security:
        return f"It answers CreateSequenceRefused: it offers no {headers.body.uses_security}."
    told = _TAKEN.get(type(headers.body)) if headers.body is not None else None
    if told is not None:
        return told
    if headers.is_protocol_fault:
        return _TAKEN[SequenceFault]
    if headers.sequence is not None:
        return (
            "It stores the message, then acknowledges it, and delivers it once, in its turn; what it has already it "
            "acknowledges, and delivers no second time. UnknownSequence, if it never opened the sequence for this "
            "sender."
        )
    if headers.is_plain:
        return "It gives the message to the service as it is, unreliably; WSRMRequired, where require_rm is set."
    if headers.ack_requested:
        return "It answers with an acknowledgement of what has arrived, the service gets nothing."
    if headers.acknowledgements:
        return (
            "It takes note of what is acknowledged, and answers an empty 202; UnknownSequence, if it never sent in the "
            "sequence."
        )
    return None
