"""What a request must be to be taken, beyond headers that can be read: its answers can leave on its own HTTP response,
and its body is whole, and well-formed where that is wanted."""

from __future__ import annotations

from wsrm_mq.destination.client import Client
from wsrm_mq.destination.exchange import Request
from wsrm_mq.envelope import Headers, Limits, parse_content_type
from wsrm_mq.envelope.source import Source
from wsrm_mq.envelope.stream import expand
from wsrm_mq.envelope.wellformed import check_well_formed
from wsrm_mq.envelope.whole import TAIL_BYTES, check_whole, ends_once, looks_whole
from wsrm_mq.errors import EnvelopeError
from wsrm_mq.queue.arrival import Body
from wsrm_mq.sequence import faults
from wsrm_mq.sequence.elements import CreateSequence

__all__ = [
    "check_body",
    "check_create",
    "check_reply_to",
    "check_understood",
    "needs_reading",
    "shows_its_end",
    "source_of",
]


def check_reply_to(headers: Headers) -> None:
    """Replies leave on the response they belong to; another address has no channel yet."""
    if headers.reply_anonymous or headers.is_one_way_address:
        return
    raise EnvelopeError(
        faults.InvalidAddressingHeader(
            "Replies are sent on the HTTP response only: ReplyTo has to be anonymous or none.",
            header="ReplyTo",
            detail_code="OnlyAnonymousAddressSupported",
        ),
        headers,
    )


def check_understood(headers: Headers, understood: frozenset[str] | None) -> None:
    """``understood``: the namespaces of header blocks that the application understands; ``None``: all."""
    unknown = tuple(name for name in headers.must_understand if understood is not None and name[0] not in understood)
    if unknown:
        raise EnvelopeError(
            faults.NotUnderstood("A mandatory header block is not understood here.", headers=unknown), headers
        )


def check_create(element: CreateSequence, headers: Headers) -> None:
    reason = _why_refused(element, headers)
    if reason:
        raise EnvelopeError(faults.CreateSequenceRefused(reason), headers)


def _why_refused(element: CreateSequence, headers: Headers) -> str:
    assert headers.addressing is not None
    anonymous = headers.addressing.anonymous
    if element.uses_security:
        return f"{element.uses_security} is not offered here: no sequence is bound to a token or a TLS session."
    if element.acks_to is None:
        return "AcksTo is missing."
    if element.acks_to.address != anonymous:
        return (
            f"AcksTo has to be the anonymous address {anonymous}: acknowledgements are sent on the HTTP response only."
        )
    if not headers.reply_anonymous:
        return "ReplyTo has to be anonymous: the response is sent on the HTTP response only."
    return ""


def source_of(client: Client, body: Body, limits: Limits) -> Source:
    """The body from its first byte, expanded where it is compressed."""
    source: Source = body.content if body.content is not None else body.open()
    return expand(source, limits) if client.content_encoding == "gzip" else source


def shows_its_end(client: Client, body: Body, limits: Limits) -> bool:
    """Whether the last bytes tell that nothing is missing. What is compressed does not show its end."""
    if client.content_encoding or not looks_whole(body.tail(TAIL_BYTES), client.content_type):
        return False
    return body.is_counted or ends_once(source_of(client, body, limits), client.content_type)


def needs_reading(request: Request, limits: Limits, *, is_kept: bool) -> bool:
    """Whether ``check_body`` has to read it to its end."""
    has_parts = request.headers.is_rm and parse_content_type(request.client.content_type).is_multipart
    is_read_in_any_case = is_kept and request.peer.verify_body
    return is_read_in_any_case or ((is_kept or has_parts) and not shows_its_end(request.client, request.body, limits))


def check_body(request: Request, limits: Limits, *, is_kept: bool) -> None:
    """Raises ``EnvelopeError`` for a body that breaks off, or is not well-formed."""
    client, body = request.client, request.body
    if is_kept and request.peer.verify_body:
        check_well_formed(source_of(client, body, limits), client.content_type, limits)
    if not shows_its_end(client, body, limits):
        check_whole(source_of(client, body, limits), client.content_type, limits)
