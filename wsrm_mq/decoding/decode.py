"""The description of bytes from the wire in words, with the mistakes in them.

The scanner is the one that serves: a destination refuses the same messages in the same words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from lxml import etree

from wsrm_mq.decoding.raw_http import RawMessage, raw_messages
from wsrm_mq.destination.answers import Answer
from wsrm_mq.destination.commits import check_selection, is_without_effect
from wsrm_mq.destination.coverage import Coverage
from wsrm_mq.envelope.headers import Headers
from wsrm_mq.envelope.scan import scan
from wsrm_mq.envelope.stream import (
    Limits,
    check_closed,
    content_coding,
    envelope_in,
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
    other = next(version for version in SOAPVersion if version is not soap)
    if parse_content_type(told.raw.get("content-type") or "").media_type == other.media_type:
        text = f"Content-Type is {other.media_type}, that of SOAP {other.label}; the envelope is SOAP {soap.label}"
        told.problems.append(Problem(f"{text}, whose is {soap.media_type}."))
    return soap


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
