"""The simple types of RM elements: identifiers, message numbers, booleans."""

from __future__ import annotations

import re
from typing import Final
from xml.etree.ElementTree import Element

from wsrm_mq.envelope.text import WHITE_SPACE

_URI: Final = re.compile(r"""[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20\x7f-\x9f"<>\\^`{|}\u2028\u2029]+""")
_MAX_DIGITS: Final = 20
_MAX_UNSIGNED_LONG: Final = 2**64 - 1


def simple_text(element: Element) -> str:
    """The text of an element without the white space around it; empty if it has child elements."""
    return "" if len(element) else (element.text or "").strip(WHITE_SPACE)


def is_absolute_uri(text: str) -> bool:
    """A scheme, and something behind it that no URI syntax forbids; non-ASCII letters pass (xs:anyURI)."""
    return _URI.fullmatch(text) is not None


def parse_identifier(identifier: str, max_bytes: int) -> str:
    """``identifier`` if it can be one of a sequence. Raises ``ValueError`` with the reason."""
    if len(identifier) > max_bytes or (not identifier.isascii() and len(identifier.encode()) > max_bytes):
        raise ValueError(f"it is longer than {max_bytes} bytes")
    if not is_absolute_uri(identifier):
        raise ValueError("it is not an absolute URI")
    return identifier


def parse_unsigned(text: str) -> int:
    """xs:unsignedLong: ASCII digits, an optional plus sign, leading zeros. Raises ``ValueError``.

    The number of digits is checked before there is an int.
    """
    digits = text.strip(WHITE_SPACE).removeprefix("+")
    if digits.isascii() and digits.isdigit():
        significant = digits.lstrip("0")
        if len(significant) <= _MAX_DIGITS:
            number = int(significant or 0)
            if number <= _MAX_UNSIGNED_LONG:
                return number
    raise ValueError("not a number of 64 bits")


def is_true(text: str | None) -> bool:
    """xs:boolean, absent being false."""
    return text is not None and text.strip(WHITE_SPACE) in ("1", "true")
