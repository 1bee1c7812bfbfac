"""Texts for XML: escaped, and without the characters that XML 1.0 cannot carry."""

from __future__ import annotations

import re
from typing import Final

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
