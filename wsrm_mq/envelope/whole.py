"""Checks whether a body came to its end, and whether its envelope is well-formed.

Some servers show the end of a connection as that of a chunked body, so the server proves nothing: a body that was cut
off has to be recognised by its content. Half a message that is acknowledged is lost, and its resend is a duplicate.
"""

from __future__ import annotations

from typing import Final, NoReturn
from xml.parsers import expat

from wsrm_mq.envelope.outline import expat_encoding
from wsrm_mq.envelope.stream import (
    Expanded,
    Limits,
    Source,
    Window,
    check_closed,
    ends_closed,
    envelope_in,
    malformed,
    parse_content_type,
    pieces,
)

TAIL_BYTES: Final = 512
_END: Final = b"Envelope>"
_LONGEST_PIECE: Final = 256 * 1024


def looks_whole(tail: bytes, content_type: str) -> bool:
    """Whether ``tail``, the last ``TAIL_BYTES`` of a request, is the end of an envelope, or of the last of its parts.
    That costs the same for every body. One that looks otherwise was cut off, or is in UTF-16, or ends with a comment
    or an epilogue: only ``check_whole`` tells."""
    content = parse_content_type(content_type)
    return ends_closed(tail, content) if content.is_multipart else tail.rstrip().endswith(_END)


def check_whole(source: Source, content_type: str, limits: Limits) -> None:
    """Read a body to its end. Raises ``EnvelopeError`` for one that breaks off, or goes beyond a limit behind the
    header section: it could not be read later."""
    content = parse_content_type(content_type)
    if content.is_multipart:
        check_closed(source, content)
    elif not isinstance(source, Expanded):
        check_well_formed(source, content_type, limits)
    if isinstance(source, Expanded):
        source.check_to_end()


def ends_once(source: Source, content_type: str) -> bool:
    """Whether a body that looks whole cannot have been cut off behind an envelope that it holds: the first end of one
    is the end of the body. Of parts, the closing boundary says it."""
    window = Window(source)
    return parse_content_type(content_type).is_multipart or (
        window.skip_to(_END) and not window.peek(TAIL_BYTES).strip()
    )


def check_well_formed(source: Source, content_type: str, limits: Limits) -> None:
    """Raises ``EnvelopeError`` (status 400) where the envelope, or the root part, is not well-formed to its
    end, or asks the parser to remember too much. Time grows with the body, memory does not."""
    part = envelope_in(source, content_type, limits)
    parser: expat.XMLParserType | None = None
    fed = 0
    try:
        for piece in pieces(part.source, limits.body_bytes, _LONGEST_PIECE):
            if parser is None:
                parser = _parser(expat_encoding(piece, part.content.charset), limits)
            parser.Parse(piece, False)
            fed += len(piece)
            if fed - parser.CurrentByteIndex > limits.tag_bytes + _LONGEST_PIECE:
                raise malformed(f"The body holds a tag or comment of more than {limits.tag_bytes} bytes.", status=400)
        if parser is not None:
            parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise malformed(
            f"The body is not well-formed XML: {expat.ErrorString(error.code)}, line {error.lineno}.",
            status=400,
        ) from None


def _parser(encoding: str | None, limits: Limits) -> expat.XMLParserType:
    """A parser that refuses a body with too many open elements or names: expat by itself keeps a place for each."""
    names: dict[str, str] = {}
    parser = expat.ParserCreate(encoding, intern=names)
    most_open, most_names = limits.body_depth, limits.body_names
    depth = 0

    def start(_name: str, _attributes: list[str]) -> None:
        nonlocal depth
        depth += 1
        if depth > most_open:
            raise malformed(f"The body is nested more than {most_open} deep.", status=400)
        if len(names) > most_names:
            raise malformed(
                f"The body has more than {most_names} different names of elements and attributes.", status=400
            )

    def end(_name: str) -> None:
        nonlocal depth
        depth -= 1

    parser.ordered_attributes = True
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.StartDoctypeDeclHandler = _refuse_doctype
    return parser


def _refuse_doctype(*_: object) -> NoReturn:
    raise malformed("A document type declaration is not allowed.", status=400)
