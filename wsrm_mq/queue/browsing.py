"""Looking at queues: nothing is changed by it."""

from __future__ import annotations

from typing import Any, NamedTuple

from wsrm_mq.errors import PeekForbidden
from wsrm_mq.queue.declaring import Declared
from wsrm_mq.queue.leasing import Seen
from wsrm_mq.store import consuming, queues
from wsrm_mq.store.filtering import Filter, fits
from wsrm_mq.store.port import Database


class Peeked(NamedTuple):
    """A message as it is seen by one who looks. ``reason``: why it is held, or was given up."""

    seen: Seen
    state: str
    reason: str
    last_error: str | None
    settled_at: int | None
    leased_until: int | None


class Stats(NamedTuple):
    """The messages of a queue, counted. ``held``: messages by the reason of their waiting. ``bytes`` and ``oldest_at``
    are of what is not settled; times in ms since the epoch."""

    ready: int
    held: dict[str, int]
    leased: int
    dead: int
    messages: int
    bytes: int
    oldest_at: int | None
    last_position: int | None
    last_put_at: int | None


def peek(
    db: Database, queue: Declared, now: int, after: int = 0, count: int = 50, wanted: Filter | None = None
) -> list[Peeked]:
    """Up to ``count`` messages behind the position ``after``, in the order of their positions. Raises
    ``PeekForbidden``."""
    check_peek(queue)
    letters = queue.kind == "dead_letter"
    statement: str = consuming.PEEK_LETTERS if letters else consuming.PEEK
    values: dict[str, Any] = {}
    if wanted is not None:
        statement, values = consuming.peek(fits(wanted), letters=letters)
    search = {**values, "queue": queue.key, "now": now, "after": after, "count": count}
    return [_peeked(row) for row in db.execute(statement, search)]


def get(db: Database, queue: Declared, now: int, position: int) -> Peeked | None:
    """The message at ``position``, where it is in the queue and not settled, or a dead letter there."""
    check_peek(queue)
    row = db.execute(consuming.PEEK_AT, {"queue": queue.key, "now": now, "key": position}).fetchone()
    return None if row is None else _peeked(row)


def check_peek(queue: Declared) -> None:
    if not queue.policy.peek:
        raise PeekForbidden(f"{queue.name} is declared with `peek=False`: its messages are received, not looked at.")


def every(db: Database) -> list[Declared]:
    """Every queue that is not deleted, by name."""
    found = (Declared(*row) for row in db.execute(queues.EVERY_QUEUE))
    return [one for one in found if not one.name.endswith(f"#{one.key}")]


def stats(db: Database, queue: Declared, now: int) -> Stats:
    """Count the messages of the queue, entry by entry."""
    ready, leased, messages, size, oldest = 0, 0, 0, 0, None
    held: dict[str, int] = {}
    for state, reason, count, bytes_, since in db.execute(consuming.STATES, {"queue": queue.key, "now": now}):
        messages, size = messages + count, size + bytes_
        oldest = since if oldest is None else min(oldest, since)
        if state == "held":
            held[reason] = held.get(reason, 0) + count
        elif state == "leased":
            leased += count
        else:
            ready += count
    owner = queue.parent if queue.kind == "dead_letter" else queue.key
    (dead,) = db.execute(consuming.LETTERS_OF, {"queue": owner}).fetchone()
    last = db.execute(queues.LAST_PUT, {"key": queue.key}).fetchone()
    return Stats(ready, held, leased, dead, messages, size, oldest, *last)


def _peeked(row: tuple[object, ...]) -> Peeked:
    parts = len(Seen._fields)
    state, why, error, reason, settled_at, leased_until = row[parts:]
    seen = Seen(*row[:parts])  # type: ignore[arg-type]
    return Peeked(seen, str(state), str(why or reason), error, settled_at, leased_until)  # type: ignore[arg-type]
