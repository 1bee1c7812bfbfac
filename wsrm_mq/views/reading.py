"""What the store says, for people and their tools: sequences, messages and the ledger.

Everything here only reads the published views, on any connection to the store, and in pieces. Times are ms since the
epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Select, Table, bindparam, func, or_, select

from wsrm_mq.errors import NotFound
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.store import published as views
from wsrm_mq.store.compiling import compiled
from wsrm_mq.store.port import Database

__all__ = [
    "ANSWERED_WITH_FAULT",
    "LIVE",
    "LedgerView",
    "MessageDetail",
    "MessageView",
    "SequenceView",
    "find_sequence",
    "ledger",
    "message",
    "messages",
    "sequence",
    "sequences",
]

PIECE: Final = 200

p = bindparam


def _of(view: Table, fields: tuple[str, ...], **named: str) -> Select[Any]:
    """The columns with the names of ``fields``; ``named``: those that have another name in the view."""
    return select(*(view.c[named.get(field, field)] for field in fields))


# sequences


class SequenceView(NamedTuple):
    """A sequence as its columns and its ranges tell it."""

    key: int
    identifier: str
    queue: str
    principal: str | None
    peer: str | None
    partner: str | None
    """The configuration section that fits its source."""
    rm: str
    soap: str
    addressing: str
    behavior: str
    assurance: str
    ordered: bool
    created_at: int
    expires_at: int | None
    inactivity: int | None
    state: str
    ended: str | None
    ended_at: int | None
    active_at: int
    due_at: int | None
    last_number: int | None
    expected: int
    cursor: int
    limit: int
    discard_from: int | None
    discard_reason: str | None
    discarding: bool
    owner: str | None
    """Name of the instance that runs it."""
    running_since: int | None
    retry_from: int | None
    retry_at: int | None
    blocked: int | None
    """Position of the entry that stopped it."""
    redelivery_below: int
    duplicates: int
    kind: str
    """``rm``, or ``connection``: messages without WS-RM, numbered here."""
    connection: str | None
    held: int
    """How many accepted numbers wait at or beyond the limit."""
    delivery: str
    """What its delivery does, a word of ``DeliveryState``."""
    received: AckRanges


_sequence: Final = views.sequences.c
_SEQUENCE: Final = _of(views.sequences, SequenceView._fields[:-1], identifier="sequence")
_SEQUENCES: Final = compiled(
    _SEQUENCE.where(
        or_(p("queue").is_(None), _sequence.queue == p("queue")),
        or_(p("state").is_(None), _sequence.state == p("state")),
        or_(p("below").is_(None), _sequence.key < p("below")),
    )
    .order_by(_sequence.key.desc())
    .limit(PIECE)
)
_SEQUENCE_NAMED: Final = compiled(_SEQUENCE.where(_sequence.sequence == p("identifier")))
_RANGES: Final = compiled(
    select(views.ranges.c.lower, views.ranges.c.upper)
    .where(views.ranges.c.sequence == p("sequence"))
    .order_by(views.ranges.c.lower)
)


def sequences(db: Database, *, queue: str | None = None, state: str | None = None) -> Iterator[SequenceView]:
    """Sequences, newest first, read as they are asked for."""
    below: int | None = None
    while True:
        rows = db.execute(_SEQUENCES, {"queue": queue, "state": state, "below": below}).fetchall()
        for row in rows:
            yield _viewed(db, row)
        if len(rows) < PIECE:
            return
        below = rows[-1][0]


def sequence(db: Database, identifier: str) -> SequenceView:
    """The sequence with this identifier, or ``NotFound``."""
    row = db.execute(_SEQUENCE_NAMED, {"identifier": identifier}).fetchone()
    if row is None:
        raise NotFound(f"There is no sequence {identifier}.")
    return _viewed(db, row)


def _viewed(db: Database, row: tuple[Any, ...]) -> SequenceView:
    ranges = db.execute(_RANGES, {"sequence": row[1]}).fetchall()
    view = SequenceView._make((*row, AckRanges(tuple(ranges))))
    return view._replace(ordered=bool(view.ordered), discarding=bool(view.discarding))


SHORTEST: Final = 6
"""So many characters of an identifier may stand for it, at least."""

_SCHEMES: Final = ("", "urn:uuid:", "uuid:")
_EXISTS: Final = compiled(select(_sequence.sequence).where(_sequence.sequence == p("part")))
_ALIKE: Final = compiled(
    select(_sequence.sequence)
    .where(
        or_(
            func.substr(_sequence.sequence, -func.length(p("part"))) == p("part"),
            *(
                func.substr(_sequence.sequence, 1, len(scheme) + func.length(p("part"))) == scheme + p("part")
                for scheme in _SCHEMES
            ),
        )
    )
    .order_by(_sequence.key.desc())
    .limit(4)
)


def find_sequence(db: Database, text: str) -> str:
    """The identifier that ``text`` means: itself, or the only one that it is a beginning (that of the UUID counts too)
    or an end of. Raises ``NotFound``, also where it fits several."""
    if db.execute(_EXISTS, {"part": text}).fetchone() is not None:
        return text
    if len(text) < SHORTEST:
        raise NotFound(f"There is no sequence {text}; a part of an identifier needs {SHORTEST} characters.")
    found: list[str] = [identifier for (identifier,) in db.execute(_ALIKE, {"part": text})]
    if not found:
        raise NotFound(f"There is no sequence {text}.")
    if len(found) > 1:
        several = ", ".join(found[:3]) + (", …" if len(found) > 3 else "")
        raise NotFound(f"{text} fits several sequences: {several}. Write more of it.")
    return found[0]


# messages

ANSWERED_WITH_FAULT: Final = "answered_with_fault"

LIVE: Final = "live"
"""Asks for messages without an outcome."""


class MessageView(NamedTuple):
    """A message in its place in a queue."""

    position: int
    queue: str
    sequence: str | None
    number: int | None
    message_id: str | None
    action: str | None
    state: str
    """``held``, ``ready`` or ``leased``; else the outcome."""
    reason: str | None
    received_at: int
    settled_at: int | None
    deliveries: int
    failures: int
    retry_at: int | None
    last_error: str | None
    principal: str | None
    connection: str | None
    body_size: int


class MessageDetail(NamedTuple):
    """What a list of messages leaves out."""

    view: MessageView
    environ: str
    """The part of the request that a replay needs, as JSON."""
    wants_reply: bool
    named: bool
    has_body: bool
    reply_status: str | None
    origin: str | None
    """The queue a dead letter comes from."""
    replay_of: int | None


_message: Final = views.messages.c
_MESSAGES: Final = _of(views.messages, MessageView._fields)


def _found_by(view: Table, *where: ColumnElement[bool]) -> ColumnElement[bool]:
    """Among those that a view over an index has."""
    return _message.position.in_(select(view.c.position).where(*where))


_WANTED: Final = {
    "sequence": _found_by(views.sequence_messages, views.sequence_messages.c.sequence == p("sequence")),
    "live sequence": _message.sequence == p("sequence"),  # of what is not settled there is an index
    "connection": _found_by(views.connection_messages, views.connection_messages.c.connection == p("connection")),
    "queue": _message.queue == p("queue"),
    "outcome": _message.outcome == p("outcome"),
    "live": _message.outcome.is_(None),
    "reason": _message.reason == p("reason"),
    "faulted": _found_by(views.faulted),
}


@cache
def _messages(*wanted: str) -> str:
    conditions = (_WANTED[name] for name in wanted)
    listed = _MESSAGES.where(_message.position > p("after"), *conditions)
    return compiled(listed.order_by(_message.position).limit(p("count")))


def messages(
    db: Database,
    *,
    sequence: str | None = None,
    queue: str | None = None,
    connection: str | None = None,
    outcome: str | None = None,
    reason: str | None = None,
    after: int = 0,
    limit: int = 50,
) -> list[MessageView]:
    """Messages in the order of receipt, from the position ``after`` on; ``outcome`` may be ``LIVE``; ``reason`` is
    that of an outcome."""
    is_live = outcome == LIVE
    given = {
        "live sequence" if is_live else "sequence": sequence,
        "queue": queue,
        "connection": connection,
        "live" if is_live else "outcome": outcome,
        "faulted" if reason == ANSWERED_WITH_FAULT else "reason": reason,
    }
    statement = _messages(*(name for name, value in given.items() if value is not None))
    bounds = {"sequence": sequence, "queue": queue, "connection": connection, "outcome": outcome, "reason": reason}
    return [MessageView._make(row) for row in db.execute(statement, {**bounds, "after": after, "count": limit})]


_MESSAGE: Final = compiled(
    _MESSAGES.add_columns(
        *(_message.request, _message.wants_reply, _message.named, _message.has_body),
        *(views.replies.c.status, _message.origin, _message.replay_of),
    )
    .join_from(views.messages, views.replies, views.replies.c.position == _message.position, isouter=True)
    .where(_message.position == p("position"))
)


def message(db: Database, position: int) -> MessageDetail:
    """The message at ``position``, or ``NotFound``."""
    row = db.execute(_MESSAGE, {"position": position}).fetchone()
    if row is None:
        raise NotFound(f"There is no message at position {position}.")
    environ, wants_reply, named, has_body, *rest = row[-7:]
    return MessageDetail(MessageView._make(row[:-7]), environ, bool(wants_reply), bool(named), bool(has_body), *rest)


# ledger


class LedgerView(NamedTuple):
    at: int
    event: str
    number: int | None
    position: int | None
    instance: str | None
    attempt: int | None
    reason: str | None
    actor: str | None


_event: Final = views.ledger_events.c
_LEDGER: Final = compiled(
    _of(views.ledger_events, LedgerView._fields)
    .where(
        _event.sequence == p("sequence"),
        or_(p("position").is_(None), _event.position == p("position")),
    )
    .order_by(_event.key.desc())
    .limit(p("count"))
)


def ledger(db: Database, sequence: str, *, position: int | None = None, limit: int = 20) -> list[LedgerView]:
    """The last ``limit`` events of a sequence, or of one of its messages; oldest first."""
    rows = db.execute(_LEDGER, {"sequence": sequence, "position": position, "count": limit}).fetchall()
    return [LedgerView._make(row) for row in reversed(rows)]
