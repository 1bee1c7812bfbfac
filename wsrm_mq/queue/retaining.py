"""Topics that retain what is published to them, and the replay of that.

What a topic retains is an entry of a queue of its own, its log, which is bound to the topic as any queue is. It is held
from the beginning to its end, the reason is ``retained``: nobody consumes it, and its body stays as long as it does.
When its time is over it is discarded, as all is that has outlived its deadline.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import takewhile
from typing import Final, NamedTuple

from wsrm_mq.errors import ConfigurationError
from wsrm_mq.queue import browsing, clearing
from wsrm_mq.queue.browsing import Peeked
from wsrm_mq.queue.clearing import Cleared, Part
from wsrm_mq.queue.declaring import LOG, Declared, known, named
from wsrm_mq.queue.policies import FOREVER, QueuePolicy, changed, encoded
from wsrm_mq.queue.retention import Reader
from wsrm_mq.queue.topics import bind, check_pattern, check_topic, matches
from wsrm_mq.store import subscribing
from wsrm_mq.store.filtering import Comparison, Every, Field, Filter
from wsrm_mq.store.port import Database
from wsrm_mq.store.pruning import LAST_ENTRY
from wsrm_mq.store.transaction import Transaction

PAGE: Final = 200
"""Messages that are read at a time."""
_WITHOUT_LETTERS: Final = QueuePolicy(dead_letter=False)
_NOTHING: Final = Part(Cleared(0), None)


Found = tuple[Declared, Peeked]
"""A log, and a message in it."""


class Event(NamedTuple):
    """A kind of event in a bucket, as far as its messages are retained. ``last_at``: seconds since the epoch."""

    name: str
    messages: int
    last_at: float


class Since(NamedTuple):
    """Where a replay begins: at a position, or at a time, ms."""

    position: int = 0
    time: int | None = None


def log_of(tx: Transaction, pattern: str) -> Declared | None:
    """The queue of what is retained of a pattern; ``None``: nothing is."""
    return named(tx, f"{pattern}#retained")


def retain(
    tx: Transaction, pattern: str, seconds: float | None, *, actor: str | None = None, why: str | None = None
) -> Part:
    """From now on what is published to a topic of ``pattern`` is retained for so long; ``None``: for ever. 0: nothing
    is any more, and what was is purged, a part of it; ``clearing.purge_deleted`` does the others. ``actor`` and
    ``why``: who does and for which reason, for the ledger; no ``actor``: a program."""
    check_pattern(pattern)
    log = log_of(tx, pattern)
    if seconds == 0:
        if log is None:
            return _NOTHING
        if actor is not None:
            tx.add_ledger("queue_deleted", log.key, actor=actor, reason=_told(pattern, seconds, why))
        return clearing.delete(tx, log, force=True)
    if log is None:
        tx.queue(f"{pattern}#retained", LOG)
        log = known(tx, f"{pattern}#retained")
    tx.set_policy(log.name, log.key, encoded(changed(_WITHOUT_LETTERS, {"ttl": seconds})))
    bind(tx, pattern, log)
    if actor is not None:
        tx.add_ledger("queue_declared", log.key, actor=actor, reason=_told(pattern, seconds, why))
    return _NOTHING


def _told(pattern: str, seconds: float | None, why: str | None) -> str:
    lasts = f"{pattern} {'for ever' if seconds is None else f'for {seconds:g} seconds'}"
    return lasts if why is None else f"{lasts}: {why}"


def replay(reader: Reader, now: int, pattern: str, since: Since, wanted: Filter | None) -> Iterator[Found]:
    """Read what is retained of the topics of ``pattern``, in the order in which it was published. It is read in pages,
    and nothing is changed by it."""
    conditions = [] if wanted is None else [wanted]
    if since.time is not None:
        conditions.append(Comparison(Field("received_at", False), ">=", (since.time,)))
    conditions.append(Comparison(Field("topic", False), "like", (f"{_beginning(pattern)}%",)))
    with reader() as db:
        logs = [Declared(*row) for row in db.execute(subscribing.LOGS).fetchall()]
        begun = logs if since.position > 0 else []
        before = [one.seen for log in begun for one in browsing.peek(db, log, now, since.position - 2, 1)]
    pages = [_retained(reader, log, now, since.position - 1, Every(tuple(conditions))) for log in logs]
    last = next((one.message for one in before if one.position == since.position - 1), 0)
    for log, one in heapq.merge(*pages, key=lambda found: found[1].seen.position):
        is_new = one.seen.message != last  # patterns of two logs may take it
        if is_new and matches(pattern, one.seen.topic or ""):
            last = one.seen.message
            yield log, one


def _retained(reader: Reader, log: Declared, now: int, after: int, wanted: Filter) -> Iterator[Found]:
    while True:
        with reader() as db:
            page = browsing.peek(db, log, now, after, PAGE, wanted)
        yield from ((log, one) for one in page if one.seen.expires_at is None or one.seen.expires_at > now)
        if len(page) < PAGE:
            return
        after = page[-1].seen.position


def _beginning(pattern: str) -> str:
    """The part of a pattern that every topic has that it matches, as ``like`` wants it."""
    fixed = "/".join(takewhile(lambda level: level not in ("*", "#"), pattern.split("/")))
    return fixed.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def events(db: Database, bucket: str, now: int) -> list[Event]:
    """The events of a bucket of which something is retained, by name."""
    check_topic(bucket)
    begins = f"{bucket}/"
    found = db.execute(subscribing.EVENTS, {"begins": begins, "now": now}).fetchall()
    return [Event(topic.removeprefix(begins), count, last / 1000) for topic, count, last in found]


def last_position(db: Database) -> int:
    """The last position that was given."""
    return int(db.execute(LAST_ENTRY).fetchone()[0])


def since_of(since: object, last: int) -> Since:
    """Where a replay begins that is asked for ``since`` a position, a time in seconds since the epoch, or "first".
    ``last``: the last position that was given. Raises ``ConfigurationError``."""
    if since == "first":
        return Since()
    if isinstance(since, float) and 0 <= since <= FOREVER / 1000:
        return Since(time=int(since * 1000))
    if isinstance(since, int) and 0 <= since <= last + 1:
        return Since(since)
    raise ConfigurationError(
        f'`since` is {since!r}; it is "first", a position up to {last + 1} as a whole number, or seconds since the '
        "epoch as a float: `time.time() - 3600`."
    )
