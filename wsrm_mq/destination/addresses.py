"""Where a request asks its answers to be sent: only onto its own HTTP response, so far."""

from __future__ import annotations

from wsrm_mq.envelope import Headers
from wsrm_mq.errors import EnvelopeError
from wsrm_mq.sequence import faults
from wsrm_mq.sequence.elements import CreateSequence, EndpointReference

__all__ = ["check_create", "check_reply_to"]


def check_reply_to(headers: Headers) -> None:
    """Replies leave on the response they belong to; another address has no channel yet."""
    reply_to = headers.reply_to
    if reply_to is None or headers.reply_anonymous or headers.is_one_way_address:
        return
    raise EnvelopeError(
        faults.InvalidAddressingHeader(
            "Replies are sent on the HTTP response only: ReplyTo has to be anonymous or none.",
            header="ReplyTo",
            detail_code="OnlyAnonymousAddressSupported",
        ),
        headers,
    )


def check_create(element: CreateSequence, headers: Headers) -> None:
    reason = _why_refused(element, headers)
    if reason:
        raise EnvelopeError(faults.CreateSequenceRefused(reason), headers)


def _why_refused(element: CreateSequence, headers: Headers) -> str:
    assert headers.addressing is not None
    if element.uses_security:
        return f"{element.uses_security} is not offered here: no sequence is bound to a token or a TLS session."
    if element.acks_to is None:
        return "AcksTo is missing."
    if not _is_anonymous(element.acks_to, headers):
        return (
            f"AcksTo has to be the anonymous address {headers.addressing.anonymous}: "
            "acknowledgements are sent on the HTTP response only."
        )
    if headers.reply_to is not None and not headers.reply_anonymous:
        return "ReplyTo has to be anonymous: the response is sent on the HTTP response only."
    return ""


def _is_anonymous(reference: EndpointReference, headers: Headers) -> bool:
    assert headers.addressing is not None
    return reference.address == headers.addressing.anonymous
