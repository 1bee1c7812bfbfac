"""Text that does nothing: what a peer wrote, fit for a terminal and for a line of a log."""

from __future__ import annotations

import unicodedata
from typing import Final

__all__ = ["inert"]

_UNSAFE: Final = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Unicode categories that a terminal may act upon or hide: control, format (bidi overrides), surrogates, …"""


def inert(value: object, *, keep: str = "") -> str:
    """``value`` as text without effect on a terminal, and in one line; the characters of ``keep`` stay."""
    text = str(value)
    if text.isprintable():
        return text
    return "".join(
        char if char in keep or unicodedata.category(char) not in _UNSAFE else _escaped(char) for char in text
    )


def _escaped(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")
