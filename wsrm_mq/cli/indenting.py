"""XML laid out for reading. Nothing is parsed: what is broken, or cut off, is shown as far as it goes."""

from __future__ import annotations

import re
from typing import Final

_TOKEN: Final = re.compile(
    r"""
    (?P<aside> <!--.*?(?:-->|\Z) | <!\[CDATA\[.*?(?:\]\]>|\Z) | <[?!][^<>]*> )
    | (?P<close> </[^<>]*> )
    | (?P<alone> <(?: [^<>"'/] | "[^"]*" | '[^']*' | /(?!>) )+ /> )
    | (?P<open> <(?: [^<>"'/] | "[^"]*" | '[^']*' | /(?!>) )+ > )
    | (?P<text> [^<]+ | < )
    """,
    re.VERBOSE | re.DOTALL,
)
_STEP: Final = "  "
DEEPEST: Final = 20
"""Elements that are nested deeper than this are not indented further."""


def indented(text: str) -> str:
    """``text`` with each element on a line of its own; one that has only text stays in one. What is no XML stays."""
    if not text.lstrip("\ufeff \t\r\n").startswith("<"):
        return text
    lines: list[str] = []
    depth, is_open = 0, False  # is_open: the last line is a start tag, and perhaps its text
    for token in _TOKEN.finditer(text.lstrip("\ufeff")):
        kind, found = token.lastgroup, token[0]
        if kind == "text" and not found.strip():
            continue
        if kind == "close":
            depth -= 1
        if is_open and kind in ("text", "close"):
            lines[-1] += found
        else:
            lines.append(_STEP * min(max(depth, 0), DEEPEST) + found.strip())
        if kind == "open":
            depth += 1
        is_open = kind == "open" or (kind == "text" and is_open)
    return "\n".join(lines)
