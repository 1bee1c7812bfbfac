"""``scan``: the RM and addressing headers of a request, without its body.

Reading is lenient where stacks are known to err and strict where the meaning would be in doubt (conformance
§6). A message without RM is the wrapped application's business: no rule but those of ``outline`` is applied
to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeVar

from wsrm_mq.envelope.content import parse_content_type
from wsrm_mq.envelope.headers import Headers, RMBody
from wsrm_mq.envelope.limits import Limits
from wsrm_mq.envelope.multipart import root_part
from wsrm_mq.envelope.outline import Node, Outline, read_outline
from wsrm_mq.envelope.reading import Reader
from wsrm_mq.envelope.rules import Request, first_fault
from wsrm_mq.envelope.seen import Seen, split_name
from wsrm_mq.envelope.source import Source
from wsrm_mq.errors import EnvelopeError
from wsrm_mq.sequence.elements import AckRequested, EndpointReference, SequenceAcknowledgement, SequenceHeader
from wsrm_mq.sequence.faults import InvalidAddressingHeader
from wsrm_mq.versions import RM_VERSIONS, WSA_2005, WSRM_1_1, SOAPVersion

__all__ = ["scan"]

_DEFAULT_LIMITS: Final = Limits()
_SECURITY_MARKERS: Final = ("UsesSequenceSTR", "UsesSequenceSSL")
_Element = TypeVar("_Element")


def scan(
    source: Source, content_type: str, soap_action: str | None = None, limits: Limits = _DEFAULT_LIMITS
) -> Headers:
    """Reads ``source`` (bytes, or anything with ``read(size)``) as far as the start tag of Body's first
    child.

    ``content_type`` and ``soap_action`` are the HTTP fields as sent. A file is left wherever reading stopped.
    Raises ``EnvelopeError`` with the fault to answer; its ``context`` is what could be read of the headers.
    """
    content = parse_content_type(content_type)
    http_action, charset, offset = content.parameters.get("action"), content.charset, 0
    if content.is_multipart:
        part = root_part(source, content, limits)
        source, charset, offset = part.stream, part.content.charset, part.stream.offset
        http_action = part.content.parameters.get("action") if http_action is None else http_action
    outline = Outline()
    try:
        read_outline(source, charset, limits, outline)
        soap = outline.soap
        assert soap is not None  # the pass ends well only inside an envelope
        seen = Seen(outline, soap)
        if seen.rms:
            http_action = soap_action if soap is SOAPVersion.SOAP_1_1 else http_action
            fault = first_fault(Request(seen, http_action, limits))
            if fault is not None:
                raise EnvelopeError(fault)
        return _headers(seen, limits, charset, offset, strict=bool(seen.rms))
    except EnvelopeError as error:
        if outline.soap is not None:
            error.context = _headers(Seen(outline, outline.soap), limits, charset, offset, strict=False)
        raise


class _RMElements(NamedTuple):
    sequence: SequenceHeader | None = None
    ack_requested: tuple[AckRequested, ...] = ()
    acknowledgements: tuple[SequenceAcknowledgement, ...] = ()
    body: RMBody | None = None


_NONE: Final = _RMElements()


def _headers(seen: Seen, limits: Limits, charset: str | None, offset: int, *, strict: bool) -> Headers:
    """``strict``: with the RM elements; whatever is malformed raises ``EnvelopeError``. Else it is left
    out."""
    rm = seen.rms[0] if seen.rms else None
    addressing = seen.addressings[0] if seen.addressings else None
    reader = Reader(rm or WSRM_1_1, addressing or WSA_2005, limits, seen.outline.pieces, charset)
    elements = _rm_elements(seen, reader) if strict else _NONE
    blocks, text = seen.addressing_blocks, seen.text
    return Headers(
        seen.soap,
        addressing,
        rm,
        seen.action,
        text("MessageID"),
        text("To"),
        text("RelatesTo"),
        _endpoint(blocks.get("ReplyTo"), reader, strict),
        _endpoint(blocks.get("FaultTo"), reader, strict),
        *elements,
        seen.body_name,
        tuple(seen.mandatory),
        charset,
        offset,
    )


def _endpoint(block: Node | None, reader: Reader, strict: bool) -> EndpointReference | None:
    if block is None:
        return None
    try:
        return reader.endpoint(block)
    except ValueError as error:
        if not strict:
            return None
        header = split_name(block.name)[1]
        raise EnvelopeError(
            InvalidAddressingHeader(
                f"The addressing header {header} cannot be used.", header=header, detail_code=str(error)
            )
        ) from None


def _rm_elements(seen: Seen, reader: Reader) -> _RMElements:
    blocks = seen.rm_blocks
    sequence = next(map(reader.sequence, blocks.get("Sequence", ())), None)
    riding = sequence is not None
    body = None
    if seen.outline.body is not None and seen.body_name is not None and seen.body_name[0] in RM_VERSIONS:
        uses_security = next((local for local in _SECURITY_MARKERS if local in blocks), None)
        body = reader.body(seen.outline.body, uses_security)
    return _RMElements(
        sequence,
        # an error in a header that only rides along does not stop the message that carries it (§6 row 44)
        tuple(dict.fromkeys(_each(reader.ack_requested, blocks.get("AckRequested"), forgiving=riding))),
        tuple(_each(reader.acknowledgement, blocks.get("SequenceAcknowledgement"), forgiving=True)),
        body,
    )


def _each(read: Callable[[Node], _Element], blocks: list[Node] | None, forgiving: bool) -> Iterator[_Element]:
    for block in blocks or ():
        try:
            yield read(block)
        except EnvelopeError:
            if not forgiving:
                raise
