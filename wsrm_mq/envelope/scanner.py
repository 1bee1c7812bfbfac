"""``scan`` with a memory for messages that are alike.

A source writes the header section of all its messages alike, but for three values: the sequence's Identifier, the
MessageNumber and the MessageID. Of a message that was scanned, the bytes around these values are kept. A message that
has the same bytes there is the same XML with other text in three elements, so its headers are known without parsing.

The equality is of bytes, from the first one to the start tag of Body's first child: nothing that ``scan`` looks at is
taken on trust. Whatever does not fit goes to ``scan``, and so does every doubt. It gives 45 of about 55 µs a message.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from wsrm_mq.envelope.headers import Headers
from wsrm_mq.envelope.outline import Outline
from wsrm_mq.envelope.scan import scan
from wsrm_mq.envelope.stream import Limits, Source
from wsrm_mq.sequence.elements import SequenceHeader

_KINDS: Final = 256
"""Kinds of messages in the cache."""
_LONGEST: Final = 8_192
"""Bytes of a header section that is kept."""

_START: Final = rb"<(?:[\w.-]+:)?(MessageNumber|MessageID|Identifier)"
_ANY: Final = re.compile(_START + rb"(?![\w.:-])")
_FIELD: Final = re.compile(_START + rb"(?:\s[^<>]*)?>([^<>&]+)</")
_VALUE: Final = {
    b"Identifier": re.compile(rb"([A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9:._/#?=+%~-]+)"),
    b"MessageID": re.compile(rb"([A-Za-z0-9:._/#?=+%~-]+)"),
    b"MessageNumber": re.compile(rb"[ \t\r\n]*([0-9]{1,18})[ \t\r\n]*"),
}
"""Text that can be put for another of its kind and means nothing else to an XML parser."""
_START_TAG: Final = re.compile(rb"""<(?:[^<>"']|"[^<"]*"|'[^<']*')*>""")

Match = Callable[[bytes, int], re.Match[bytes] | None]


class _Alike(NamedTuple):
    """The parts that messages have in common: their headers, and the bytes around each of the fields."""

    headers: Headers
    """The headers that they have in common, but for the fields."""
    before: bytes
    """The bytes before the first field."""
    fields: list[tuple[bytes, Match, bytes]]
    """(local name, pattern of its text, bytes that follow it), in the order of the document."""


class Scanner:
    """Scans with one set of limits. May be used by several threads at a time."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._longest = min(_LONGEST, limits.header_bytes)
        self._known: dict[tuple[str, str | None, bytes], _Alike] = {}

    def scan(self, source: Source, content_type: str, soap_action: str | None = None) -> Headers:
        """Answers and raises as ``scan`` does."""
        first = _FIELD.search(source, 0, self._longest) if isinstance(source, bytes) else None
        if first is None or len(content_type) + len(soap_action or "") > _LONGEST:  # the sender chooses them
            return scan(source, content_type, soap_action, self._limits)
        assert isinstance(source, bytes)
        key = (content_type, soap_action, source[: first.start(2)])
        known = self._known.get(key)
        headers = self._recognise(source, known) if known is not None else None
        if headers is not None:
            return headers
        outline = Outline()
        headers = scan(source, content_type, soap_action, self._limits, outline)
        alike = _alike(source, outline.first_in_body, headers)
        if alike is not None:
            if len(self._known) >= _KINDS:
                self._known = {}
            self._known[key] = alike
        return headers

    def _recognise(self, source: bytes, known: _Alike) -> Headers | None:
        """The headers of ``source``, which begins as they do, if all of it is alike."""
        position = len(known.before)
        found: dict[bytes, str] = {}
        for name, match, following in known.fields:
            text = match(source, position)
            if text is None or not source.startswith(following, end := text.end()):
                return None
            found[name] = text[1].decode("ascii")
            position = end + len(following)
        sequence = known.headers.sequence
        identifier, number = found[b"Identifier"], int(found[b"MessageNumber"])
        if number == 0 or position > self._longest or len(identifier) > self._limits.identifier_bytes:
            return None
        assert sequence is not None
        return known.headers._replace(
            sequence=SequenceHeader(identifier, number, sequence.last), message_id=found.get(b"MessageID")
        )


def _alike(source: bytes, first_in_body: int | None, headers: Headers) -> _Alike | None:
    """The parts of a message to remember; ``None`` where its three values are not three plain texts, each in the only
    element of its name."""
    if first_in_body is None or headers.sequence is None or headers.offset:
        return None
    start_tag = _START_TAG.match(source, first_in_body)
    if start_tag is None or start_tag.end() > _LONGEST:
        return None
    head = source[: start_tag.end()]
    if not head.isascii() or b"<!" in head or b"<?" in head[1:]:
        return None
    found = list(_FIELD.finditer(head))
    names = [field[1] for field in found]
    if len(set(names)) < len(names) or len(names) != len(_ANY.findall(head)):
        return None
    meant = {b"MessageNumber": str(headers.sequence.number), b"Identifier": headers.sequence.identifier}
    if headers.message_id is not None:
        meant[b"MessageID"] = headers.message_id
    if set(names) != set(meant):
        return None
    after: list[tuple[bytes, Match, bytes]] = []
    ends = [field.start(2) for field in found[1:]] + [len(head)]
    for field, end in zip(found, ends, strict=True):
        text = _VALUE[field[1]].fullmatch(field[2])
        if text is None or text[1].decode("ascii") != meant[field[1]]:
            return None
        after.append((field[1], _VALUE[field[1]].match, head[field.end(2) : end]))
    return _Alike(headers._replace(alike=object()), head[: found[0].start(2)], after)
