"""The simple types of RM elements: identifiers, message numbers, booleans, durations.

A month counts 28 days and a year 365, the fewest they have: no grant is longer than the request for it (D-CRE-008), and
an Expires needs no calendar.
"""

from __future__ import annotations

import re
from typing import Final
from xml.etree.ElementTree import Element

# Texts for XML: escaped, and without the characters that XML 1.0 cannot carry.

WHITE_SPACE: Final = " \t\r\n"
"""The white space of XML; ``str.strip()`` alone would take more."""

_FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SPECIAL: Final = re.compile("[&<>\r]|[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TEXT: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"})
_ATTRIBUTE: Final = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#13;", "\n": "&#10;", "\t": "&#9;"}
)


def escape(text: str) -> str:
    """``text`` as element content."""
    if _SPECIAL.search(text) is None:
        return text
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text).translate(_TEXT)


def escape_attribute(text: str) -> str:
    """``text`` as the value of an attribute in double quotes."""
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text).translate(_ATTRIBUTE)


_URI: Final = re.compile(r"""[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20\x7f-\x9f"<>\\^`{|}\u2028\u2029]+""")
_MAX_DIGITS: Final = 20
_MAX_UNSIGNED_LONG: Final = 2**64 - 1
MAX_DURATION: Final = 10**14
"""Milliseconds; some 3,170 years. Whatever is longer is taken for this."""
_DURATION: Final = re.compile(
    r"(-?)P(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d+))?S)?)?", re.ASCII
)
_DAY: Final = 86_400_000
_UNITS: Final = (365 * _DAY, 28 * _DAY, _DAY, 3_600_000, 60_000, 1_000)
_MAX_DURATION_DIGITS: Final = 18
"""More digits than this are beyond ``MAX_DURATION`` in every unit, and never become an int."""


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


def parse_duration(text: str) -> int | None:
    """Parse an xs:duration to milliseconds, rounded down, at most ``MAX_DURATION``; ``None`` for any zero duration,
    which means never (§6 row 48).

    Raises ``ValueError`` for a text that is no xs:duration, a negative one, or one shorter than a millisecond.
    """
    text = text.strip(" \t\r\n")
    match = _DURATION.fullmatch(text)
    if match is None or text[-1] in "PT":
        raise ValueError("not an xs:duration")
    sign, *numbers, fraction = match.groups(default="")
    total = sum(map(_scaled, numbers, _UNITS)) + int(fraction[:3].ljust(3, "0"))
    is_zero = not total and not fraction.strip("0")
    if sign and not is_zero:
        raise ValueError("a negative duration")
    if not total and not is_zero:
        raise ValueError("shorter than a millisecond")
    return min(total, MAX_DURATION) or None


def _scaled(digits: str, unit: int) -> int:
    digits = digits.lstrip("0")
    return MAX_DURATION if len(digits) > _MAX_DURATION_DIGITS else int(digits or 0) * unit


def render_duration(milliseconds: int | None) -> str:
    """Render a duration: ``PT0S`` for never, else seconds. Every stack reads ``PT600S``, and some read no months."""
    if milliseconds is None:
        return "PT0S"
    seconds, rest = divmod(milliseconds, 1_000)
    return f"PT{seconds}.{rest:03d}S" if rest else f"PT{seconds}S"
