"""Text of peers and applications, as a column can have it."""

from __future__ import annotations

from typing import Final

TEXT_LENGTH: Final = 8_000
"""Characters of an error, a remark or a status: enough for people to read."""


def storable(text: str, most: int = TEXT_LENGTH) -> str:
    """The first ``most`` characters of ``text``, and how many there are where that is not all. What no UTF-8 can carry
    (lone surrogates), and NUL, at which some readers of a column stop, stand there as escapes."""
    length = len(text)
    if length > most:
        text = f"{text[:most]}… ({length} characters)"
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")
