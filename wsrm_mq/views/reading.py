"""What the store says, for people and their tools: sequences, messages and the ledger.

Everything here only reads, on any read-only connection, and in pieces. The statements are plain text: a command
line that only looks must not pay for the import of SQLAlchemy. Times are ms since the epoch.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Final, NamedTuple, cast

from wsrm_mq.errors import NotFound
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.store.late_index import BY_CONNECTION, BY_SEQUENCE

__all__ = [
    "ANSWERED_WITH_FAULT",
    "FAULTED",
    "LIVE",
    "LedgerView",
    "MessageDetail",
    "MessageView",
    "SequenceView",
    "find_sequence",
    "ledger",
    "message",
    "messages",
    "open_body",
    "sequence",
    "sequences",
    "snapshot",
]

PIECE: Final = 200


@contextmanager
def snapshot(db: sqlite3.Connection) -> Iterator[None]:
    """Several reads that see one state of the store. Keep it short: it holds up checkpoints."""
    db.execute("BEGIN")
    try:
        yield
    finally:
        db.execute("ROLLBACK")


# sequences


class SequenceView(NamedTuple):
    """A sequence as its row, its queue and its ranges tell it."""

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
    owner: int | None
    """Key of the instance that runs it."""
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
    received: AckRanges

    @property
    def deliver_below(self) -> int:
        return self.limit if self.discard_from is None else min(self.limit, self.discard_from)

    @property
    def is_deliverable(self) -> bool:
        return self.blocked is None and self.cursor < self.deliver_below

    @property
    def held(self) -> int:
        """How many accepted numbers wait beyond the limit."""
        return self.received.count(self.limit) if self.discard_from is None else 0

    def waits_for_retry(self, now: int) -> bool:
        return _waits(self.retry_from, self.retry_at, now)


def _waits(retry_from: int | None, retry_at: int | None, now: int) -> bool:
    """A wait that begins in the future is over: the clock was stepped back."""
    return retry_at is not None and (retry_from or 0) <= now < retry_at


_SEQUENCE: Final = """
SELECT s.id, s.identifier, q.name, s.principal, s.peer, s.partner, s.rm, s.soap, s.addressing, s.behavior, s.assurance,
       s.ordered, s.created_at, s.expires_at, s.inactivity, s.state, s.ended, s.ended_at, s.active_at,
       CASE WHEN s.state <> 'ended' THEN min(coalesce(s.expires_at, s.active_at + s.inactivity),
                                             coalesce(s.active_at + s.inactivity, s.expires_at)) END AS due_at,
       s.last_number, s.expected, s.cursor, s."limit", s.discard_from, s.discard_reason, s.discarding,
       s.owner, s.running_since, s.retry_from, s.retry_at, s.blocked, s.redelivery_below, s.duplicates,
       s.kind, s.connection
FROM sequence s JOIN queue q ON q.id = s.queue
"""


def sequences(db: sqlite3.Connection, *, queue: str | None = None, state: str | None = None) -> Iterator[SequenceView]:
    """Sequences, newest first, read as they are asked for."""
    below: int | None = None
    while True:
        rows = db.execute(
            f"""{_SEQUENCE}
            WHERE (:queue IS NULL OR q.name = :queue) AND (:state IS NULL OR s.state = :state)
              AND (:below IS NULL OR s.id < :below)
            ORDER BY s.id DESC LIMIT {PIECE}""",
            {"queue": queue, "state": state, "below": below},
        ).fetchall()
        for row in rows:
            yield _sequence(db, row)
        if len(rows) < PIECE:
            return
        below = rows[-1][0]


def sequence(db: sqlite3.Connection, key: int) -> SequenceView:
    """The sequence with this key, or ``NotFound``."""
    row = db.execute(f"{_SEQUENCE} WHERE s.id = ?", (key,)).fetchone()
    if row is None:
        raise NotFound(f"There is no sequence with key {key}.")
    return _sequence(db, row)


def _sequence(db: sqlite3.Connection, row: tuple[Any, ...]) -> SequenceView:
    ranges = db.execute("SELECT lower, upper FROM range WHERE sequence = ? ORDER BY lower", (row[0],))
    view = SequenceView._make((*row, AckRanges(tuple(ranges))))
    return view._replace(ordered=bool(view.ordered), discarding=bool(view.discarding))


SHORTEST: Final = 6
"""So many characters of an identifier may stand for it, at least."""

_SCHEMES: Final = ("", "urn:uuid:", "uuid:")


def find_sequence(db: sqlite3.Connection, text: str) -> int:
    """The key of the sequence that ``text`` means: its identifier, or a beginning (that of the UUID counts too) or
    end of it that no other has. Raises ``NotFound``, also where it fits several."""
    exact = db.execute("SELECT id FROM sequence WHERE identifier = ?", (text,)).fetchone()
    if exact is not None:
        return int(exact[0])
    if len(text) < SHORTEST:
        raise NotFound(f"There is no sequence {text}; a part of an identifier needs {SHORTEST} characters.")
    starts = [scheme + text for scheme in _SCHEMES]
    found = db.execute(
        f"""SELECT id, identifier FROM sequence
        WHERE substr(identifier, -length(:end)) = :end
           OR {" OR ".join(f"substr(identifier, 1, {len(start)}) = :start{i}" for i, start in enumerate(starts))}
        ORDER BY id DESC LIMIT 4""",
        {"end": text, **{f"start{i}": start for i, start in enumerate(starts)}},
    ).fetchall()
    if not found:
        raise NotFound(f"There is no sequence {text}.")
    if len(found) > 1:
        several = ", ".join(identifier for _key, identifier in found[:3]) + (", …" if len(found) > 3 else "")
        raise NotFound(f"{text} fits several sequences: {several}. Write more of it.")
    return int(found[0][0])


# messages

ANSWERED_WITH_FAULT: Final = "answered_with_fault"
FAULTED: Final = f"reason = '{ANSWERED_WITH_FAULT}'"
"""Finds what was taken and answered with a fault, by an index that holds nothing else."""

LIVE: Final = "live"
"""Asks for entries without an outcome."""


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


_MESSAGE: Final = """
SELECT e.id, q.name, s.identifier, e.number, m.message_id, m.action, e.outcome, e.reason, m.received_at,
       e.settled_at, e.deliveries, e.failures, e.retry_at, e.last_error, m.principal, m.connection, m.body_size,
       e.retry_from, s.id, s.cursor, s."limit", s.discard_from, s.owner, s.blocked, s.retry_from, s.retry_at
"""
_FROM: Final = """
FROM entry e JOIN message m ON m.id = e.message JOIN queue q ON q.id = e.queue
LEFT JOIN sequence s ON s.id = e.sequence
"""
_WANTED: Final = {
    "sequence": f"e.id IN ({BY_SEQUENCE.keys})",
    "queue": "q.name = :queue",
    "connection": f"m.id IN ({BY_CONNECTION.keys})",
    "outcome": "e.outcome = :outcome",
    "reason": "e.reason = :reason",
}
_WANTED_LIVE: Final = {
    **_WANTED,
    "sequence": "e.sequence = :sequence",  # of these there is an index
    "outcome": "e.outcome IS NULL",
}


def messages(
    db: sqlite3.Connection,
    now: int,
    *,
    sequence: int | None = None,
    queue: str | None = None,
    connection: str | None = None,
    outcome: str | None = None,
    reason: str | None = None,
    after: int = 0,
    limit: int = 50,
) -> list[MessageView]:
    """Messages in the order of receipt, from the position ``after`` on; ``outcome`` may be ``LIVE``; ``reason`` is
    that of an outcome."""
    wanted = {"sequence": sequence, "queue": queue, "connection": connection, "outcome": outcome, "reason": reason}
    rules = _WANTED_LIVE if outcome == LIVE else _WANTED
    conditions = [rule for name, rule in rules.items() if wanted[name] is not None]
    if reason == ANSWERED_WITH_FAULT:  # of these there is an index, which only a literal finds
        conditions.append(f"e.id IN (SELECT id FROM entry WHERE {FAULTED})")
    rows = db.execute(
        f"{_MESSAGE} {_FROM} WHERE {' AND '.join(['e.id > :after', *conditions])} ORDER BY e.id LIMIT :count",
        {**wanted, "after": after, "count": limit},
    )
    return [_message(row, now) for row in rows]


def message(db: sqlite3.Connection, position: int, now: int) -> MessageDetail:
    """The message at ``position``, or ``NotFound``."""
    row = db.execute(
        f"""{_MESSAGE}, m.environ, e.wants_reply, e.named, m.body IS NOT NULL, r.status, o.name, e.replay_of
        {_FROM} LEFT JOIN reply r ON r.entry = e.id LEFT JOIN queue o ON o.id = e.origin
        WHERE e.id = ?""",
        (position,),
    ).fetchone()
    if row is None:
        raise NotFound(f"There is no message at position {position}.")
    environ, wants_reply, named, has_body, *rest = row[-7:]
    return MessageDetail(_message(row, now), environ, bool(wants_reply), bool(named), bool(has_body), *rest)


def _message(row: tuple[Any, ...], now: int) -> MessageView:
    outcome, reason = row[6], row[7]
    state, reason = (outcome, reason) if outcome is not None else _condition(row, now)
    return MessageView._make((*row[:6], state, reason, *row[8:17]))


def _condition(row: tuple[Any, ...], now: int) -> tuple[str, str | None]:
    """State and reason of a live entry, derived from its sequence."""
    number, retry_at = row[3], row[12]
    retry_from, key, cursor, limit, discard_from, owner, blocked, paused_from, paused_to = row[17:26]
    if key is None:
        return "ready", None
    conditions = (
        (discard_from is not None and number >= discard_from, ("held", "sequence")),
        (number >= limit, ("held", "gap")),
        (blocked is not None, ("held", "sequence")),
        (_waits(retry_from, retry_at, now) or _waits(paused_from, paused_to, now), ("held", "backoff")),
        (owner is not None and number == cursor, ("leased", None)),
    )
    return next((condition for holds, condition in conditions if holds), ("ready", None))


def open_body(db: sqlite3.Connection, position: int) -> BinaryIO:
    """The envelope's bytes as received, as a stream. While it is open it holds up checkpoints."""
    found = db.execute(
        "SELECT m.id, m.body IS NOT NULL FROM entry e JOIN message m ON m.id = e.message WHERE e.id = ?",
        (position,),
    ).fetchone()
    if found is None:
        raise NotFound(f"There is no message at position {position}.")
    if not found[1]:
        raise NotFound(f"The body of the message at position {position} was freed by retention.")
    return cast(BinaryIO, db.blobopen("message", "body", found[0], readonly=True))


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


def ledger(db: sqlite3.Connection, sequence: int, *, position: int | None = None, limit: int = 20) -> list[LedgerView]:
    """The last ``limit`` events of a sequence, or of one of its entries; oldest first."""
    rows = db.execute(
        """SELECT at, event, number, position, instance, attempt, reason, actor FROM ledger
        WHERE sequence = :sequence AND (:position IS NULL OR position = :position)
        ORDER BY id DESC LIMIT :count""",
        {"sequence": sequence, "position": position, "count": limit},
    ).fetchall()
    return [LedgerView(*row) for row in reversed(rows)]
