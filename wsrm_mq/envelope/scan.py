"""The scan of a request for its RM and addressing headers, without its body.

Reading is lenient where stacks are known to err and strict where the meaning would be in doubt (conformance §6). A
message without RM is the wrapped application's business: no rule but those of ``outline`` is applied to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar
from xml.etree.ElementTree import Element

from wsrm_mq.envelope.headers import Headers, Reader, RMBody, read_make_connection
from wsrm_mq.envelope.lexical import WHITE_SPACE, is_true, parse_identifier, simple_text
from wsrm_mq.envelope.outline import NAME_SEPARATOR, FaultPass, Outline, feed, read_outline, split_name
from wsrm_mq.envelope.stream import Limits, Source, envelope_in, malformed, parse_content_type, pieces
from wsrm_mq.errors import EnvelopeError
from wsrm_mq.sequence.elements import AckRequested, SequenceAcknowledgement, SequenceFault, SequenceHeader
from wsrm_mq.sequence.faults import (
    ActionMismatch,
    ActionNotSupported,
    AddressingHeaderRequired,
    CreateSequenceRefused,
    Fault,
    InvalidAddressingHeader,
    MalformedMessage,
    NotUnderstood,
)
from wsrm_mq.versions import (
    ADDRESSING_VERSIONS,
    MAKE_CONNECTION,
    MAKE_CONNECTION_NAMESPACE,
    RM_OF_NAMESPACE,
    RM_VERSIONS,
    SOAP_VERSIONS,
    WSA_2004,
    WSA_2005,
    WSRM_1_1,
    AddressingVersion,
    RMVersion,
    SOAPVersion,
)

_ADDRESSING_HEADERS: Final = {
    f"{ns}{NAME_SEPARATOR}{local}": (version, local)
    for ns, version in ADDRESSING_VERSIONS.items()
    for local in ("Action", "MessageID", "To", "RelatesTo", "ReplyTo", "FaultTo", "From")
}
_RM_ACTIONS: Final = tuple((ns + "/", version) for ns, version in RM_OF_NAMESPACE.items())
_OURS: Final = frozenset((*SOAP_VERSIONS, *ADDRESSING_VERSIONS, *RM_OF_NAMESPACE))

_SOAP_1_1, _SOAP_1_2 = (f"{soap.namespace}{NAME_SEPARATOR}" for soap in SOAPVersion)
_ROLE: Final = {SOAPVersion.SOAP_1_1: f"{_SOAP_1_1}actor", SOAPVersion.SOAP_1_2: f"{_SOAP_1_2}role"}
_MUST_UNDERSTAND: Final = {
    SOAPVersion.SOAP_1_1: f"{_SOAP_1_1}mustUnderstand",
    SOAPVersion.SOAP_1_2: f"{_SOAP_1_2}mustUnderstand",
}
_OUR_ROLES: Final = frozenset(
    (
        "",
        "http://schemas.xmlsoap.org/soap/actor/next",
        "http://www.w3.org/2003/05/soap-envelope/role/next",
        "http://www.w3.org/2003/05/soap-envelope/role/ultimateReceiver",
    )
)


class Seen:
    """The header blocks for this role, by their names. Nothing is judged here.

    ``addressings`` and ``rms`` are the versions met, each once, in order: a valid message has at most one of each.
    ``addressing_blocks`` holds the first block of each local name, in any version, and of RelatesTo the first that
    means a reply; ``repeated`` names the others. ``mandatory`` are blocks with mustUnderstand outside the namespaces of
    SOAP, WS-Addressing and WS-RM, by (namespace, local name); ``unknown`` are blocks within SOAP's and WS-Addressing's
    that no specification defines as a header of a request.
    """

    __slots__ = (
        "action",
        "addressing_blocks",
        "addressings",
        "body_name",
        "mandatory",
        "outline",
        "repeated",
        "rm_blocks",
        "rms",
        "soap",
        "unknown",
    )

    def __init__(self, outline: Outline, soap: SOAPVersion) -> None:
        self.outline = outline
        self.soap = soap
        self.addressings: list[AddressingVersion] = []
        self.addressing_blocks: dict[str, Element] = {}
        self.repeated: list[str] = []
        self.rms: list[RMVersion] = []
        self.rm_blocks: dict[str, list[Element]] = {}
        self.mandatory: list[tuple[str, str]] = []
        self.unknown: list[tuple[str, str]] = []
        role = _ROLE[soap]
        for block in outline.blocks:
            if block.get(role, "").strip(WHITE_SPACE) in _OUR_ROLES:
                addressing = _ADDRESSING_HEADERS.get(block.tag)
                if addressing is not None:
                    self._see_addressing(block, *addressing)
                else:
                    self._see(block)
        self.action = self.text("Action")
        for prefix, version in _RM_ACTIONS:
            if self.action is not None and self.action.startswith(prefix):
                self._meet(version)
        self.body_name: tuple[str, str] | None = None
        if outline.body is not None and len(outline.body):
            self.body_name = name = split_name(outline.body[0].tag)
            if name[0] in RM_OF_NAMESPACE:
                self._meet(RM_OF_NAMESPACE[name[0]])

    def text(self, local: str) -> str | None:
        """The value of a simple addressing header; ``None`` if it is missing or empty."""
        block = self.addressing_blocks.get(local)
        return simple_text(block) or None if block is not None else None

    def is_mandatory(self, block: Element) -> bool:
        return is_true(block.get(_MUST_UNDERSTAND[self.soap]))

    def _see_addressing(self, block: Element, version: AddressingVersion, local: str) -> None:
        if version not in self.addressings:
            self.addressings.append(version)
        if local not in self.addressing_blocks:
            if local != "RelatesTo" or _is_reply(block):
                self.addressing_blocks[local] = block
        elif local != "RelatesTo":
            self.repeated.append(local)

    def _see(self, block: Element) -> None:
        namespace, local = name = split_name(block.tag)
        version = RM_VERSIONS.get(namespace)
        if version is not None:
            self._meet(version)
            self.rm_blocks.setdefault(local, []).append(block)
        elif self.is_mandatory(block):
            (self.unknown if namespace in _OURS else self.mandatory).append(name)

    def _meet(self, version: RMVersion) -> None:
        if version not in self.rms:
            self.rms.append(version)


def _is_reply(block: Element) -> bool:
    """RelatesTo says so unless told otherwise, by a URI in WS-Addressing 1.0 and a QName in 2004/08."""
    return block.get("RelationshipType", "reply").strip(WHITE_SPACE).lower().endswith("reply")


# The rules of an RM message that need more than one header, in the order in which they apply (conformance §6).
#
# Each rule is a function of the seen headers, the action that HTTP names and the limits; it answers the fault, or
# ``None``.

_TO_REQUIRED: Final = (WSA_2004,)
_REPLY_TO_REQUIRED: Final = (WSA_2004,)
_HTTP_ACTION_BINDS: Final = (WSA_2005,)

_OF_A_CREATE: Final = frozenset(("UsesSequenceSTR", "UsesSequenceSSL"))
"""Headers that bind a sequence to a token or a TLS session where it is created, and are ignored elsewhere. A
CreateSequence with one is refused."""
_HEADER_BLOCKS: Final = frozenset(("Sequence", "AckRequested", "SequenceAcknowledgement", "SequenceFault"))
_NOTHING: Final = ("", "")
_FAULT: Final = ("", "Fault")
"""In the namespace of the envelope."""


def _bodies(rm: RMVersion) -> dict[str, tuple[str, str]]:
    """The element that Body has to hold under each RM action, as (namespace, local name)."""
    elements = ["CreateSequence", "CreateSequenceResponse", "TerminateSequence"]
    if rm.has_close:
        elements += ["CloseSequence", "CloseSequenceResponse", "TerminateSequenceResponse"]
    bodies = {local: (rm.namespace, local) for local in elements}
    bodies |= {"SequenceAcknowledgement": _NOTHING, "AckRequested": _NOTHING}
    if rm.has_last_message:
        bodies["LastMessage"] = _NOTHING
    if rm.own_fault_action:
        bodies["fault"] = _FAULT
    return {rm.action(local): body for local, body in bodies.items()}


_BODIES: Final = {action: body for rm in RM_VERSIONS.values() for action, body in _bodies(rm).items()} | {
    MAKE_CONNECTION.action: (MAKE_CONNECTION.namespace, "MakeConnection"),
    MAKE_CONNECTION.fault_action: _FAULT,
}
_CREATE: Final = frozenset(rm.action("CreateSequence") for rm in RM_VERSIONS.values())
_ASKS_FOR_RESPONSE: Final = _CREATE | {
    rm.action(local) for rm in RM_VERSIONS.values() if rm.has_close for local in ("CloseSequence", "TerminateSequence")
}


def _versions_go_together(seen: Seen, _http_action: str | None, _limits: Limits) -> Fault | None:
    if len(seen.rms) > 1:
        return MalformedMessage(
            "The message mixes the namespaces of WS-ReliableMessaging 1.0 and 1.1 (WS-MakeConnection goes with 1.1)."
        )
    if len(seen.addressings) > 1:
        return InvalidAddressingHeader(
            "The message mixes WS-Addressing 2004/08 and 1.0.", header="Action", detail_code="InvalidCardinality"
        )
    rm = seen.rms[0]
    for addressing in seen.addressings:
        if addressing not in rm.addressings:
            allowed = " or ".join(version.label for version in rm.addressings)
            return MalformedMessage(
                f"WS-ReliableMessaging {rm.label} needs WS-Addressing {allowed}; this message uses {addressing.label}."
            )
    return None


def _addressing_is_complete(seen: Seen, _http_action: str | None, limits: Limits) -> Fault | None:
    for header in seen.repeated:
        return InvalidAddressingHeader(
            f"The message has more than one {header} header.", header=header, detail_code="InvalidCardinality"
        )
    blocks, addressings = seen.addressing_blocks, seen.addressings
    missing = None
    if seen.action is None:
        missing = "Action"
    elif addressings[0] in _TO_REQUIRED and not seen.text("To"):
        missing = "To"
    elif limits.strict_addressing:
        if seen.action in _ASKS_FOR_RESPONSE and not seen.text("MessageID"):
            missing = "MessageID"
        elif seen.action in _CREATE and addressings[0] in _REPLY_TO_REQUIRED and "ReplyTo" not in blocks:
            missing = "ReplyTo"
    if missing is None:
        return None
    return AddressingHeaderRequired(f"The addressing header {missing} is missing.", header=missing)


def _http_action_agrees(seen: Seen, http_action: str | None, _limits: Limits) -> Fault | None:
    """An empty one says nothing; whether it is quoted does not matter."""
    if http_action and seen.addressings[0] in _HTTP_ACTION_BINDS:
        http_action = http_action.strip(' \t"')
        if http_action and http_action != seen.action:
            return ActionMismatch("The action of the HTTP request differs from wsa:Action.")
    return None


def _blocks_belong_into_header(seen: Seen, _http_action: str | None, _limits: Limits) -> Fault | None:
    """An RM element of Body does nothing as a header; an unknown block counts if it is mandatory."""
    blocks, rm = seen.rm_blocks, seen.rms[0]
    if seen.unknown:
        return NotUnderstood("A mandatory header block was not understood.", headers=tuple(seen.unknown))
    if len(blocks.get("Sequence", ())) > 1:
        return MalformedMessage("The message has more than one Sequence header.")
    known = _HEADER_BLOCKS | _OF_A_CREATE if seen.action in _CREATE else _HEADER_BLOCKS
    for local in blocks.keys() - known:
        if _BODIES.get(rm.action(local)) == (rm.namespace, local):
            return MalformedMessage(f"{local} belongs into the Body.")
        if any(map(seen.is_mandatory, blocks[local])):
            name = rm.namespace, local
            return NotUnderstood("A mandatory header block was not understood.", headers=(name,))
    return None


def _body_fits_action(seen: Seen, _http_action: str | None, _limits: Limits) -> Fault | None:
    action, body, rm = seen.action or "", seen.body_name, seen.rms[0]
    expected = _BODIES.get(action)
    if expected is None:
        for specification, namespace in _specifications(rm):
            if action.startswith(f"{namespace}/"):
                return ActionNotSupported(f"{specification} has no such action.")
            if body is not None and body[0] == namespace:
                return ActionNotSupported(f"The Body holds {body[1]}, but wsa:Action is not that of {body[1]}.")
        return None
    namespace, local = expected
    if body == ((namespace or seen.soap.namespace, local) if local else None):
        return None
    reason = f"The Body does not hold what wsa:Action says: {local or 'nothing'}."
    return CreateSequenceRefused(reason) if action in _CREATE else MalformedMessage(reason)


def _specifications(rm: RMVersion) -> tuple[tuple[str, str], ...]:
    """Name and namespace of each that a message of this version may speak."""
    own = (f"WS-ReliableMessaging {rm.label}", rm.namespace)
    return (own,) if rm.make_connection is None else (own, ("WS-MakeConnection", rm.make_connection.namespace))


_RULES: Final[tuple[Callable[[Seen, str | None, Limits], Fault | None], ...]] = (
    _versions_go_together,
    _addressing_is_complete,
    _http_action_agrees,
    _blocks_belong_into_header,
    _body_fits_action,
)


def first_fault(seen: Seen, http_action: str | None, limits: Limits) -> Fault | None:
    """The fault of the first rule that an RM message breaks. ``http_action`` is as it was sent."""
    for rule in _RULES:
        fault = rule(seen, http_action, limits)
        if fault is not None:
            return fault
    return None


# The reading of a fault that arrives: its code and the identifier of its sequence are found in any of the places where
# stacks put them (F-019). It is a second pass over the envelope, which a request that is no fault does not pay for.


_CODE_PLACES: Final = frozenset((("SequenceFault", "FaultCode"), ("Fault", "faultcode"), ("Subcode", "Value")))
"""(parent, element), by local name."""
_SPELLINGS: Final = {"WsrmRequired": "WSRMRequired"}
"""The codes that WCF spells in its own way (F-020)."""
_FAULTS: Final = frozenset(("SequenceFault", "Fault"))


def read_fault(
    source: Source, outline: Outline, seen: Seen, charset: str | None, limits: Limits
) -> tuple[RMVersion, SequenceFault] | None:
    """The fault of WS-RM or WS-MakeConnection in an envelope whose ``outline`` was read from ``source``; ``None`` for
    any other fault, which is the application's."""
    if isinstance(source, bytes | bytearray | memoryview):
        envelope = bytes(source[: limits.header_bytes])
    else:
        head = b"".join(outline.read)
        envelope = head + b"".join(pieces(source, limits.header_bytes - len(head)))
    found = _ArrivedFault(envelope, charset)
    if found.code is not None:
        namespace, local = found.code
        return RM_OF_NAMESPACE[namespace], SequenceFault(local, _usable(found.identifier, limits))
    is_action_ours = any(seen.action == f"{namespace}/fault" for namespace in RM_OF_NAMESPACE)
    is_ours = "SequenceFault" in seen.rm_blocks or is_action_ours
    if not is_ours:
        return None
    return seen.rms[0] if seen.rms else WSRM_1_1, SequenceFault("", _usable(found.identifier, limits))


def _usable(identifier: str | None, limits: Limits) -> str | None:
    try:
        return parse_identifier(identifier, limits.identifier_bytes) if identifier else None
    except ValueError:
        return None


class _ArrivedFault(FaultPass):
    """``code`` is (namespace, local name) of the first code in a namespace of WS-RM or WS-MakeConnection,
    ``identifier`` the first of WS-RM inside the fault. An envelope that breaks off is read as far as it goes."""

    def __init__(self, envelope: bytes, charset: str | None) -> None:
        self.code: tuple[str, str] | None = None
        self.identifier: str | None = None
        super().__init__(envelope[:256], charset)
        feed(self.parser, envelope)

    def ended(self) -> None:
        path = self.local_path
        namespace, local = split_name(self.path[-1])
        if self.code is None and tuple(path[-2:]) in _CODE_PLACES:
            declared, _prefix, code = self.said_name
            self.code = (declared, _SPELLINGS.get(code, code)) if declared in RM_OF_NAMESPACE else None
        elif self.identifier is None and local == "Identifier" and namespace in RM_VERSIONS:
            self.identifier = self.said if _FAULTS.intersection(path) else None


# ``scan``: the RM and addressing headers of a request, without its body.


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


# ``Scanner``: ``scan`` with a memory for messages that are alike.
#
# A source writes the header section of all its messages alike, but for three values: the sequence's Identifier, the
# MessageNumber and the MessageID. Of a message that was scanned, the bytes around these values are kept. A message that
# has the same bytes there is the same XML with other text in three elements, so its headers are known without parsing.
#
# The equality is of bytes, from the first one to the start tag of Body's first child: nothing that ``scan`` looks at is
# taken on trust. Whatever does not fit goes to ``scan``, and so does every doubt. It gives 45 of about 55 µs a message.


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
