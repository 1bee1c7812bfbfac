"""The encoding of a document: its byte order mark says it, else the charset of its Content-Type, else its XML
declaration.

The order is RFC 7303's. Names are Python's codec names.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
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
