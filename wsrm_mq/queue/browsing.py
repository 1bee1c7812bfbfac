"""Looking at queues: nothing is changed by it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

from wsrm_mq.errors import PeekForbidden
from wsrm_mq.queue.declaring import Declared
from wsrm_mq.queue.leasing import Seen
from wsrm_mq.queue.policies import Scope
from wsrm_mq.store import consuming, queues
from wsrm_mq.store.filtering import Filter
from wsrm_mq.store.port import Database
from wsrm_mq.store.transaction import as_json


class Peeked(NamedTuple):
    """A message as it is seen by one who looks. ``reason``: why it is held, or was given up."""

    seen: Seen
    state: str
    reason: str
    last_error: str | None
    settled_at: int | None
    leased_until: int | None


class KeptBy(NamedTuple):
    """The process that keeps express messages. ``lives``: else they are gone with it."""

    pid: int
    instance: str
    lives: bool


class Stats(NamedTuple):
    """The messages of a queue, counted. ``held``: messages by the reason of their waiting. ``bytes`` and ``oldest_at``
    are of what is not settled; ``oldest_age`` is that of the oldest that is ready. ``put_rate`` and ``gone_rate``: how
    many came and went a second, within about the last minute. Times in seconds, those of the day since the epoch."""

    ready: int
    held: dict[str, int]
    leased: int
    dead: int
    messages: int
    bytes: int
    oldest_at: float | None
    oldest_age: float | None
    last_position: int | None
    last_put_at: float | None
    put_rate: float
    gone_rate: float
    keeper: KeptBy | None = None
    """Which process keeps the express messages among them; ``None``: there are none."""


def together(parts: Sequence[Stats]) -> Stats:
    """The counts of one queue whose messages are in several stores."""
    held: Counter[str] = Counter()
    for one in parts:
        held.update(one.held)
    oldest = min((one.oldest_at for one in parts if one.oldest_at is not None), default=None)
    age = max((one.oldest_age for one in parts if one.oldest_age is not None), default=None)
    last, at = max((one.last_position or 0, one.last_put_at or 0) for one in parts)
    summed = ("ready", "leased", "dead", "messages", "bytes", "put_rate", "gone_rate")
    return Stats(
        held=dict(held),
        oldest_at=oldest,
        oldest_age=age,
        last_position=last or None,
        last_put_at=at or None,
        **{name: sum(getattr(one, name) for one in parts) for name in summed},
    )


def peek(
    db: Database, queue: Declared, now: int, after: int = 0, count: int = 50, wanted: Filter | None = None
) -> list[Peeked]:
    """Up to ``count`` messages behind the position ``after``, in the order of their positions. Raises
    ``PeekForbidden``."""
    check_peek(queue)
    letters = queue.kind == "dead_letter"
    statement, values = (consuming.PEEK_LETTERS if letters else consuming.PEEK).of(wanted)
    search = {**values, "queue": queue.key, "now": now, "after": after, "count": count}
    return [_peeked(row) for row in db.execute(statement, search)]


def get(db: Database, queue: Declared, now: int, position: int) -> Peeked | None:
    """The message at ``position``, where it is in the queue and not settled, or a dead letter there."""
    check_peek(queue)
    row = db.execute(consuming.PEEK_AT, {"queue": queue.key, "now": now, "key": position}).fetchone()
    return None if row is None else _peeked(row)


def last_unsettled(db: Database, queue: Declared) -> int:
    """The last position in a queue whose message is not settled; 0 where there is none."""
    (last,) = db.execute(consuming.LAST_UNSETTLED, {"queue": queue.key}).fetchone()
    return int(last or 0)


def is_to_come(
    db: Database, queue: Declared, now: int, upto: int, lessee: int, had: Collection[int], wanted: Filter | None
) -> bool:
    """Whether a subscription may have a message of the queue up to a position yet: one that is ready, or leased by it,
    and that it has not ``had``."""
    statement, values = consuming.TO_COME.of(wanted)
    search = {**values, "queue": queue.key, "now": now, "upto": upto, "lessee": lessee, "keys": as_json(list(had))}
    return db.execute(statement, search).fetchone() is not None


def scopes(db: Database) -> dict[str, Scope]:
    """The queues that other nodes may see, by name."""
    declared = ((one.name, one.policy.scope) for one in every(db) if one.is_declared)
    return {name: scope for name, scope in declared if scope != "node"}


def positions(db: Database, queue: Declared, after: int, count: int) -> list[int]:
    """The positions of up to ``count`` messages behind ``after`` that are not settled. Raises ``PeekForbidden``."""
    check_peek(queue)
    search = {"queue": queue.key, "lower": after + 1, "upper": 2**63 - 1, "count": count}
    return [position for (position,) in db.execute(consuming.UNSETTLED_IN.text, search)]


def check_peek(queue: Declared) -> None:
    if not queue.policy.peek:
        raise PeekForbidden(f"{queue.name} is declared with `peek=False`: its messages are received, not looked at.")


def every(db: Database) -> list[Declared]:
    """Every queue that is not deleted, by name."""
    found = (Declared(*row) for row in db.execute(queues.EVERY_QUEUE))
    return [one for one in found if not one.is_deleted]


def has(db: Database, name: str) -> bool:
    """Whether there is a queue of this name."""
    return db.execute(queues.QUEUE_ROW, {"name": name}).fetchone() is not None


def stats(db: Database, queue: Declared, now: int) -> Stats:
    """Count the messages of the queue, entry by entry."""
    ready, leased, messages, size, oldest, first_ready = 0, 0, 0, 0, None, None
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
            first_ready = since if first_ready is None else min(first_ready, since)
    owner = queue.parent if queue.kind == "dead_letter" else queue.key
    (dead,) = db.execute(consuming.LETTERS_OF, {"queue": owner}).fetchone()
    last, put_at, came, went = db.execute(queues.PACE, {"key": queue.key, "now": now}).fetchone()
    age = None if first_ready is None else max(0, now - first_ready)
    times = (_seconds(oldest), _seconds(age), last, _seconds(put_at))
    return Stats(ready, held, leased, dead, messages, size, *times, came / 60, went / 60)


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _peeked(row: tuple[object, ...]) -> Peeked:
    parts = len(Seen._fields)
    state, why, error, reason, settled_at, leased_until = row[parts:]
    seen = Seen(*row[:parts])  # type: ignore[arg-type]
    return Peeked(seen, str(state), str(reason or why), error, settled_at, leased_until)  # type: ignore[arg-type]
