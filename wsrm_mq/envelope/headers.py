"""The headers that a scan finds, and the reading of their elements."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

from wsrm_mq.envelope.lexical import (
    escape_attribute,
    is_absolute_uri,
    parse_duration,
    parse_identifier,
    parse_unsigned,
    simple_text,
)
from wsrm_mq.envelope.outline import NAME_SEPARATOR, Document, Outline, Span, locate, split_name
from wsrm_mq.envelope.stream import Limits, malformed
from wsrm_mq.errors import EnvelopeError
from wsrm_mq.sequence.elements import (
    AckRequested,
    CloseSequence,
    CloseSequenceResponse,
    CreateSequence,
    CreateSequenceResponse,
    EndpointReference,
    IncompleteSequenceBehavior,
    MakeConnection,
    Offer,
    SequenceAcknowledgement,
    SequenceFault,
    SequenceHeader,
    TerminateSequence,
    TerminateSequenceResponse,
)
from wsrm_mq.sequence.faults import CreateSequenceRefused, InvalidAcknowledgement, InvalidAddressingHeader
from wsrm_mq.versions import (
    ADDRESSING_VERSIONS,
    FLOW_NAMESPACE,
    MAKE_CONNECTION_NAMESPACE,
    MAX_MESSAGE_NUMBER,
    RM_OF_NAMESPACE,
    SOAP_VERSIONS,
    AddressingVersion,
    RMVersion,
    SOAPVersion,
)

RMResponse = CreateSequenceResponse | CloseSequenceResponse | TerminateSequenceResponse
RMBody = CreateSequence | CloseSequence | TerminateSequence | RMResponse | MakeConnection | SequenceFault

_FAULT_ACTIONS: Final = frozenset(
    (
        *(f"{namespace}/fault" for namespace in RM_OF_NAMESPACE),
        *(addressing.fault_action for addressing in ADDRESSING_VERSIONS.values()),
        *(addressing.soap_fault_action for addressing in ADDRESSING_VERSIONS.values()),
    )
)


class Headers(NamedTuple):
    """The headers of one envelope that are meant for this role, and the name of Body's first child.

    Addresses and identifiers are without the white space around them. Without RM (``is_rm``) no rule of WS-Addressing
    was applied: the addressing fields are those that could be read.
    """

    soap: SOAPVersion
    addressing: AddressingVersion | None = None
    rm: RMVersion | None = None
    """Set by an RM header block, an RM element in Body, or an RM action; those of WS-MakeConnection count as of 1.1."""
    action: str | None = None
    message_id: str | None = None
    to: str | None = None
    relates_to: str | None = None
    """The first RelatesTo whose relationship is that of a reply."""
    reply_to: EndpointReference | None = None
    fault_to: EndpointReference | None = None
    sequence: SequenceHeader | None = None
    ack_requested: tuple[AckRequested, ...] = ()
    """The AckRequested headers, no identifier twice."""
    acknowledgements: tuple[SequenceAcknowledgement, ...] = ()
    """The well-formed ones; a malformed acknowledgement counts as none (§6 row 32)."""
    body: RMBody | None = None
    body_name: tuple[str, str] | None = None
    """(namespace, local name) of Body's first child, ``None`` for an empty Body."""
    must_understand: tuple[tuple[str, str], ...] = ()
    """Mandatory header blocks outside the namespaces of SOAP, WS-Addressing, WS-RM and WS-MakeConnection."""
    charset: str | None = None
    """Content-Type's, that of the root part where there is one."""
    offset: int = 0
    """Where the envelope begins in the request body: not 0 in a multipart one."""
    ignored: tuple[str, ...] = ()
    """Why header blocks that only ride along, and are malformed, count as none."""
    alike: object = None
    """The same for all messages that are alike but for Identifier, MessageNumber and MessageID (``Scanner``); ``None``
    where that is not known."""

    @property
    def is_rm(self) -> bool:
        return self.rm is not None

    @property
    def is_plain(self) -> bool:
        """An application's message outside of any sequence; requests for acknowledgements may ride along."""
        if self.rm is None:
            return True
        is_own = self.action is not None and self.action.startswith(self.rm.action(""))
        return self.sequence is None and self.body is None and not is_own

    @property
    def is_fault(self) -> bool:
        """It is a fault, or says so: it is never answered with one (F-024)."""
        return self.body_name == (self.soap.namespace, "Fault") or self.action in _FAULT_ACTIONS

    @property
    def is_protocol_fault(self) -> bool:
        """A fault, under an Action that belongs to WS-RM or WS-Addressing: no operation of an application's."""
        return self.body_name == (self.soap.namespace, "Fault") and self.action in _FAULT_ACTIONS

    @property
    def is_one_way_address(self) -> bool:
        """ReplyTo is the none address: no reply is expected."""
        none = self.addressing.none if self.addressing else ""
        return bool(none) and self.reply_to is not None and self.reply_to.address == none

    @property
    def reply_anonymous(self) -> bool:
        """The reply may go onto the response of this request, as it does without ReplyTo (A-005, A-006, MC-011)."""
        if self.reply_to is None or self.addressing is None:
            return True
        return self.reply_to.address == self.addressing.anonymous or self.reply_is_fetched

    @property
    def reply_is_fetched(self) -> bool:
        """A reply that does not go onto the response of this request is fetched by MakeConnection."""
        return self.rm is not None and self.reply_to is not None and self.rm.is_fetched(self.reply_to.address)


# From the elements of an outline to the RM values. Each reader raises ``EnvelopeError`` with the fault that its element
# earns. Children and attributes that it does not know are passed over (NS-007).


# Endpoint references: their addresses, and their parameters as stand-alone XML text.
#
# The parameters have to be echoed as header blocks later, in another envelope, so each carries the namespace
# declarations it needs. The text is cut from the document instead of being written anew: a prefix inside a value
# keeps its meaning.

_ADDRESS: Final = {f"{ns}{NAME_SEPARATOR}Address": version for ns, version in ADDRESSING_VERSIONS.items()}
_WSSE: Final = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-secext-1.0.xsd"
_NOT_ECHOED: Final = frozenset(("", *SOAP_VERSIONS, *ADDRESSING_VERSIONS, *RM_OF_NAMESPACE, _WSSE))
"""A parameter in one of these would become a header block that its receiver takes for ours (§7)."""
_CONTAINERS: Final = frozenset(
    f"{ns}{NAME_SEPARATOR}{local}"
    for ns in ADDRESSING_VERSIONS
    for local in ("ReferenceParameters", "ReferenceProperties")
)
_OPENING: Final = re.compile(r"<[^\s/>]+")


def _read_endpoint(
    element: Element, addressing: AddressingVersion, outline: Outline, charset: str | None, limits: Limits
) -> EndpointReference:
    """Read an endpoint reference. Raises ``ValueError`` with the code of WS-Addressing 1.0 for its error (SOAP binding
    §6.4.1)."""
    address: str | None = None
    parameters: list[Element] = []
    for child in element:
        version = _ADDRESS.get(child.tag)
        if version is not None:
            if address is not None or version is not addressing:
                raise ValueError("InvalidCardinality" if address is not None else "InvalidEPR")
            address = simple_text(child)
        elif child.tag in _CONTAINERS:
            parameters.extend(child)
    if address is None:
        raise ValueError("MissingAddressInEPR")
    if not is_absolute_uri(address):
        raise ValueError("InvalidAddress")
    if not parameters or outline.root is None:
        return EndpointReference(address)
    texts = _parameter_texts(b"".join(outline.read), charset)
    ordinals = {e: ordinal for ordinal, e in enumerate(outline.root.iter(), 1)}
    kept = [texts.get(ordinals[e]) for e in parameters]
    if None in kept or sum(len(text or "") for text in kept) > limits.parameter_bytes:
        raise ValueError("InvalidEPR")
    return EndpointReference(address, tuple(filter(None, kept)))


def _parameter_texts(document: bytes, charset: str | None) -> dict[int, str]:
    """The text of each reference parameter by the ordinal of its start tag, empty for one that is not echoed.

    ``document`` may break off behind the parameters. A parameter is missing if there was too much before it.
    """
    located = locate(document, charset, into_body=True)
    return {
        span.ordinal: "" if span.namespace in _NOT_ECHOED else _stand_alone(located, span)
        for span in located.spans
        if span.parent is not None and span.parent.name in _CONTAINERS and span.stop >= 0
    }


def _stand_alone(document: Document, span: Span) -> str:
    text = document.text(span.start, span.stop)
    opening = _OPENING.match(text)
    cut = opening.end() if opening else 0
    declarations = "".join(
        f' xmlns{":" if prefix else ""}{prefix}="{escape_attribute(uri)}"'
        for prefix, uri in span.outer.items()
        if prefix not in span.own and (not prefix or f"{prefix}:" in text)
    )
    return text[:cut] + declarations + text[cut:]


_ENDINGS: Final[Mapping[str, type[CloseSequence] | type[TerminateSequence]]] = {
    "CloseSequence": CloseSequence,
    "TerminateSequence": TerminateSequence,
}
_RESPONSES: Final[Mapping[str, type[CloseSequenceResponse] | type[TerminateSequenceResponse]]] = {
    "CloseSequenceResponse": CloseSequenceResponse,
    "TerminateSequenceResponse": TerminateSequenceResponse,
}
_TOKEN_REFERENCE: Final = f"{NAME_SEPARATOR}SecurityTokenReference"
_BUFFER_REMAINING: Final = f"{FLOW_NAMESPACE}{NAME_SEPARATOR}BufferRemaining"
_REPEATABLE: Final = frozenset(("AcknowledgementRange", "Nack"))


class Reader:
    """Reads the elements of one envelope, of one version each."""

    __slots__ = ("_addressing", "_charset", "_limits", "_outline", "_prefix", "_rm")

    def __init__(
        self, rm: RMVersion, addressing: AddressingVersion, outline: Outline, charset: str | None, limits: Limits
    ) -> None:
        self._rm = rm
        self._prefix = rm.namespace + NAME_SEPARATOR
        self._addressing = addressing
        self._outline = outline
        self._charset = charset
        self._limits = limits

    def sequence(self, block: Element) -> SequenceHeader:
        children = self._children(block)
        identifier = self._identifier(children, block)
        number = children.get("MessageNumber")
        if number is None:
            raise malformed("The Sequence header has no MessageNumber.", identifier)
        last = children.get("LastMessage")
        if last is not None:
            if not self._rm.has_last_message:
                raise malformed("LastMessage belongs to WS-ReliableMessaging 1.0 only.", identifier)
            if len(last) or simple_text(last):
                raise malformed("LastMessage has to be empty.", identifier)
        return SequenceHeader(identifier, _positive(number, identifier), last is not None)

    def ack_requested(self, block: Element) -> AckRequested:
        return AckRequested(self._identifier(self._children(block), block))

    def acknowledgement(self, block: Element) -> SequenceAcknowledgement:
        """Read a SequenceAcknowledgement. CXF writes None beside ranges: the ranges count. WCF writes "nothing" in 1.0
        as range 0 to 0. Whether the ranges can be true is decided by the sequence."""
        children = self._children(block)
        identifier = self._identifier(children, block)
        ranges = tuple([_range(e) for e in block if e.tag == f"{self._prefix}AcknowledgementRange"])
        nacks = tuple([_unsigned(e, identifier) for e in block if e.tag == f"{self._prefix}Nack"])
        none, final = "None" in children, "Final" in children
        if ranges == ((0, 0),) and not self._rm.has_none:
            ranges, none = (), True
        said = SequenceAcknowledgement(identifier, ranges, nacks, final, _room(block))
        if not (ranges or nacks or none) or (nacks and (ranges or none or final)):
            reason = "The children of SequenceAcknowledgement do not go together."
            raise EnvelopeError(InvalidAcknowledgement(reason, identifier, said=said))
        return said

    def body(self, element: Element, uses_security: str | None) -> RMBody | None:
        """Read the RM element in Body; ``None`` for one that is none of WS-RM."""
        local = _local(element)
        if local == "CreateSequence":
            return self._create_sequence(element, uses_security)
        if local == "CreateSequenceResponse":
            children = self._children(element)
            return CreateSequenceResponse(self._identifier(children, element), _expires(children))
        response = _RESPONSES.get(local)
        if response is not None:
            children = self._children(element)
            return response(self._identifier(children, element) if children else "")
        ending = _ENDINGS.get(local)
        return ending(*self._ending(element)) if ending is not None else None

    def header_endpoint(self, block: Element) -> EndpointReference:
        """The endpoint reference that an addressing header is."""
        try:
            return _read_endpoint(block, self._addressing, self._outline, self._charset, self._limits)
        except ValueError as error:
            header = _local(block)
            reason = f"The addressing header {header} cannot be used."
            raise EnvelopeError(InvalidAddressingHeader(reason, header=header, detail_code=str(error))) from None

    def _create_sequence(self, body: Element, uses_security: str | None) -> CreateSequence:
        """Read a CreateSequence. An error in it refuses the sequence."""
        children = self._children(body)
        acks_to = children.get("AcksTo")
        if acks_to is None:
            raise _refused("CreateSequence has no AcksTo.")
        if any(child.tag.endswith(_TOKEN_REFERENCE) for child in body):
            uses_security = uses_security or "SecurityTokenReference"
        offer = children.get("Offer")
        return CreateSequence(
            self._endpoint(acks_to),
            _expires(children),
            self._offer(offer) if offer is not None else None,
            uses_security,
        )

    def _offer(self, offer: Element) -> Offer:
        children = self._children(offer)
        try:
            identifier = self._identifier(children, offer)
        except EnvelopeError as error:
            raise _refused(error.fault.reason) from None
        if not self._rm.has_incomplete_behavior:
            return Offer(identifier, None, _expires(children))
        endpoint, behavior = children.get("Endpoint"), children.get("IncompleteSequenceBehavior")
        return Offer(
            identifier,
            self._endpoint(endpoint) if endpoint is not None else None,
            _expires(children),
            _behavior(behavior) if behavior is not None else None,
        )

    def _ending(self, body: Element) -> tuple[str, int | None]:
        children = self._children(body)
        identifier = self._identifier(children, body)
        last = children.get("LastMsgNumber") if self._rm.has_close else None
        if last is None:
            return identifier, None
        number = _positive(last, identifier)
        if number > MAX_MESSAGE_NUMBER:
            raise malformed("LastMsgNumber is above the largest message number.", identifier)
        return identifier, number

    def _endpoint(self, element: Element) -> EndpointReference:
        try:
            return _read_endpoint(element, self._addressing, self._outline, self._charset, self._limits)
        except ValueError as error:
            raise _refused(f"{_local(element)} is not a usable endpoint reference: {error}.") from None

    def _children(self, element: Element) -> dict[str, Element]:
        """The children in the RM namespace by local name; it is malformed if one is wrongly repeated."""
        prefix = self._prefix
        found: dict[str, Element] = {}
        for child in element:
            tag = child.tag
            if tag.startswith(prefix):
                local = tag[len(prefix) :]
                if local in found and local not in _REPEATABLE:
                    raise malformed(f"{_local(element)} has more than one {local}.")
                found[local] = child
        return found

    def _identifier(self, children: Mapping[str, Element], owner: Element) -> str:
        element = children.get("Identifier")
        if element is None:
            raise malformed(f"{_local(owner)} has no Identifier.")
        try:
            return parse_identifier(simple_text(element), self._limits.identifier_bytes)
        except ValueError as error:
            raise malformed(f"The Identifier of {_local(owner)} cannot be used: {error}.") from None


def _local(element: Element) -> str:
    return split_name(element.tag)[1]


def _positive(element: Element, identifier: str) -> int:
    number = _unsigned(element, identifier)
    if number == 0:
        raise malformed(f"{_local(element)} has to be 1 or more.", identifier)
    return number


def _unsigned(element: Element, identifier: str) -> int:
    try:
        return parse_unsigned(simple_text(element))
    except ValueError as error:
        raise malformed(f"{_local(element)} is {error}.", identifier) from None


def _range(element: Element) -> tuple[int, int]:
    try:
        return parse_unsigned(element.get("Lower", "")), parse_unsigned(element.get("Upper", ""))
    except ValueError:
        raise malformed("An AcknowledgementRange is malformed.") from None


def _room(acknowledgement: Element) -> int | None:
    """WCF's BufferRemaining. An extension that cannot be read is as if it were not there (S-ACK-017)."""
    said = next((child for child in acknowledgement if child.tag == _BUFFER_REMAINING), None)
    try:
        return None if said is None else parse_unsigned(simple_text(said))
    except ValueError:
        return None


def _expires(children: Mapping[str, Element]) -> int | None:
    expires = children.get("Expires")
    try:
        return parse_duration(simple_text(expires)) if expires is not None else None
    except ValueError as error:
        raise _refused(f"Expires is {error}.") from None


def _behavior(element: Element) -> IncompleteSequenceBehavior:
    try:
        return IncompleteSequenceBehavior(simple_text(element))
    except ValueError:
        raise _refused("The IncompleteSequenceBehavior of the Offer is unknown.") from None


def _refused(reason: str) -> EnvelopeError:
    return EnvelopeError(CreateSequenceRefused(reason))


_MAKE_CONNECTION_ADDRESS: Final = f"{MAKE_CONNECTION_NAMESPACE}{NAME_SEPARATOR}Address"
_MOST_NAMED: Final = 16
"""Selections that a fault names: the sender chooses how many there are."""


def read_make_connection(element: Element) -> MakeConnection:
    """Read a MakeConnection. An Address without text counts as none; any other child selects messages by a property
    that is not known here. Raises ``EnvelopeError`` for more than one Address."""
    addresses = [simple_text(child) for child in element if child.tag == _MAKE_CONNECTION_ADDRESS]
    if len(addresses) > 1:
        raise malformed("MakeConnection has more than one Address.")
    others = dict.fromkeys(split_name(child.tag) for child in element if child.tag != _MAKE_CONNECTION_ADDRESS)
    return MakeConnection(addresses[0] or None if addresses else None, tuple(others)[:_MOST_NAMED])
