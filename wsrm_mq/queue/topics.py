"""Topics: what is published goes into the queues that are bound to it; its publisher names none of them.

A topic is ``bucket/event``, or of more levels. In a pattern ``*`` is one level, and ``#`` at its end is all that may
follow: ``db/#`` takes ``db``, ``db/add`` and ``db/add/row``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple

from wsrm_mq.errors import ConfigurationError, NotAllowed, Unrouted
from wsrm_mq.queue import clearing
from wsrm_mq.queue.clearing import Cleared
from wsrm_mq.queue.declaring import Declared, declare, declared
from wsrm_mq.queue.filters import parse
from wsrm_mq.queue.put import Put, add_entry, add_message, make_room, put_before, with_promoted
from wsrm_mq.queue.subscribing import client_of
from wsrm_mq.store import topics
from wsrm_mq.store.compiling import bound
from wsrm_mq.store.filtering import fitting_message
from wsrm_mq.store.port import Database, Instances
from wsrm_mq.store.transaction import Transaction

KIND: Final = "subscription"
LONGEST: Final = 200


class Published(NamedTuple):
    """Where a message went. ``position``: in the first of the ``queues``; ``None`` where there is none."""

    position: int | None
    queues: tuple[str, ...]


class Client(NamedTuple):
    """Who has subscribed. ``state``: live, or gone. ``seen_at``: seconds since the epoch. ``queues`` and ``patterns``:
    what it is subscribed to, or was when it went."""

    name: str
    pid: int
    state: str
    seen_at: float
    queues: tuple[str, ...]
    patterns: tuple[str, ...]


# bindings


def bind(tx: Transaction, pattern: str, queue: Declared, filter: str | None = None) -> None:
    """From now on what is published to a topic of ``pattern``, and fits ``filter``, goes into ``queue`` too. What is
    bound already stays so. Raises ``ConfigurationError`` and ``FilterError``."""
    check_pattern(pattern)
    if filter is not None:
        parse(filter)
    row = {"queue": queue.key, "pattern": pattern, "filter": filter}
    if tx.execute(topics.BOUND, row).fetchone() is None:
        tx.execute(topics.BIND, {**row, "now": tx.now})


def unbind(tx: Transaction, pattern: str, queue: Declared) -> int:
    """Nothing of ``pattern`` goes into ``queue`` any more, whatever it fits. Answers how many bindings there were."""
    return len(tx.execute(topics.UNBIND, {"queue": queue.key, "pattern": pattern}).fetchall())


def check_pattern(pattern: str) -> None:
    *levels, last = pattern.split("/")
    fixed = [*(one for one in levels if one != "*"), *([] if last in ("*", "#") else [last])]
    if not _is_usable([*levels, last]) or any("*" in one or "#" in one for one in fixed):
        raise _unusable("pattern", pattern)


def check_topic(topic: str) -> None:
    if not _is_usable(topic.split("/")) or "*" in topic or "#" in topic:
        raise _unusable("topic", topic)


def _is_usable(levels: list[str]) -> bool:
    return all(one and one == one.strip() and one.isprintable() for one in levels) and sum(map(len, levels)) <= LONGEST


def _unusable(what: str, text: str) -> ConfigurationError:
    stars = ", a level may be *, and the last one #" if what == "pattern" else ", and neither * nor #"
    return ConfigurationError(
        f"{text!r} is no {what}: that has levels with a slash between them, as `bucket/event`{stars}."
    )


def matches(pattern: str, topic: str) -> bool:
    return _compiled(pattern).fullmatch(topic) is not None


@lru_cache(4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    levels = pattern.split("/")
    takes_all = levels[-1] == "#"
    fixed = "/".join("[^/]+" if one == "*" else re.escape(one) for one in (levels[:-1] if takes_all else levels))
    return re.compile(fixed if not takes_all else f"{fixed}(/.+)?" if fixed else ".+")


# publishing


def publish(tx: Transaction, topic: str, one: Put, *, mandatory: bool = False) -> Published:
    """Put a message into each queue that is bound to ``topic``, once, or into none of them; where none is, the ledger
    says so. It has the properties that any of the queues promotes. ``mandatory``: raises ``Unrouted`` where no queue
    takes it; nothing is stored then. Raises ``QuotaExceeded`` where a queue has no room."""
    check_topic(topic)
    said = one._replace(header=one.header._replace(topic=topic))
    found = _bound_to(tx, topic)
    first: int | None = None
    names = []
    fresh = []
    for queue, wanted in found:
        known = None if one.message_id is None else put_before(tx, queue, one.message_id)
        if known is None:
            fresh.append((queue, wanted))
        else:
            first = first or known
            names.append(queue.name)
    if fresh:
        expressions = {name: path for queue, _wanted in fresh for name, path in queue.policy.properties.items()}
        message = add_message(tx, with_promoted(said, expressions))
        came_with = True
        for queue, wanted in fresh:
            if _is_wanted(tx, message, wanted, one.priority):
                make_room(tx, queue, len(one.body))
                position = add_entry(tx, queue, said, message, came_with=came_with)
                came_with, first = False, first or position
                names.append(queue.name)
        if came_with:
            tx.execute(topics.DROP_HEADER, {"key": message})
            tx.execute(topics.DROP_MESSAGE, {"key": message})
    if not names:
        if mandatory:
            raise unrouted(topic)
        tx.ledger("unrouted", reason=topic)
    return Published(first, tuple(names))


def unrouted(topic: str) -> Unrouted:
    return Unrouted(f"No queue takes what was published to {topic}. Bind one: `node.bind({topic!r}, queue)`.")


def _bound_to(tx: Transaction, topic: str) -> list[tuple[Declared, list[str | None]]]:
    """The queues whose bindings match, each with the filters of those."""
    found: dict[int, tuple[Declared, list[str | None]]] = {}
    for pattern, filter, *row in tx.execute(topics.BINDINGS).fetchall():
        if matches(pattern, topic):
            found.setdefault(row[0], (Declared(*row), []))[1].append(filter)
    return list(found.values())


def _is_wanted(tx: Transaction, message: int, filters: Iterable[str | None], priority: int) -> bool:
    for filter in filters:
        if filter is None:
            return True
        statement, values = _statement(filter)
        if tx.execute(statement, {**values, "message": message, "priority": priority}).fetchone() is not None:
            return True
    return False


@lru_cache(1024)
def _statement(filter: str) -> tuple[str, dict[str, Any]]:
    return bound(fitting_message(parse(filter)))


# durable subscriptions


def queue_of(client: str, name: str) -> str:
    """The queue of a durable subscription. Raises ``ConfigurationError``."""
    if not name or "/" in name:
        raise ConfigurationError(f"`name` is {name!r}; that of a durable subscription has no slash in it.")
    return f"{client}/{name}" if client else name


def subscribe_durable(tx: Transaction, client: str, name: str, pattern: str, filter: str | None = None) -> Declared:
    """The queue of the durable subscription ``name`` of a client, which is made with it: it collects what is published
    to a topic of ``pattern`` and fits ``filter``, also while the client is away. With another pattern or filter than
    before, what it has stays. Raises ``NotAllowed`` where another queue has its name."""
    queue = declare(tx, queue_of(client, name), kind=KIND)
    _check_kind(queue)
    row = {"queue": queue.key, "client": client_of(tx, client), "filter": filter, "now": tx.now}
    before = tx.execute(topics.DURABLE, {"queue": queue.key}).fetchone()
    if before is None:
        tx.execute(topics.ADD_DURABLE, {**row, "name": name, "pattern": pattern})
    else:
        if tuple(before) != (pattern, filter):
            tx.execute(topics.UNBIND_ONE, {"queue": queue.key, "pattern": before[0], "filter": before[1]})
        tx.execute(topics.SET_DURABLE, {**row, "new_pattern": pattern})
    bind(tx, pattern, queue, filter)
    return queue


def unsubscribe(tx: Transaction, client: str, name: str) -> Cleared:
    """End a durable subscription: its queue is deleted, and what is in it purged."""
    queue = declared(tx, queue_of(client, name))
    _check_kind(queue)
    return clearing.delete(tx, queue, force=True)


def _check_kind(queue: Declared) -> None:
    if queue.kind != KIND:
        raise NotAllowed(f"{queue.name} is a queue, and none of a durable subscription. Choose another name.")


# who is there


def clients(db: Database, instances: Instances, now: int) -> list[Client]:
    """Who has subscribed, by name: each as it is now, or was when it went."""
    subscribed = db.execute(topics.SUBSCRIBED).fetchall()
    sessions: dict[str, list[tuple[int, int, int, bool]]] = {}
    for key, name, instance, pid, seen_at, ended_at in db.execute(topics.CLIENTS).fetchall():
        is_live = ended_at is None and instances.lives(instance) is not False
        sessions.setdefault(name, []).append((key, pid, now if is_live else ended_at or seen_at, is_live))
    found = []
    for name, known in sessions.items():
        now_there = [one for one in known if one[-1]] or known[-1:]
        keys, mine = {key for key, *_ in known}, {key for key, *_ in now_there}
        of_it = [(queue, pattern) for key, queue, pattern in subscribed if key in (mine if pattern is None else keys)]
        queues = tuple(dict.fromkeys(queue for queue, _pattern in of_it))
        patterns = tuple(dict.fromkeys(pattern for _queue, pattern in of_it if pattern is not None))
        _key, pid, seen_at, is_live = now_there[-1]
        found.append(Client(name, pid, "live" if is_live else "gone", seen_at / 1000, queues, patterns))
    return found
