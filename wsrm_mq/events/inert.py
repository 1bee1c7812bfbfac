"""Text without effect: the text of a peer, made fit for a terminal and for a line of a log."""

from __future__ import annotations

import unicodedata
from typing import Final

_UNSAFE: Final = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Unicode categories that a terminal may act upon or hide: control, format (bidi overrides), surrogates, …"""


def type_name(value: object) -> str:
    """The name of the type of ``value``, read past its metaclass, which may raise."""
    return str(type.__dict__["__name__"].__get__(type(value)))


def as_text(value: object) -> str:
    """``str(value)``, or the name of its type where its own text raises."""
    try:
        return str(value)
    except BaseException:
        return f"{type_name(value)}, whose text cannot be read"


def as_error(error: BaseException | None) -> str:
    """An error in one text: its type and its message."""
    return f"{type_name(error)}: {as_text(error)}"


def inert(value: object, *, keep: str = "") -> str:
    """``value`` as text without effect on a terminal, and in one line; the characters of ``keep`` stay."""
    text = as_text(value)
    if text.isprintable():
        return text
    return "".join(
        char if char in keep or unicodedata.category(char) not in _UNSAFE else _escaped(char) for char in text
    )


def _escaped(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")
