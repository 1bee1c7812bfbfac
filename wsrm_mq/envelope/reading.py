"""From the small trees of an outline to the RM and addressing values.

Each reader raises ``EnvelopeError`` with the fault that its element earns (conformance §6). Children and
attributes it does not know are passed over (NS-007).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wsrm_mq.envelope.duration import parse_duration
from wsrm_mq.envelope.headers import RMBody
from wsrm_mq.envelope.lexical import is_absolute_uri, parse_identifier, parse_unsigned
from wsrm_mq.envelope.limits import Limits
from wsrm_mq.envelope.outline import NAME_SEPARATOR, Node
from wsrm_mq.envelope.parameters import PARAMETER_CONTAINERS, parameter_texts
from wsrm_mq.envelope.text import WHITE_SPACE
from wsrm_mq.errors import EnvelopeError
from wsrm_mq.sequence.elements import (
    AckRequested,
    CloseSequence,
    CreateSequence,
    EndpointReference,
    IncompleteSequenceBehavior,
    Offer,
    SequenceAcknowledgement,
    SequenceHeader,
    TerminateSequence,
)
from wsrm_mq.sequence.faults import CreateSequenceRefused, MalformedMessage
from wsrm_mq.versions import ADDRESSING_VERSIONS, MAX_MESSAGE_NUMBER, AddressingVersion, RMVersion

__all__ = ["Reader"]

_ENDINGS: Final[Mapping[str, type[CloseSequence] | type[TerminateSequence]]] = {
    "CloseSequence": CloseSequence,
    "TerminateSequence": TerminateSequence,
}
_TOKEN_REFERENCE: Final = f"{NAME_SEPARATOR}SecurityTokenReference"


class Reader:
    """Reads the elements of one envelope, of one version each. ``pieces`` are the bytes of that envelope."""

    __slots__ = ("_addressing", "_charset", "_limits", "_pieces", "_rm", "_texts")

    def __init__(
        self,
        rm: RMVersion,
        addressing: AddressingVersion,
        limits: Limits,
        pieces: list[bytes],
        charset: str | None,
    ) -> None:
        self._rm = rm
        self._addressing = addressing
        self._limits = limits
        self._pieces = pieces
        self._charset = charset
        self._texts: Mapping[int, str] | None = None

    def sequence(self, block: Node) -> SequenceHeader:
        children = self._children(block)
        identifier = self._identifier(children, block)
        last = children.get("LastMessage")
        if last is not None and not self._rm.has_last_message:
            raise _malformed("LastMessage belongs to WS-ReliableMessaging 1.0 only.", identifier)
        if last is not None and (last.children or last.text.strip(WHITE_SPACE)):
            raise _malformed("LastMessage has to be empty.", identifier)
        number = children.get("MessageNumber")
        if number is None:
            raise _malformed("The Sequence header has no MessageNumber.", identifier)
        return SequenceHeader(identifier, _positive(number, identifier), last is not None)

    def ack_requested(self, block: Node) -> AckRequested:
        return AckRequested(self._identifier(self._children(block), block))

    def acknowledgement(self, block: Node) -> SequenceAcknowledgement:
        """Raises ``EnvelopeError`` for a malformed one too. CXF writes None beside ranges: the ranges
        count."""
        prefix = self._rm.namespace + NAME_SEPARATOR
        ranges: list[tuple[int, int]] = []
        nacks: list[int] = []
        final = none = False
        for child in block.children:
            local = child.name.removeprefix(prefix)
            if local == "AcknowledgementRange":
                ranges.append(_range(child))
            elif local == "Nack":
                nacks.append(_unsigned(child.text, "Nack"))
            elif local == "Final":
                final = True
            elif local == "None":
                none = True
        if ranges == [(0, 0)] and not self._rm.has_none:
            ranges, none = [], True  # how WCF writes "nothing" in 1.0
        if not (ranges or nacks or none) or (nacks and (ranges or final or none)):
            raise _malformed("The SequenceAcknowledgement is malformed.")
        if any(not 0 < lower <= upper for lower, upper in ranges):
            raise _malformed("An AcknowledgementRange is malformed.")
        identifier = self._identifier(self._children(block), block)
        return SequenceAcknowledgement(identifier, tuple(ranges), tuple(nacks), final)

    def body(self, element: Node, uses_security: str | None) -> RMBody | None:
        """The RM element in Body; ``None`` for one that a destination has no use for, such as a response."""
        local = _local(element)
        if local == "CreateSequence":
            return self._create_sequence(element, uses_security)
        ending = _ENDINGS.get(local)
        return ending(*self._ending(element)) if ending is not None else None

    def _create_sequence(self, body: Node, uses_security: str | None) -> CreateSequence:
        """Whatever is wrong refuses the sequence."""
        children = self._children(body)
        acks_to = children.get("AcksTo")
        if acks_to is None:
            raise _refused("CreateSequence has no AcksTo.")
        if any(child.name.endswith(_TOKEN_REFERENCE) for child in body.children):
            uses_security = uses_security or "SecurityTokenReference"
        offer = children.get("Offer")
        return CreateSequence(
            self._endpoint(acks_to),
            self._expires(children),
            self._offer(offer) if offer is not None else None,
            uses_security,
        )

    def endpoint(self, node: Node) -> EndpointReference:
        """Raises ``ValueError`` with the WS-Addressing 1.0 fault code of what is wrong."""
        prefix = self._addressing.namespace + NAME_SEPARATOR
        address: str | None = None
        ordinals: list[int] = []
        for child in node.children:
            if child.name == prefix + "Address":
                if address is not None:
                    raise ValueError("InvalidCardinality")
                address = child.text.strip(WHITE_SPACE)
            elif child.name in PARAMETER_CONTAINERS and child.name.startswith(prefix):
                ordinals.extend(parameter.ordinal for parameter in child.children)
        if address is None:
            raise ValueError("MissingAddressInEPR")
        if not is_absolute_uri(address):
            raise ValueError("InvalidAddress")
        if not ordinals:
            return EndpointReference(address)
        if self._texts is None:
            self._texts = parameter_texts(b"".join(self._pieces), self._charset)
        kept = tuple(self._texts[ordinal] for ordinal in ordinals if ordinal in self._texts)
        if sum(map(len, kept)) > self._limits.parameter_bytes:
            raise ValueError("InvalidEPR")
        return EndpointReference(address, kept)

    def _children(self, node: Node) -> dict[str, Node]:
        """The first child of each local name in the RM namespace; one that comes twice is malformed."""
        prefix = self._rm.namespace + NAME_SEPARATOR
        found: dict[str, Node] = {}
        for child in node.children:
            if child.name.startswith(prefix):
                local = child.name[len(prefix) :]
                if local in found and local not in ("AcknowledgementRange", "Nack"):
                    raise _malformed(f"{_local(node)} has more than one {local}.")
                found[local] = child
        return found

    def _identifier(self, children: Mapping[str, Node], owner: Node) -> str:
        node = children.get("Identifier")
        if node is None:
            raise _malformed(f"{_local(owner)} has no Identifier.")
        try:
            return parse_identifier(node.text, self._limits.identifier_bytes)
        except ValueError as error:
            raise _malformed(f"The Identifier of {_local(owner)} cannot be used: {error}.") from None

    def _ending(self, body: Node) -> tuple[str, int | None]:
        children = self._children(body)
        identifier = self._identifier(children, body)
        last = children.get("LastMsgNumber") if self._rm.has_close else None
        if last is None:
            return identifier, None
        number = _positive(last, identifier)
        if number > MAX_MESSAGE_NUMBER:
            raise _malformed("LastMsgNumber is above the largest message number.", identifier)
        return identifier, number

    def _offer(self, offer: Node) -> Offer:
        children = self._children(offer)
        endpoint = children.get("Endpoint") if self._rm.has_incomplete_behavior else None
        behavior = children.get("IncompleteSequenceBehavior") if self._rm.has_incomplete_behavior else None
        try:
            identifier = self._identifier(children, offer)
        except EnvelopeError as error:
            raise _refused(error.fault.reason) from None
        return Offer(
            identifier,
            self._endpoint(endpoint) if endpoint is not None else None,
            self._expires(children),
            _behavior(behavior.text.strip(WHITE_SPACE)) if behavior is not None else None,
        )

    def _endpoint(self, node: Node) -> EndpointReference:
        try:
            return self.endpoint(node)
        except ValueError as error:
            if any(
                child.name == f"{ns}{NAME_SEPARATOR}Address"
                for child in node.children
                for ns in self._others()
            ):
                raise _refused(
                    f"{_local(node)} is in another version of WS-Addressing than the message."
                ) from None
            raise _refused(f"{_local(node)} is not a usable endpoint reference: {error}.") from None

    def _others(self) -> list[str]:
        return [namespace for namespace in ADDRESSING_VERSIONS if namespace != self._addressing.namespace]

    def _expires(self, children: Mapping[str, Node]) -> int | None:
        expires = children.get("Expires")
        try:
            return parse_duration(expires.text) if expires is not None else None
        except ValueError as error:
            raise _refused(f"Expires is {error}.") from None


def _local(node: Node) -> str:
    return node.name.rpartition(NAME_SEPARATOR)[2]


def _positive(node: Node, identifier: str) -> int:
    number = _unsigned(node.text, _local(node), identifier) if not node.children else 0
    if number == 0:
        raise _malformed(f"{_local(node)} has to be 1 or more.", identifier)
    return number


def _unsigned(text: str, what: str, identifier: str | None = None) -> int:
    try:
        return parse_unsigned(text)
    except ValueError as error:
        raise _malformed(f"{what} is {error}.", identifier) from None


def _range(node: Node) -> tuple[int, int]:
    lower, upper = node.attributes.get("Lower", ""), node.attributes.get("Upper", "")
    return _unsigned(lower, "Lower"), _unsigned(upper, "Upper")


def _behavior(text: str) -> IncompleteSequenceBehavior:
    try:
        return IncompleteSequenceBehavior(text)
    except ValueError:
        raise _refused("The IncompleteSequenceBehavior of the Offer is unknown.") from None


def _malformed(reason: str, identifier: str | None = None) -> EnvelopeError:
    return EnvelopeError(MalformedMessage(reason, identifier))


def _refused(reason: str) -> EnvelopeError:
    return EnvelopeError(CreateSequenceRefused(reason))
