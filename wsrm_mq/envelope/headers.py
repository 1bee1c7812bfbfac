"""What a scan found."""

from __future__ import annotations

from typing import NamedTuple

from wsrm_mq.sequence.elements import (
    AckRequested,
    CloseSequence,
    CreateSequence,
    EndpointReference,
    SequenceAcknowledgement,
    SequenceHeader,
    TerminateSequence,
)
from wsrm_mq.versions import AddressingVersion, RMVersion, SOAPVersion

__all__ = ["Headers", "RMBody"]

RMBody = CreateSequence | CloseSequence | TerminateSequence


class Headers(NamedTuple):
    """The headers of one envelope that are meant for this role, and the name of Body's first child.

    Addresses and identifiers are without the white space around them. Without RM (``is_rm``) no rule of
    WS-Addressing was applied: the addressing fields are what could be read.
    """

    soap: SOAPVersion
    addressing: AddressingVersion | None = None
    rm: RMVersion | None = None
    """Set by an RM header block, an RM element in Body, or an RM action."""
    action: str | None = None
    message_id: str | None = None
    to: str | None = None
    relates_to: str | None = None
    """The first RelatesTo whose relationship is that of a reply."""
    reply_to: EndpointReference | None = None
    fault_to: EndpointReference | None = None
    sequence: SequenceHeader | None = None
    ack_requested: tuple[AckRequested, ...] = ()
    """No identifier twice."""
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
    alike: object = None
    """The same for all messages that are alike but for Identifier, MessageNumber and MessageID (``Scanner``); ``None``
    where that is not known."""

    @property
    def is_rm(self) -> bool:
        return self.rm is not None

    @property
    def is_one_way_address(self) -> bool:
        """ReplyTo is the none address: nobody waits for a reply."""
        none = self.addressing.none if self.addressing else ""
        return bool(none) and self.reply_to is not None and self.reply_to.address == none

    @property
    def reply_anonymous(self) -> bool:
        """The reply goes onto the response of this request, as it does without ReplyTo (A-005, A-006)."""
        if self.reply_to is None or self.addressing is None:
            return True
        return self.reply_to.address == self.addressing.anonymous
