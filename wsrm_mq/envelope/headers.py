"""The headers that a scan found."""

from __future__ import annotations

from typing import Final, NamedTuple

from wsrm_mq.sequence import elements
from wsrm_mq.versions import ADDRESSING_VERSIONS, RM_OF_NAMESPACE, AddressingVersion, RMVersion, SOAPVersion

RMResponse = elements.CreateSequenceResponse | elements.CloseSequenceResponse | elements.TerminateSequenceResponse
RMBody = (
    elements.CreateSequence
    | elements.CloseSequence
    | elements.TerminateSequence
    | RMResponse
    | elements.MakeConnection
    | elements.SequenceFault
)

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
    reply_to: elements.EndpointReference | None = None
    fault_to: elements.EndpointReference | None = None
    sequence: elements.SequenceHeader | None = None
    ack_requested: tuple[elements.AckRequested, ...] = ()
    """The AckRequested headers, no identifier twice."""
    acknowledgements: tuple[elements.SequenceAcknowledgement, ...] = ()
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
