"""The answers of a destination, as HTTP responses: rendered from committed values, never from values that were about to
be committed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from http import HTTPStatus
from typing import Final, NamedTuple, TypeVar

from wsrm_mq.envelope import render
from wsrm_mq.envelope.fault import fault as render_fault
from wsrm_mq.envelope.headers import Headers
from wsrm_mq.envelope.rewrite import NotAnEnvelope, fault_in, piggyback
from wsrm_mq.envelope.stream import content_type_of, soap_version_of
from wsrm_mq.errors import EnvelopeError
from wsrm_mq.queue.arrival import CreateReceipt, Fetched, Receipt
from wsrm_mq.queue.settle import ServiceReply
from wsrm_mq.remembered import Recent
from wsrm_mq.sequence import faults
from wsrm_mq.sequence.elements import CloseSequence, EndpointReference, SequenceAcknowledgement, TerminateSequence
from wsrm_mq.versions import SOAPVersion

RETRY_AFTER_SECONDS: Final = 5
MOST_RANGES: Final = 512
"""The most ranges of all acknowledgements in one answer: a short request is not to get a huge answer."""

LINES: Final = {status.value: f"{status.value} {status.phrase}" for status in HTTPStatus}
"""The status line of each status."""
_TEXT: Final = (("Content-Type", "text/plain; charset=utf-8"),)
_SOAP: Final = {soap: (("Content-Type", f"{soap.media_type}; charset=utf-8"),) for soap in SOAPVersion}


class Answer(NamedTuple):
    """An HTTP response. ``body`` may be empty."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    """The fields of HTTP but for the length."""
    line: str = ""
    """The status line of an application; empty for the usual one."""
    left: Callable[[], object] | None = None
    """To be called when the server has taken all of it: the message that it carries need not leave again."""


EMPTY: Final = Answer(202)


def plain(status: int, text: str, *fields: tuple[str, str]) -> Answer:
    """An answer that has a text for people."""
    return Answer(status, f"{text}\n".encode(), (*fields, *_TEXT))


def unavailable(reason: str, retry_after: int = RETRY_AFTER_SECONDS) -> Answer:
    """503: nothing was stored, nothing is acknowledged, the sender comes again in ``retry_after`` seconds."""
    return plain(503, reason, ("Retry-After", str(retry_after)))


def fault(
    what: faults.Fault,
    headers: Headers,
    acknowledgements: tuple[SequenceAcknowledgement, ...] = (),
    *,
    sender_fault: int = 500,
    to: EndpointReference | None = None,
) -> Answer:
    """Render the fault ``what`` as an answer; where it would answer a fault, the answer is the acknowledgements or
    empty (F-024). ``sender_fault`` is the HTTP status of a fault that is the sender's under SOAP 1.2; that of every
    other is 500. ``to`` is the address that it is sent to, if it does not leave on the response."""
    if headers.is_fault:
        return acknowledgement(headers, acknowledgements)
    told = _told(acknowledgements, headers)
    to = to or _fetched(headers.fault_to or headers.reply_to, headers)
    body = render_fault(what, headers.soap, headers.addressing, headers.rm, headers.message_id, told, to)
    return _fault(what, headers.soap, body, sender_fault)


def _fetched(endpoint: EndpointReference | None, headers: Headers) -> EndpointReference | None:
    """``endpoint``, where messages to it are fetched: on the response of a request too they are addressed to it."""
    is_fetched = endpoint is not None and headers.rm is not None and headers.rm.is_fetched(endpoint.address)
    return endpoint if is_fetched else None


def _fault(what: faults.Fault, soap: SOAPVersion, body: bytes, sender_fault: int) -> Answer:
    is_of_sender = soap is SOAPVersion.SOAP_1_2 and what.blame is faults.FaultCode.SENDER
    return _envelope(sender_fault if is_of_sender else 500, body, soap)


def unreadable(error: EnvelopeError, content_type: str, sender_fault: int = 500) -> Answer:
    """The fault for a request that cannot be read, in the versions that are known of it. The error may have a status of
    its own; it is 400 only where other faults are 400."""
    if isinstance(error.context, Headers):
        answer = fault(error.fault, error.context, sender_fault=sender_fault)
    else:
        soap = soap_version_of(content_type)
        answer = _fault(error.fault, soap, render_fault(error.fault, soap, None, None, None), sender_fault)
    if error.status is None or (error.status == 400 and sender_fault != 400):
        return answer
    return answer._replace(status=error.status)


def created(receipt: CreateReceipt, headers: Headers, to: EndpointReference | None = None) -> Answer:
    """The CreateSequenceResponse. ``to`` is the address that it is sent to, if it does not leave on the response."""
    sequence = receipt.created
    assert sequence is not None
    assert headers.addressing is not None
    body = render.create_sequence_response(
        headers.soap,
        headers.addressing,
        sequence.terms.rm,
        headers.message_id,
        sequence.terms.identifier,
        expires=receipt.lifetime,
        behavior=sequence.terms.behavior,
        accept=EndpointReference(headers.to) if receipt.is_offer_accepted and headers.to is not None else None,
        acks=_told(receipt.others, headers),
        to=to or _fetched(headers.reply_to, headers),
    )
    return _envelope(200, body, headers.soap)


def refused(receipt: Receipt, headers: Headers, sender_fault: int = 500, to: EndpointReference | None = None) -> Answer:
    """The fault that a receipt has, sent ``to`` an address or not, with the acknowledgements that were asked for, and
    the final one where the sequence is closed."""
    assert receipt.fault is not None
    own = receipt.acknowledgement
    is_due = own is not None and (
        _is_asked(own, headers) or (own.final and isinstance(receipt.fault, faults.SequenceClosed))
    )
    said = (own, *receipt.others) if own is not None and is_due else receipt.others
    return fault(receipt.fault, headers, said, sender_fault=sender_fault, to=to)


def _is_asked(own: SequenceAcknowledgement, headers: Headers) -> bool:
    return any(asked.identifier == own.identifier for asked in headers.ack_requested)


def ended(
    final: SequenceAcknowledgement | None,
    headers: Headers,
    others: Sequence[SequenceAcknowledgement] = (),
    to: EndpointReference | None = None,
) -> Answer:
    """The response to CloseSequence or TerminateSequence. ``others`` are the acknowledgements that AckRequested headers
    asked for; ``to`` is the address that it is sent to, if it does not leave on the response."""
    element, rm = headers.body, headers.rm
    assert isinstance(element, CloseSequence | TerminateSequence)
    assert rm is not None
    assert headers.addressing is not None
    if not rm.has_close:  # 1.0: TerminateSequence is one-way
        return acknowledgement(headers, (final, *others) if final and _is_asked(final, headers) else others)
    acknowledgements = _told((final, *others) if final else others, headers)
    to = to or _fetched(headers.reply_to, headers)
    body = render.ending(
        headers.soap, headers.addressing, rm, headers.message_id, element, acknowledgements, to, is_response=True
    )
    return _envelope(200, body, headers.soap)


def terminating(
    end: TerminateSequence, headers: Headers, acknowledgements: Sequence[SequenceAcknowledgement] = ()
) -> Answer:
    """The end of an offered sequence on a response that has nothing of its own to say: to TerminateSequence in 1.0, or
    to an acknowledgement."""
    assert headers.rm is not None
    assert headers.addressing is not None
    relates_to = headers.message_id if isinstance(headers.body, TerminateSequence) else None
    told = _told(acknowledgements, headers)
    return _envelope(
        200, render.ending(headers.soap, headers.addressing, headers.rm, relates_to, end, told), headers.soap
    )


def acknowledgement(
    headers: Headers, acknowledgements: Sequence[SequenceAcknowledgement], to: EndpointReference | None = None
) -> Answer:
    """An acknowledgement that stands alone; empty where there is none. ``to``: it was fetched."""
    rm, addressing, own = headers.rm, headers.addressing, headers.sequence
    if not acknowledgements or rm is None or addressing is None:
        return EMPTY
    sayable = acknowledgements if rm.has_none else [ack for ack in acknowledgements if ack.ranges]
    if not sayable:
        return EMPTY  # 1.0 cannot say that nothing was accepted
    told = within(sayable, own.number if own is not None else None)
    return Answer(200, render.sequence_acknowledgement(headers.soap, addressing, rm, told, to), _SOAP[headers.soap])


def replied(
    reply: ServiceReply, headers: Headers, acknowledgements: Sequence[SequenceAcknowledgement]
) -> Answer | None:
    """The application's answer, with the acknowledgements as headers; ``None`` where it is no SOAP envelope."""
    assert headers.rm is not None
    try:
        fragment = render.reply_headers(headers.soap, headers.rm, reply.header, _told(acknowledgements, headers))
        body = piggyback(reply.body, content_type_of(reply.headers), fragment, reply.place)
    except NotAnEnvelope:
        return None
    return as_it_is(reply)._replace(body=body)


def fetched(found: Fetched, acknowledgements: Sequence[SequenceAcknowledgement]) -> Answer:
    """The answer to a MakeConnection: a message, and whether more waits. It is no answer of an application, so a
    fault has the status 200 too (MC-007)."""
    terms, told = found.terms, within(acknowledgements, None)
    fragment = render.reply_headers(terms.soap, terms.rm, found.place, told)
    body = piggyback(found.body, found.content_type, fragment + render.message_pending(found.is_pending))
    return Answer(200, body, (("Content-Type", found.content_type),))


def as_it_is(reply: ServiceReply) -> Answer:
    """The application's answer."""
    headers = tuple([(name, value) for name, value in reply.headers if name.lower() != "content-length"])
    return Answer(int(reply.status.split(" ", 1)[0]), reply.body, headers, reply.status)


def forwarded(
    reply: ServiceReply, headers: Headers, acknowledgements: Sequence[SequenceAcknowledgement], *, one_way: bool
) -> Answer:
    """The answer to a message that the application was given as it came, and answered with ``reply``: 202 to a one-way
    message that it took, and to a fault even where it answers a fault (F-024)."""
    is_taken = one_way and reply.status.startswith("200")
    is_fault_on_fault = headers.is_fault and fault_in(reply.body, content_type_of(reply.headers)) is not None
    has_nothing = bool(acknowledgements) and not reply.body and reply.status.startswith("2")
    if is_taken or is_fault_on_fault or has_nothing:
        return acknowledgement(headers, acknowledgements)
    return (replied(reply, headers, acknowledgements) if acknowledgements else None) or as_it_is(reply)


def within(
    acknowledgements: Sequence[SequenceAcknowledgement], number: int | None, most: int = MOST_RANGES
) -> Sequence[SequenceAcknowledgement]:
    """Choose at most ``most`` ranges of all ``acknowledgements``, each as it was: a range that is left out is not
    acknowledged yet, and the source asks or sends again.

    The first acknowledgement is about the request itself. Of it the range that holds ``number`` is told, or a source
    would resend for ever the message that it has just sent; then, from the lowest on, the ranges that let its window
    move. A final acknowledgement is told whole: the numbers that it leaves out were lost for good. An acknowledgement
    behind the first that finds no room is left out altogether.
    """
    if len(acknowledgements) == 1 and len(acknowledgements[0].ranges) <= most:  # nearly every answer
        return acknowledgements
    if sum(len(told.ranges) for told in acknowledgements) <= most:
        return acknowledgements
    chosen: list[SequenceAcknowledgement] = []
    left = most
    for told in acknowledgements:
        is_first = not chosen
        if len(told.ranges) > left and not told.final:
            told = told._replace(ranges=_chosen(told.ranges, number if is_first else None, max(left, 1)))
        if is_first or (told.ranges and len(told.ranges) <= left):
            chosen.append(told)
            left -= len(told.ranges)
        if left <= 0:
            break
    return chosen


def _chosen(ranges: tuple[tuple[int, int], ...], number: int | None, most: int) -> tuple[tuple[int, int], ...]:
    own = [one for one in ranges[most - 1 :] if number is not None and one[0] <= number <= one[1]]
    return (*ranges[: most - 1], *(own or ranges[most - 1 : most]))


def _told(acknowledgements: Sequence[SequenceAcknowledgement], headers: Headers) -> Sequence[SequenceAcknowledgement]:
    return within(acknowledgements, headers.sequence.number if headers.sequence is not None else None)


def _envelope(status: int, body: bytes, soap: SOAPVersion) -> Answer:
    return Answer(status, body, _SOAP[soap])


# The answers to copies of an answered message: the reply again, or the acknowledgement alone.
#
# A client that cannot use a reply drops it with the acknowledgement that comes with it, and would send for ever; a
# client that lost the reply can use it. So they go out in turn.

K = TypeVar("K", bound=Hashable)

_OLD_REPLY_MS: Final = 60_000
"""A client that still asks for a reply that left so long ago may be one that cannot use it."""
_ALWAYS_REPLIED: Final = 2
"""Copies of a message after the first, each of which gets the reply, however old that is."""
_REPEATED: Final = 100_000
"""The most messages whose copies are counted."""


class Copies:
    """Counts the copies of messages that came to this process. Where two threads count at once, one may be lacking."""

    def __init__(self) -> None:
        self._of_old: Recent[int, int] = Recent(_REPEATED)
        self._of_bare: Recent[tuple[str, int], int] = Recent(_REPEATED)

    def acknowledges_alone(self, position: int, reply_age: int) -> bool:
        """Whether this copy of a message is answered by the acknowledgement alone, from the third copy on: a restarted
        CXF client cannot correlate the reply, and drops it. ``reply_age`` in ms."""
        again = _count(self._of_old, position) - _ALWAYS_REPLIED
        return again > 0 and again % 2 == 1 and reply_age >= _OLD_REPLY_MS

    def of_bare(self, identifier: str, number: int) -> int:
        """Count an answer to a message whose reply can carry no acknowledgement, and tell how many there were: each
        second time it is the acknowledgement's turn, for without one the message would come for ever."""
        return _count(self._of_bare, (identifier, number))


def _count(counts: Recent[K, int], key: K) -> int:
    count = (counts.get(key) or 0) + 1
    counts.keep(key, count)
    return count
