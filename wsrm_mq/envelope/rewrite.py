"""Requests for applications that trip over RM headers: ``headers="demote"`` and ``headers="strip"``.

Only the bytes of the header blocks in question change. Everything else stays as it came, so that a signature
over Body, and over every other header, still holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from wsrm_mq.envelope.headers import Headers
from wsrm_mq.envelope.spans import Document, Span, locate
from wsrm_mq.envelope.text import WHITE_SPACE
from wsrm_mq.versions import ADDRESSING_VERSIONS, RM_VERSIONS

_OFF: Final = {"1": "0", "true": "false"}
_ATTRIBUTE: Final = re.compile(r"""\s([^\s=]+)\s*=\s*("[^"]*"|'[^']*')""")


class _Edit(NamedTuple):
    start: int
    stop: int
    replacement: bytes


def demote(body: bytes, headers: Headers) -> bytes:
    """``body`` with mustUnderstand switched off on the header blocks of WS-RM and WS-Addressing."""
    document = locate(body, headers.charset, headers.offset)
    ours = {*RM_VERSIONS, *ADDRESSING_VERSIONS}
    blocks = (block for block in header_blocks(document) if block.namespace in ours)
    return _edited(body, [edit for block in blocks for edit in _switched_off(document, block, headers)])


def strip(body: bytes, headers: Headers) -> bytes:
    """``body`` without the header blocks of WS-RM."""
    document = locate(body, headers.charset, headers.offset)
    return cut(body, (block for block in header_blocks(document) if block.namespace in RM_VERSIONS))


def header_blocks(document: Document) -> Iterator[Span]:
    """The complete header blocks."""
    for span in document.spans:
        header = span.parent
        is_block = header is not None and header.parent is document.spans[0] and header.local == "Header"
        if is_block and span.stop >= 0:
            yield span


def cut(body: bytes, spans: Iterable[Span]) -> bytes:
    """``body`` without ``spans``, which are in ascending order and do not overlap."""
    return _edited(body, [_Edit(span.start, span.stop, b"") for span in spans])


def _switched_off(document: Document, block: Span, headers: Headers) -> Iterator[_Edit]:
    tag = document.text(block.start, block.content)
    names = {f"{prefix}:mustUnderstand" for prefix, ns in block.inner.items() if ns == headers.soap.namespace}
    for attribute in _ATTRIBUTE.finditer(tag):
        name, quoted = attribute.groups()
        value = quoted[1:-1].strip(WHITE_SPACE)
        if name in names and value in _OFF:
            before = tag[: attribute.start(2) + quoted.index(value)]
            start = block.start + len(before.encode(document.codec))
            yield _Edit(start, start + len(value.encode(document.codec)), _OFF[value].encode(document.codec))


def _edited(body: bytes, edits: list[_Edit]) -> bytes:
    """``edits`` are in ascending order and do not overlap. The body is copied once."""
    whole = memoryview(body)
    pieces: list[bytes | memoryview] = []
    position = 0
    for edit in edits:
        pieces += (whole[position : edit.start], edit.replacement)
        position = edit.stop
    return b"".join((*pieces, whole[position:]))
