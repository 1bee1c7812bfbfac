"""xs:duration to milliseconds and back.

A month counts 30 days and a year 365: an Expires of a year needs no calendar.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["MAX_DURATION", "parse_duration", "render_duration"]

MAX_DURATION: Final = 10**14
"""Milliseconds; some 3,170 years. Whatever is longer is taken for this."""

_PATTERN: Final = re.compile(
    r"(-?)P(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d+))?S)?)?", re.ASCII
)
_DAY: Final = 86_400_000
_UNITS: Final = (365 * _DAY, 30 * _DAY, _DAY, 3_600_000, 60_000, 1_000)
_MAX_DIGITS: Final = 18
"""More digits than this are beyond ``MAX_DURATION`` in every unit, and never become an int."""


def parse_duration(text: str) -> int | None:
    """Milliseconds, rounded up, at most ``MAX_DURATION``; ``None`` for any zero duration: never (§6 row 48).

    Raises ``ValueError`` for what is no xs:duration and for a negative one.
    """
    text = text.strip(" \t\r\n")
    match = _PATTERN.fullmatch(text)
    if match is None or text[-1] in "PT":
        raise ValueError("not an xs:duration")
    sign, *numbers, fraction = match.groups(default="")
    total = sum(map(_scaled, numbers, _UNITS)) + _thousandths(fraction)
    if sign and total:
        raise ValueError("a negative duration")
    return min(total, MAX_DURATION) or None


def _scaled(digits: str, unit: int) -> int:
    digits = digits.lstrip("0")
    return MAX_DURATION if len(digits) > _MAX_DIGITS else int(digits or 0) * unit


def _thousandths(fraction: str) -> int:
    """The milliseconds of a decimal fraction; the tiniest positive one still is not zero, or never."""
    return int(fraction[:3].ljust(3, "0") or 0) + (1 if fraction[3:].strip("0") else 0)


def render_duration(milliseconds: int | None) -> str:
    """``PT0S`` for never, else seconds: every stack reads ``PT600S``, not every one a month."""
    if milliseconds is None:
        return "PT0S"
    seconds, rest = divmod(milliseconds, 1_000)
    return f"PT{seconds}.{rest:03d}S" if rest else f"PT{seconds}S"
