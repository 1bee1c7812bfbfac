"""xs:duration to milliseconds and back.

A month counts 28 days and a year 365, the fewest they have: what is granted for one is never more than was asked
(D-CRE-008), and an Expires needs no calendar.
"""

from __future__ import annotations

import re
from typing import Final

MAX_DURATION: Final = 10**14
"""Milliseconds; some 3,170 years. Whatever is longer is taken for this."""

_PATTERN: Final = re.compile(
    r"(-?)P(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d+))?S)?)?", re.ASCII
)
_DAY: Final = 86_400_000
_UNITS: Final = (365 * _DAY, 28 * _DAY, _DAY, 3_600_000, 60_000, 1_000)
_MAX_DIGITS: Final = 18
"""More digits than this are beyond ``MAX_DURATION`` in every unit, and never become an int."""


def parse_duration(text: str) -> int | None:
    """Milliseconds, rounded down, at most ``MAX_DURATION``; ``None`` for any zero duration: never (§6 row 48).

    Raises ``ValueError`` for what is no xs:duration, for a negative one, and for one that is no whole millisecond.
    """
    text = text.strip(" \t\r\n")
    match = _PATTERN.fullmatch(text)
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
    return MAX_DURATION if len(digits) > _MAX_DIGITS else int(digits or 0) * unit


def render_duration(milliseconds: int | None) -> str:
    """``PT0S`` for never, else seconds: every stack reads ``PT600S``, not every one a month."""
    if milliseconds is None:
        return "PT0S"
    seconds, rest = divmod(milliseconds, 1_000)
    return f"PT{seconds}.{rest:03d}S" if rest else f"PT{seconds}S"
