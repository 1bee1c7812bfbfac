"""Names by a part of them: identifiers of sequences that are short enough to read and to type, and what a beginning may
mean."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import Final

from sqlalchemy import bindparam, func, select

from wsrm_mq.errors import NotFound
from wsrm_mq.store import published as views
from wsrm_mq.store.compiling import compiled
from wsrm_mq.store.port import Database
from wsrm_mq.views.query import PART, Query

SHORTEST: Final = 6
"""So many characters of an identifier may stand for it, at least."""

SHOWN: Final = 8
"""So many characters of one are shown, at least."""

ELLIPSIS: Final = "…"
"""Stands for what was cut off a name: what is copied with it means the same."""

_UUID: Final = "urn:uuid:"
_SCHEMES: Final = ("", _UUID, "uuid:")
_BEYOND: Final = chr(0x10FFFF)

p = bindparam
_sequence: Final = views.sequences.c.sequence
_NAMES: Final = select(_sequence).order_by(_sequence)
_EXISTS: Final = compiled(_NAMES.where(_sequence == p("part")))
_BEGINNING: Final = compiled(_NAMES.where(_sequence >= p("first"), _sequence < p("last")).limit(p("count")))
_queue: Final = views.queues.c.queue
_QUEUES: Final = compiled(
    select(_queue).where(_queue >= p("first"), _queue < p("last")).order_by(_queue).limit(p("count"))
)
_ENDING: Final = compiled(
    _NAMES.where(func.substr(_sequence, -func.length(p("part"))) == p("part")).limit(4),
)
_outgoing: Final = views.outgoing_sequences.c
_ANSWERED: Final = compiled(
    select(_outgoing.answers).where(_outgoing.sequence >= p("first"), _outgoing.sequence < p("last")).limit(4)
)
_BEFORE: Final = compiled(select(_sequence).where(_sequence < p("name")).order_by(_sequence.desc()).limit(1))
_BEHIND: Final = compiled(_NAMES.where(_sequence > p("name")).limit(1))


def find_sequence(db: Database, text: str) -> str:
    """The identifier that ``text`` means: itself, the only one that begins with it (the beginning of a UUID counts
    too), or the only one that ends with it; else the one whose replies go out in an outgoing sequence that begins so.
    Raises ``NotFound``, also where it fits several."""
    part = text.strip(ELLIPSIS)
    if is_sequence(db, part):
        return part
    if len(part) < SHORTEST:
        raise NotFound(f"There is no sequence {text}; a part of an identifier needs {SHORTEST} characters.")
    found = [name for scheme in _SCHEMES for name in _beginning(db, scheme + part)]
    found = found or [name for (name,) in db.execute(_ENDING, {"part": part})]
    found = found or [name for (name,) in db.execute(_ANSWERED, {"first": part, "last": part + _BEYOND})]
    if not found:
        raise NotFound(f"There is no sequence {text}.")
    if len(found) > 1:
        several = ", ".join(found[:3]) + (", …" if len(found) > 3 else "")
        raise NotFound(f"{text} fits several sequences: {several}. Write more of it.")
    return found[0]


def is_sequence(db: Database, text: str) -> bool:
    """Whether it is the identifier of one, whatever else it looks like."""
    return db.execute(_EXISTS, {"part": text}).fetchone() is not None


def named_alone(db: Database, query: Query) -> str | None:
    """The sequence that ``query`` names, where it is one word and that a name. Raises ``NotFound``."""
    (first, *others) = query.terms
    is_name = first.key == PART and not first.is_negated and not others
    return find_sequence(db, first.alternatives[0]) if is_name else None


def names(db: Database, part: str, most: int) -> list[str]:
    """Identifiers whose UUID begins with ``part``, at most so many."""
    bounds = {"first": _UUID + part, "last": _UUID + part + _BEYOND, "count": most}
    return [name for (name,) in db.execute(_BEGINNING, bounds)]


def queues(db: Database, part: str, most: int) -> list[str]:
    """Names of queues that begin with ``part``, at most so many."""
    return [name for (name,) in db.execute(_QUEUES, {"first": part, "last": part + _BEYOND, "count": most})]


def _beginning(db: Database, part: str) -> list[str]:
    return [name for (name,) in db.execute(_BEGINNING, {"first": part, "last": part + _BEYOND, "count": 4})]


def shortened(db: Database, identifiers: Iterable[str | None]) -> dict[str, str]:
    """For each identifier of a sequence the beginning of its UUID that no other has; one without a UUID stays."""
    return {name: _shortened(db, name) for name in set(identifiers) if name is not None}


def _shortened(db: Database, name: str) -> str:
    if not name.startswith(_UUID):
        return name
    neighbours = [db.execute(statement, {"name": name}).fetchone() for statement in (_BEFORE, _BEHIND)]
    shared = max((_shared(name, row[0]) for row in neighbours if row is not None), default=0)
    return name[len(_UUID) : max(len(_UUID) + SHOWN, shared + 1)]


def _shared(one: str, other: str) -> int:
    """How many characters both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
