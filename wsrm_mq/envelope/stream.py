"""The bytes of a request: their limits, their Content-Type, a gzip body expanded within bounds before any of it is
parsed (SEC-026), the envelope among them, which may be a part of several, its encoding, and whether it is whole.
"""

from __future__ import annotations

import codecs
import io
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, NoReturn, Protocol
from xml.parsers import expat

from wsrm_mq.errors import EnvelopeError
from wsrm_mq.sequence.faults import MalformedMessage
from wsrm_mq.versions import SOAPVersion


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one request. All counts are of the part that is read, up to Body's first child.

    ``header_bytes`` bounds everything that grows with the input (names, attribute values, namespace declarations,
    text); the other bounds are of things that are more expensive than their bytes.
    """

    header_bytes: int = 256 * 1024
    depth: int = 100
    elements: int = 5_000
    attributes: int = 200
    """Attributes of one element."""
    identifier_bytes: int = 1_024
    """Bytes of a sequence identifier, in UTF-8."""
    parameter_bytes: int = 8_192
    """Bytes of all reference parameters of one endpoint reference."""
    part_header_bytes: int = 16 * 1024
    """Bytes of the MIME headers of one part of a multipart/related body."""
    parts: int = 1_000
    """Parts of a multipart/related body, in front of the root part and with it."""
    ack_requested: int = 16
    """AckRequested headers of one request; as many SequenceAcknowledgement headers are looked at."""
    body_depth: int = 1_000
    """The depth of a body that is read to its end to see whether it is well-formed. The two bounds below are of such a
    body too."""
    body_names: int = 20_000
    """Different names of elements and attributes: a parser keeps each."""
    tag_bytes: int = 1024 * 1024
    """Bytes of one tag or comment: a parser holds it as a whole, and begins anew with every piece of it."""
    body_bytes: int = 64 * 1024 * 1024
    """Bytes of a body after ``expand``."""
    expansion_ratio: int = 200
    """Expanded to compressed; looked at from the first mebibyte on."""
    strict_addressing: bool = False
    """Refuse requests without headers that WS-Addressing demands and some stacks leave out: MessageID on lifecycle
    requests, and ReplyTo on a CreateSequence with WS-Addressing 2004/08 (D-CRE-028, A-006)."""


# Content-Type: media type, parameters, and what they say about the envelope.


_PARAMETER = re.compile(r';\s*([^\s=;"]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;]*))')
_ESCAPED = re.compile(r"\\(.)")


class ContentType(NamedTuple):
    """``media_type`` and the names of ``parameters`` are in lower case; values are as sent."""

    media_type: str
    parameters: Mapping[str, str]
    is_multipart: bool

    @property
    def charset(self) -> str | None:
        """The charset under its canonical name, ``None`` without one or with an unknown one."""
        try:
            return codecs.lookup(self.parameters["charset"].strip()).name
        except (KeyError, LookupError, ValueError):
            return None


def content_type_of(fields: Iterable[tuple[str, str]]) -> str:
    """The Content-Type among the header fields of an HTTP message; empty without one."""
    return next((value for name, value in fields if name.lower() == "content-type"), "")


@lru_cache(maxsize=256)
def parse_content_type(value: str) -> ContentType:
    """Reads a Content-Type field value; anything at all gives some answer, an empty one ``("", {})``."""
    media_type, _, _ = value.partition(";")
    parameters: dict[str, str] = {}
    for name, quoted, token in _PARAMETER.findall(value):
        parameters.setdefault(name.lower(), _ESCAPED.sub(r"\1", quoted) if quoted else token.strip())
    media_type = media_type.strip().lower()
    return ContentType(media_type, parameters, media_type == "multipart/related")


def soap_version_of(content_type: str) -> SOAPVersion:
    """The SOAP version to answer in while the envelope itself is unreadable."""
    content = parse_content_type(content_type)
    declared = (content.media_type, content.parameters.get("type", ""), content.parameters.get("start-info", ""))
    return SOAPVersion.SOAP_1_2 if any("soap+xml" in d for d in declared) else SOAPVersion.SOAP_1_1


def malformed(reason: str, identifier: str | None = None, *, status: int | None = None) -> EnvelopeError:
    """The error for a message that breaks a rule of its form. ``status``: the HTTP status of the answer, where that is
    not the one of a fault."""
    return EnvelopeError(MalformedMessage(reason, identifier), status=status)


# The source of a request body: memory, or a file, which may be a part of another or one expanded.

_FIRST_PIECE: Final = 4_096


class Readable(Protocol):
    """A file, as far as it is needed: ``read`` gives at most ``size`` bytes, none at the end."""

    def read(self, size: int, /) -> bytes: ...


Source = bytes | Readable


def readable(source: Source) -> Readable:
    """``source`` as a file. Bytes are not copied as a whole."""
    return io.BytesIO(source) if isinstance(source, bytes) else source


def pieces(source: Source, limit: int, longest: int | None = None) -> Iterator[bytes]:
    """``source`` in growing pieces, up to ``limit`` bytes in all, none longer than ``longest``.

    Short reads are joined: expat looks at an unfinished tag again with every piece, so tiny ones would be
    slow.
    """
    read, size = readable(source).read, _FIRST_PIECE
    while limit > 0:
        size = min(size, limit if longest is None else min(limit, longest))
        piece = read(size)
        if 0 < len(piece) < size:
            parts = [piece]
            missing = size - len(piece)
            while missing and (part := read(missing)):
                parts.append(part)
                missing -= len(part)
            piece = b"".join(parts)
        if not piece:
            return
        yield piece
        limit -= len(piece)
        size *= 2


_EXPANDED_AT_A_TIME: Final = 16 * 1024
_RATIO_FROM: Final = 1024 * 1024
"""Expanded bytes from which on the ratio counts: a small envelope full of spaces is no bomb."""
_GZIP: Final = 16 + zlib.MAX_WBITS
_ALIASES: Final = {"x-gzip": "gzip", "identity": ""}


def content_coding(field: str) -> str:
    """The value of a Content-Encoding in one spelling: ``gzip``, empty for none, any other in lower case."""
    name = field.strip().lower()
    return _ALIASES.get(name, name)


def expand(source: Source, limits: Limits) -> Expanded:
    """The body of a request with ``Content-Encoding: gzip``. Nothing is read before the first ``read``."""
    return Expanded(readable(source), limits)


class Expanded:
    """A gzip body, expanded while it is read. ``read`` raises ``EnvelopeError``: status 413 beyond a limit, 400 for a
    stream that is not whole or not gzip."""

    def __init__(self, source: Readable, limits: Limits) -> None:
        self._source = source
        self._limits = limits
        self._member = zlib.decompressobj(_GZIP)
        self._compressed = b""
        self._read = 0
        self._written = 0

    def read(self, size: int = -1, /) -> bytes:
        """At most ``size`` bytes, none at the end; everything with -1."""
        if size == 0:
            return b""
        if size < 0:
            return b"".join(iter(lambda: self.read(_EXPANDED_AT_A_TIME), b""))
        while True:
            if self._member.eof and not self._next_member():
                return b""
            if not self._compressed:
                self._compressed = self._source.read(_EXPANDED_AT_A_TIME)
                self._read += len(self._compressed)
                ended = not self._compressed
            else:
                ended = False
            try:
                piece = self._member.decompress(self._compressed, size)
            except zlib.error:
                raise malformed("The request body is not valid gzip.", status=400) from None
            self._compressed = self._member.unconsumed_tail
            if piece:
                self._written += len(piece)
                self._check()
                return piece
            if ended and not self._member.eof:
                raise malformed("The gzip body breaks off.", status=400)

    def check_to_end(self) -> None:
        """Read the rest, so that an error in it is raised."""
        while self.read(_EXPANDED_AT_A_TIME):
            pass

    def _next_member(self) -> bool:
        """Begin the next member of the stream. Bytes behind a member have to be a member as well."""
        self._compressed = self._member.unused_data or self._source.read(_EXPANDED_AT_A_TIME)
        if not self._compressed:
            return False
        self._member = zlib.decompressobj(_GZIP)
        return True

    def _check(self) -> None:
        limits = self._limits
        if self._written > limits.body_bytes:
            raise malformed(f"The request body expands to more than {limits.body_bytes} bytes.", status=413)
        if self._written > _RATIO_FROM and self._written > limits.expansion_ratio * self._read:
            raise malformed(
                f"The request body expands to more than {limits.expansion_ratio} times its size.", status=413
            )


# The envelope in a body: the body itself, or the root part of a multipart/related one (RFC 2387), which has a
# message with attachments or MTOM. Nothing is copied but the pieces that are looked at; the part ends where its
# boundary is, wherever a reader stops.


_AHEAD: Final = 8 * 1024
_PLAIN: Final = frozenset(("", "7bit", "8bit", "binary"))
_MAX_BOUNDARY: Final = 200
"""RFC 2046 allows 70."""
_PADDING: Final = 256
"""Bytes behind a closing boundary that are looked at."""
_LINE_END: Final = re.compile(rb"[ \t]*(?:\r?\n|\r?\Z)")


class _PartStream:
    """Reads a part, never beyond its boundary."""

    def __init__(self, window: Window, boundary: bytes) -> None:
        self._window = window
        self._boundary = boundary

    def read(self, size: int, /) -> bytes:
        """At most ``size`` bytes, fewer only at the end of the part."""
        ahead = self._window.peek(size + len(self._boundary))
        end = ahead.find(self._boundary)
        if end > 0 and ahead[end - 1 : end] == b"\r":
            end -= 1  # the line end before a boundary belongs to the boundary
        return self._window.take(size if end < 0 else min(size, end))


class Part(NamedTuple):
    """The part of a body that is its envelope: its bytes, its Content-Type, and the place in the body where it
    begins."""

    source: Source
    content: ContentType
    offset: int


def envelope_in(source: Source, content_type: str, limits: Limits) -> Part:
    """Find the envelope in a body: the part that ``start`` names, else the first; the whole body where it is not
    multipart. Raises ``EnvelopeError`` if there is no such part."""
    content = parse_content_type(content_type)
    return _root_part(source, content, limits) if content.is_multipart else Part(source, content, 0)


def _root_part(source: Source, content: ContentType, limits: Limits) -> Part:
    boundary = _boundary(content)
    wanted = content.parameters.get("start", "").strip().strip("<>")
    window = Window(source)
    # A boundary is always at the start of a line. The first one of a body may have no line end before it.
    between = b"\n--" + boundary
    found = window.starts_with(between[1:]) or window.skip_to(between)
    count = 0
    while found and not window.starts_with(b"--") and window.skip_to(b"\n"):
        count += 1
        if count > limits.parts:
            raise malformed(f"The root part is not among the first {limits.parts} parts.", status=400)
        fields = _part_header(window, limits)
        if (count == 1 and not wanted) or (wanted and fields.get("content-id", "").strip("<>") == wanted):
            if fields.get("content-transfer-encoding", "").lower() not in _PLAIN:
                raise malformed(
                    "The root part has a content transfer encoding; only 7bit, 8bit and binary are read.", status=400
                )
            described = parse_content_type(fields.get("content-type", ""))
            return Part(_PartStream(window, between), described, window.position)
        found = window.skip_to(between)
    raise malformed("The multipart body has no root part.", status=400)


def ends_closed(tail: bytes, content: ContentType) -> bool:
    """Whether ``tail``, the last bytes of a body, is its closing boundary. In front of an epilogue it may stand where
    only ``check_closed`` finds it."""
    return tail.rstrip(b" \t\r\n").endswith(b"\n--" + _boundary(content) + b"--")


def check_closed(source: Source, content: ContentType) -> None:
    """Raises ``EnvelopeError`` (status 400) where the closing boundary is missing: the body breaks off."""
    window = Window(source)
    closing = b"\n--" + _boundary(content) + b"--"
    while window.skip_to(closing):
        if _LINE_END.match(window.peek(_PADDING)):
            return
    raise malformed("The multipart body breaks off: its closing boundary is missing.", status=400)


def _boundary(content: ContentType) -> bytes:
    boundary = content.parameters.get("boundary", "").encode("latin-1", "replace")
    if not boundary or len(boundary) > _MAX_BOUNDARY:
        raise malformed("The multipart body has no usable boundary.", status=400)
    return boundary


def _part_header(window: Window, limits: Limits) -> dict[str, str]:
    """The MIME header fields of the part at the window; the window is behind their empty line afterwards."""
    block = window.peek(limits.part_header_bytes)
    lines: list[str] = []
    position = 0
    while (end := block.find(b"\n", position)) >= 0:
        line = block[position:end].rstrip(b"\r").decode("latin-1")
        position = end + 1
        if not line:
            window.take(position)
            return {name.strip().lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
        if line[0] in " \t" and lines:
            lines[-1] += " " + line.strip()
        else:
            lines.append(line)
    raise malformed("The header of a MIME part does not end.", status=400)


class Window:
    """A source seen through a buffer that only moves forward. ``position`` is that of its first byte."""

    def __init__(self, source: Source) -> None:
        self.position = 0
        self._buffer = b""
        self._source = readable(source)

    def peek(self, size: int) -> bytes:
        """The next ``size`` bytes without taking them, fewer at the end of the source."""
        while len(self._buffer) < size:
            piece = self._source.read(max(size - len(self._buffer), _AHEAD))
            if not piece:
                break
            self._buffer += piece
        return self._buffer[:size]

    def take(self, size: int) -> bytes:
        """Takes up to ``size`` bytes that were peeked at."""
        piece, self._buffer = self._buffer[:size], self._buffer[size:]
        self.position += len(piece)
        return piece

    def skip_to(self, token: bytes) -> bool:
        """Moves behind the next ``token``; false if there is none."""
        while True:
            ahead = self.peek(_AHEAD)
            found = ahead.find(token)
            if found >= 0:
                self.take(found + len(token))
                return True
            if len(ahead) < _AHEAD:
                return False
            self.take(len(ahead) - len(token))

    def starts_with(self, token: bytes) -> bool:
        """Takes ``token`` if it is next."""
        return self.peek(len(token)) == token and bool(self.take(len(token)))


# The encoding of a document: its byte order mark says it, else the charset of its Content-Type, else its XML
# declaration.
#
# The order is RFC 7303's. Names are Python's codec names.

_MARKS: Final = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_ALL_MARKS: Final = tuple(mark for mark, _ in _MARKS)
_UNMARKED: Final = ((b"<\0", "utf-16-le"), (b"\0<", "utf-16-be"))
_DECLARED: Final = re.compile(rb"""<\?xml[^>]*?\sencoding\s*=\s*["']([A-Za-z0-9._-]+)["']""")

_NOT_SO: Final = ("utf-16", "utf-32", "utf-8")
"""Codecs that a declaration cannot mean, since it was read as ASCII; and ``utf-8-sig``, which would write a mark in the
middle."""

_EXPAT_NAMES: Final = {
    "utf-8": "UTF-8",
    "ascii": "UTF-8",  # what text/xml meant without a charset: never what was sent
    "utf-16": "UTF-16",
    "utf-16-le": "UTF-16LE",
    "utf-16-be": "UTF-16BE",
    "iso8859-1": "ISO-8859-1",
}


def expat_encoding(start: bytes, charset: str | None) -> str | None:
    """The encoding to impose on expat for a document that begins so; ``None`` lets it see for itself."""
    if charset is None or start.startswith(_ALL_MARKS):
        return None
    return _EXPAT_NAMES.get(charset, charset)


def codec_of(start: bytes, charset: str | None) -> str:
    """The codec of a document, of which ``start`` holds at least the XML declaration."""
    for mark, codec in _MARKS:
        if start.startswith(mark):
            return codec
    if charset is not None and charset not in ("utf-16", "ascii"):
        return charset
    for opening, codec in _UNMARKED:
        if start.startswith(opening):
            return codec
    declared = _DECLARED.match(start)
    try:
        codec = codecs.lookup(declared[1].decode("ascii")).name if declared else "utf-8"
    except LookupError:
        return "utf-8"
    return "utf-8" if codec.startswith(_NOT_SO) else codec


# Whether a body came to its end, and whether its envelope is well-formed.
#
# Some servers show the end of a connection as that of a chunked body, so the server proves nothing: a body that was cut
# off has to be recognised by its content. Half a message that is acknowledged is lost, and its resend is a duplicate.


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
    parser.StartDoctypeDeclHandler = refuse_doctype
    return parser


def refuse_doctype(*_: object) -> NoReturn:
    raise malformed("A document type declaration is not allowed in a SOAP message.", status=400)
