"""Numbers, times and texts in words for people."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from wsrm_mq.errors import NotFound

LINE: Final = 200
"""The most characters of an error that are told in a sentence."""

ELLIPSIS: Final = "…"
"""Stands for what was cut off a name: what is copied with it means the same."""


def the_one(found: Sequence[str], text: str, what: str, nothing: str) -> str:
    """The only one that ``text`` fits. Raises ``NotFound``: in the words of ``nothing`` where there is none, and with
    the first three of several."""
    if not found:
        raise NotFound(nothing)
    if len(found) > 1:
        several = ", ".join(found[:3]) + (", …" if len(found) > 3 else "")
        raise NotFound(f"{text} fits several {what}: {several}. Write more of it.")
    return found[0]


def counted(number: int, one: str, many: str | None = None) -> str:
    """``many`` is ``one`` with an s, unless it is given."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def moment(at: int) -> str:
    """ms since the epoch, to the second, in UTC: the same for every reader."""
    try:
        return datetime.fromtimestamp(at // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{at} ms"


_UNITS: Final = ((2 * 86_400_000, 86_400_000, "days"), (7_200_000, 3_600_000, "h"), (120_000, 60_000, "min"))


def span(ms: int) -> str:
    """A length of time, in the largest unit that is not coarse: 90 s, 5 min, 3 h, 2 days."""
    for least, unit, name in _UNITS:
        if ms >= least:
            return f"{ms // unit} {name}"
    return f"{max(0, ms) // 1000} s" if ms >= 1000 or ms <= 0 else f"{ms} ms"


def size(count: int) -> str:
    """A number of bytes, in a unit that people read."""
    for unit, least in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= least:
            return f"{count / least:.1f} {unit}"
    return f"{count / 1e3:.1f} kB"


def first_line(error: str, most: int = LINE) -> str:
    """At most so many characters of it; the rest, a traceback perhaps, is in ``message show``."""
    line = next((line for line in error.split("\n") if line.strip()), "")
    return line if len(line) <= most else f"{line[: most - 1]}…"


def operation_of(action: str) -> str:
    """The last part of an action: ``place_order`` of ``urn:example:orders/place_order``."""
    return re.split(r"[/#:]", action.rstrip("/#:"))[-1] or action
