"""What a destination answers, as HTTP responses: rendered from what was committed, never from what was about to be."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Final, NamedTuple

from wsrm_mq.envelope import (
    Headers,
    NotAnEnvelope,
    acknowledgement_header,
    create_sequence_response,
    ending_response,
    piggyback,
    sequence_acknowledgement,
)
from wsrm_mq.envelope import fault as render_fault
from wsrm_mq.errors import EnvelopeError
from wsrm_mq.queue.accept import Created, Receipt
from wsrm_mq.queue.settle import Reply
from wsrm_mq.sequence import faults
from wsrm_mq.sequence.elements import CloseSequence, SequenceAcknowledgement, TerminateSequence
from wsrm_mq.versions import SOAPVersion

__all__ = [
    "EMPTY",
    "Answer",
    "acknowledgement",
    "created",
    "ended",
    "fault",
    "http_headers",
    "refused",
    "replied",
    "unavailable",
    "unreadable",
]

RETRY_AFTER_SECONDS: Final = 5


class Answer(NamedTuple):
    """An HTTP response. ``body`` may be empty."""

    status: int
    body: bytes = b""
    content_type: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    status_line: str = ""

    @property
    def line(self) -> str:
        return self.status_line or f"{self.status} {HTTPStatus(self.status).phrase}"


EMPTY: Final = Answer(202)


def http_headers(content_type: str, headers: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    """The HTTP headers of an answer but for its length."""
    named = [(name, value) for name, value in headers if name.lower() != "content-length"]
    return [*named, ("Content-Type", content_type)] if content_type else named


def unavailable(reason: str, retry_after: int = RETRY_AFTER_SECONDS) -> Answer:
    """503: nothing was stored, nothing is acknowledged, the sender comes again in ``retry_after`` seconds."""
    return Answer(503, f"{reason}\n".encode(), "text/plain; charset=utf-8", (("Retry-After", str(retry_after)),))


def fault(what: faults.Fault, headers: Headers, acknowledgements: tuple[SequenceAcknowledgement, ...] = ()) -> Answer:
    status, body = render_fault(
        what, headers.soap, headers.addressing, headers.rm, headers.message_id, acknowledgements
    )
    return _envelope(status, body, headers.soap)


def unreadable(error: EnvelopeError, content_type: str) -> Answer:
    """The fault for a request that cannot be read; what is known of its versions is kept."""
    if isinstance(error.context, Headers):
        answer = fault(error.fault, error.context)
    else:
        soap = SOAPVersion.SOAP_1_2 if "soap+xml" in content_type.lower() else SOAPVersion.SOAP_1_1
        answer = _envelope(*render_fault(error.fault, soap, None, None, None), soap)
    return answer._replace(status=error.status) if error.status else answer


def created(what: Created, headers: Headers) -> Answer:
    """CreateSequenceResponse, or why there is no sequence."""
    if what.fault is not None:
        return fault(what.fault, headers)
    sequence = what.sequence
    if sequence is None:
        return unavailable(what.no_room)
    assert headers.addressing is not None
    body = create_sequence_response(
        headers.soap,
        headers.addressing,
        sequence.terms.rm,
        headers.message_id,
        sequence.terms.identifier,
        expires=what.lifetime,
        behavior=sequence.terms.behavior,
    )
    return _envelope(200, body, headers.soap)


def refused(receipt: Receipt, headers: Headers) -> Answer:
    """The fault that a receipt has, with the final acknowledgement where the sequence is closed."""
    assert receipt.fault is not None
    final = (receipt.acknowledgement,) if receipt.acknowledgement and receipt.acknowledgement.final else ()
    return fault(receipt.fault, headers, final if isinstance(receipt.fault, faults.SequenceClosed) else ())


def ended(final: SequenceAcknowledgement | None, headers: Headers) -> Answer:
    """The response to CloseSequence or TerminateSequence."""
    element, rm = headers.body, headers.rm
    assert isinstance(element, CloseSequence | TerminateSequence)
    assert rm is not None
    assert headers.addressing is not None
    if not rm.has_close:
        return EMPTY  # 1.0: TerminateSequence is one-way
    acknowledgements = (final,) if final else ()
    body = ending_response(headers.soap, headers.addressing, rm, headers.message_id, element, acknowledgements)
    return _envelope(200, body, headers.soap)


def acknowledgement(headers: Headers, acknowledgements: Sequence[SequenceAcknowledgement]) -> Answer:
    """An acknowledgement that stands alone."""
    rm, addressing = headers.rm, headers.addressing
    assert rm is not None
    assert addressing is not None
    sayable = acknowledgements if rm.has_none else [ack for ack in acknowledgements if ack.ranges]
    if not sayable:
        return EMPTY  # 1.0 cannot say that nothing was accepted
    body = sequence_acknowledgement(headers.soap, addressing, rm, sayable, headers.message_id)
    return _envelope(200, body, headers.soap)


def replied(reply: Reply, headers: Headers, ack: SequenceAcknowledgement) -> Answer:
    """The application's answer, with ``ack`` as a header."""
    assert headers.rm is not None
    content_type = next((value for name, value in reply.headers if name.lower() == "content-type"), "")
    try:
        body = piggyback(reply.body, content_type, acknowledgement_header(headers.rm, (ack,)), reply.place)
    except NotAnEnvelope:  # an answer that cannot carry a header goes out as it is
        body = reply.body
    return Answer(int(reply.status.split(" ", 1)[0]), body, "", reply.headers, reply.status)


def _envelope(status: int, body: bytes, soap: SOAPVersion) -> Answer:
    return Answer(status, body, f"{soap.media_type}; charset=utf-8")
