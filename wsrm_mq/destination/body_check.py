"""What is asked of a request's body beyond its headers: that it is whole, and well-formed where that is wanted."""

from __future__ import annotations

from wsrm_mq.destination.exchange import Peer, Request
from wsrm_mq.envelope import Headers, Limits, parse_content_type
from wsrm_mq.envelope.source import Source
from wsrm_mq.envelope.stream import expand
from wsrm_mq.envelope.wellformed import check_well_formed
from wsrm_mq.envelope.whole import TAIL_BYTES, check_whole, ends_once, looks_whole

__all__ = ["check_body", "needs_reading", "shows_its_end", "source_of"]


def source_of(request: Request, limits: Limits) -> Source:
    """The body from its first byte, expanded where it is compressed."""
    body = request.body
    source: Source = body.content if body.content is not None else body.open()
    return expand(source, limits) if request.caller.content_encoding == "gzip" else source


def shows_its_end(request: Request, limits: Limits) -> bool:
    """Whether the last bytes tell that nothing is missing. What is compressed does not show its end."""
    caller, body = request.caller, request.body
    if caller.content_encoding or not looks_whole(body.tail(TAIL_BYTES), caller.content_type):
        return False
    return body.is_counted or ends_once(source_of(request, limits), caller.content_type)


def needs_reading(request: Request, headers: Headers, peer: Peer, limits: Limits, *, is_kept: bool) -> bool:
    """Whether ``check_body`` has to read it to its end."""
    has_parts = headers.is_rm and parse_content_type(request.caller.content_type).is_multipart
    return (is_kept and peer.verify_body) or ((is_kept or has_parts) and not shows_its_end(request, limits))


def check_body(request: Request, peer: Peer, limits: Limits, *, is_kept: bool) -> None:
    """Raises ``EnvelopeError`` for a body that breaks off, or is not well-formed."""
    content_type = request.caller.content_type
    if is_kept and peer.verify_body:
        check_well_formed(source_of(request, limits), content_type, limits)
    if not shows_its_end(request, limits):
        check_whole(source_of(request, limits), content_type, limits)
