"""Queries as they are typed in a shell."""

from __future__ import annotations

import re
import shlex
from typing import Final

from wsrm_mq.views.query import words

_PLAIN: Final = re.compile(r"[\w/.%~-]+")
"""What needs no quotes in a query."""


def typed(query: str, *more: str) -> str:
    """The words of a query and ``more`` ones, each once."""
    return " ".join(map(_quoted, dict.fromkeys((*words(query), *more))))


def queue_word(name: str) -> str:
    """The word that names a queue."""
    pieces = (f"'{piece}'" if '"' in piece else f'"{piece}"' for piece in re.split(r'("+)', name) if piece)
    return _quoted("queue:" + (name if _PLAIN.fullmatch(name) else "".join(pieces)))


def _quoted(word: str) -> str:
    """A word as a shell takes it; control characters, which no terminal is shown, as bash and zsh read them."""
    return shlex.quote(word) if word.isprintable() else f"$'{''.join(map(_spelled, word))}'"


def _spelled(one: str) -> str:
    if one in "\\'":
        return f"\\{one}"
    return one if one.isprintable() else f"\\U{ord(one):08x}"
