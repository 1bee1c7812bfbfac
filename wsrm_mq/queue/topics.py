"""Topics: what is published goes into the queues that are bound to it; its publisher names none of them.

A topic is ``bucket/event``, or of more levels. In a pattern ``*`` is one level, and ``#`` at its end is all that may
follow: ``db/#`` takes ``db``, ``db/add`` and ``db/add/row``.

In the mode ``copy`` what the application has taken is published, by the commit that settles the delivery: copies come
in the order of the sequence, and nothing is copied that was given up. A queue that has no room gets no copy, which the
ledger says: the delivery does not wait for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple, get_args

from wsrm_mq.errors import ConfigurationError, NotAllowed, QueueBusy, QuotaExceeded, UnknownQueue, Unrouted
from wsrm_mq.queue import clearing, express
from wsrm_mq.queue.adding import Header, Put, add_entry, add_message
from wsrm_mq.queue.clearing import ACTOR, Part
from wsrm_mq.queue.declaring import LOG, Declared, declare, named, refuse_system
from wsrm_mq.queue.filters import fits_stored, parse
from wsrm_mq.queue.policies import DEFAULT, Durability
from wsrm_mq.queue.put import make_room, put_before, with_promoted
from wsrm_mq.queue.reporting import reached
from wsrm_mq.queue.subscribing import client_of
from wsrm_mq.store import subscribing
from wsrm_mq.store.port import Database, Instances
from wsrm_mq.store.queues import EVERY_QUEUE
from wsrm_mq.store.transaction import Transaction

KIND: Final = "subscription"
Bound = list[tuple[Declared, list[str | None]]]
"""Queues, each with the filters of its bindings."""
LONGEST: Final = 200


class Published(NamedTuple):
    """Where a message went. ``position``: in the first of the ``queues``, or where its topic retains it; ``None`` where
    nothing has it."""

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


def bind(
    tx: Transaction, pattern: str, queue: Declared, filter: str | None = None, *, actor: str | None = None
) -> None:
    """From now on what is published to a topic of ``pattern``, and fits ``filter``, goes into ``queue`` too. What is
    bound already stays so. ``actor``: who does, for the ledger; ``None``: a program, or the store. Raises
    ``ConfigurationError`` and ``FilterError``."""
    check_pattern(pattern)
    refuse_system(queue)
    if filter is not None:
        parse(filter)
    row = {"queue": queue.key, "pattern": pattern, "filter": filter}
    if tx.execute(subscribing.BOUND, row).fetchone() is None:
        tx.execute(subscribing.BIND, {**row, "now": tx.now})
        if actor is not None:
            told = pattern if filter is None else f"{pattern}, {filter}"
            tx.add_ledger("bound", queue.key, actor=actor, reason=told)


def unbind(tx: Transaction, pattern: str, queue: Declared, *, actor: str | None = None) -> int:
    """Nothing of ``pattern`` goes into ``queue`` any more, whatever it fits. Answers how many bindings there were.
    ``actor``: see ``bind``."""
    bindings = len(tx.execute(subscribing.UNBIND, {"queue": queue.key, "pattern": pattern}).fetchall())
    if bindings and actor is not None:
        tx.add_ledger("unbound", queue.key, actor=actor, reason=pattern)
    return bindings


def check_pattern(pattern: str) -> None:
    if not isinstance(pattern, str):
        raise _unusable("pattern", pattern)
    *levels, last = pattern.split("/")
    fixed = [*(one for one in levels if one != "*"), *([] if last in ("*", "#") else [last])]
    if not _is_usable([*levels, last]) or any("*" in one or "#" in one for one in fixed):
        raise _unusable("pattern", pattern)


def check_topic(topic: str) -> None:
    if not isinstance(topic, str) or not _is_usable(topic.split("/")) or "*" in topic or "#" in topic:
        raise _unusable("topic", topic)


def _is_usable(levels: list[str]) -> bool:
    return all(one and one == one.strip() and one.isprintable() for one in levels) and sum(map(len, levels)) <= LONGEST


def _unusable(what: str, text: object) -> ConfigurationError:
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


def publish(tx: Transaction, topic: str, one: Put, *, mandatory: bool = False, bound: Bound | None = None) -> Published:
    """Put a message into each queue that is bound to ``topic``, once, or into none of them; where none is, and nothing
    retains it, the ledger says so. It has the properties that any of the queues promotes. ``mandatory``: raises
    ``Unrouted`` then; nothing is stored. ``bound``: the queues, where they were looked up. Raises ``QuotaExceeded``
    where a queue has no room."""
    check_topic(topic)
    said = one._replace(header=one.header._replace(topic=topic))
    found = bound_to(tx, topic) if bound is None else bound
    first: int | None = None
    takers: list[Declared] = []
    fresh = []
    for queue, wanted in found:
        known = None if one.message_id is None else put_before(tx, queue, one.message_id)
        if known is None:
            fresh.append((queue, wanted))
        else:
            first = first or known
            takers.append(queue)
    if fresh:
        expressions = {name: path for queue, _wanted in fresh for name, path in queue.policy.properties.items()}
        message = add_message(tx, with_promoted(said, expressions))
        came_with = True
        for queue, wanted in fresh:
            if is_wanted(tx, message, wanted, one.priority):
                make_room(tx, queue, len(one.body))
                position = add_entry(tx, queue, said, message, came_with=came_with)
                came_with, first = False, first or position
                takers.append(queue)
                if queue.kind != LOG:
                    reached(tx, one, position)
        if came_with:
            tx.execute(subscribing.DROP_HEADER, {"key": message})
            tx.execute(subscribing.DROP_MESSAGE, {"key": message})
    if not takers:
        if mandatory:
            raise unrouted(topic)
        write_down_unrouted(tx, topic, one)
    return Published(first, tuple(queue.name for queue in takers if queue.kind != LOG))


def write_down_unrouted(tx: Transaction, topic: str, one: Put) -> None:
    """Write down that no queue has taken a message. That is on record among the acts of operators: one of them may lead
    it to a queue. The actor is the client that published it."""
    tx.ledger("unrouted", reason=topic, actor=one.header.client or clearing.ACTOR)


def unrouted(topic: str) -> Unrouted:
    return Unrouted(f"No queue takes what was published to {topic}. Bind one: `node.bind({topic!r}, queue)`.")


def bound_to(db: Database, topic: str) -> Bound:
    """The queues whose bindings match a topic, each with the filters of those."""
    found: dict[int, tuple[Declared, list[str | None]]] = {}
    for pattern, filter, *row in db.execute(subscribing.BINDINGS).fetchall():
        if matches(pattern, topic):
            found.setdefault(row[0], (Declared(*row), []))[1].append(filter)
    return list(found.values())


def durability_of(bound: Bound) -> Durability:
    """The durability of what is published without one of its own: the message is stored once for all its queues, as
    safe as the safest of them wants it."""
    wanted = {queue.policy.durability for queue, _filters in bound}
    return next((one for one in get_args(Durability) if one in wanted), DEFAULT.durability)


def is_wanted(tx: Transaction, message: int, filters: Iterable[str | None], priority: int) -> bool:
    """Whether a stored message fits one of these filters; ``None``: any does."""
    return any(filter is None or fits_stored(tx, filter, message, priority) for filter in filters)


# durable subscriptions


def queue_of(client: str, name: str) -> str:
    """The queue of a durable subscription. Raises ``ConfigurationError``."""
    if not isinstance(name, str) or not name or "/" in name:
        raise ConfigurationError(f"`name` is {name!r}; that of a durable subscription is a text without a slash.")
    return f"{client}/{name}" if client else name


def subscribe_durable(tx: Transaction, client: str, name: str, pattern: str, filter: str | None = None) -> Declared:
    """The queue of the durable subscription ``name`` of a client, which is made with it: it collects what is published
    to a topic of ``pattern`` and fits ``filter``, also while the client is away. Raises ``NotAllowed`` where another
    queue has its name, or it was begun with another pattern or filter."""
    check_pattern(pattern)
    queue = declare(tx, queue_of(client, name), kind=KIND)
    _check_kind(queue)
    row = {"queue": queue.key, "client": client_of(tx, client), "filter": filter, "now": tx.now}
    before = tx.execute(subscribing.DURABLE, {"queue": queue.key}).fetchone()
    if before is None:
        tx.execute(subscribing.ADD_DURABLE, {**row, "name": name, "pattern": pattern})
    elif tuple(before) != (pattern, filter):
        fitting = "all" if before[1] is None else f"what fits {before[1]!r}"
        raise NotAllowed(
            f"The subscription {queue.name} collects {fitting} of {before[0]!r}, and not what is asked for now. Open "
            f"it as it is, and `replace` its filter; or `node.unsubscribe({name!r}, client={client!r})` first, which "
            "purges what it has."
        )
    else:
        tx.execute(subscribing.SET_DURABLE, row)
    bind(tx, pattern, queue, filter)
    return queue


def collect(tx: Transaction, queue: Declared, filter: str | None) -> None:
    """From now on the durable subscription of a queue collects what fits ``filter``; what it has stays."""
    pattern, before = tx.execute(subscribing.DURABLE, {"queue": queue.key}).fetchone()
    tx.execute(subscribing.UNBIND_ONE, {"queue": queue.key, "pattern": pattern, "filter": before})
    tx.execute(subscribing.SET_COLLECTED, {"queue": queue.key, "filter": filter})
    bind(tx, pattern, queue, filter)


def unsubscribe(tx: Transaction, client: str, name: str) -> Part:
    """End a durable subscription: its queue is deleted, and what is in it given up, a part of it."""
    return express.delete(tx, durable(tx, client, name), force=True)


def durable(tx: Transaction, client: str, name: str) -> Declared:
    """The queue of a durable subscription. Raises ``UnknownQueue``, and ``NotAllowed`` where it is of none."""
    queue = named(tx, queue_of(client, name))
    if queue is None:
        raise UnknownQueue(f"There is no subscription {name!r} of the client {client!r}: `node.clients()` lists all.")
    _check_kind(queue)
    return queue


def _check_kind(queue: Declared) -> None:
    if queue.kind != KIND:
        raise NotAllowed(f"{queue.name} is a queue, and none of a durable subscription. Choose another name.")


# who is there


def refuse_used(tx: Transaction, queue: str) -> None:
    """Raises ``QueueBusy`` where a program that lives has subscribed to a queue."""
    found = [one for one in clients(tx, tx.instances, tx.now) if one.state == "live" and queue in one.queues]
    if found:
        who = ", ".join(f"{one.name or 'one without a name'} (process {one.pid})" for one in found)
        raise QueueBusy(f"Programs have subscribed to {queue}: {who}. Wait for them, or leave out `if_unused`.")


def clients(db: Database, instances: Instances, now: int) -> list[Client]:
    """Who has subscribed, by name: each as it is now, or was when it went."""
    names = {key: name for key, name, *_ in db.execute(EVERY_QUEUE)}
    subscribed = [
        (client, name, pattern)
        for client, first, pattern, beside in db.execute(subscribing.SUBSCRIBED).fetchall()
        for name in (first, *(names[key] for key in json.loads(beside or "[]") if key in names))
    ]
    sessions: dict[str, list[tuple[int, int, int, bool]]] = {}
    for key, name, instance, pid, seen_at, ended_at in db.execute(subscribing.CLIENTS).fetchall():
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


_END_OF_ACTION: Final = re.compile(r"[^/#:?]*$")


def publish_copy(tx: Transaction, position: int) -> None:
    """Put the message at ``position`` into each queue that is bound to its topic: the name of its endpoint's queue, and
    the end of its action."""
    found = tx.execute(subscribing.TO_COPY, {"key": position}).fetchone()
    if found is None:
        return
    message, endpoint, action, request, has_header = found
    topic = topic_of(endpoint, action)
    bound = bound_to(tx, topic)
    if not bound:
        return
    (body,) = tx.execute(subscribing.BODY, {"key": message}).fetchone()
    one = Put(body, action, header=Header(topic=topic, content_type=json.loads(request).get("CONTENT_TYPE")))
    expressions = {name: path for queue, _filters in bound for name, path in queue.policy.properties.items()}
    one = with_promoted(one, expressions)
    if not has_header:
        tx.add_header({"message": message, **one.header._asdict()})
    for queue, filters in bound:
        if not is_wanted(tx, message, filters, one.priority):
            continue
        try:
            make_room(tx, queue, len(body))
        except QuotaExceeded as error:
            tx.ledger("unrouted", position=position, reason=f"{topic}: {error}", actor=ACTOR)
        else:
            add_entry(tx, queue, one, message)


def topic_of(endpoint: str, action: str | None) -> str:
    """``orders/place`` for what came to ``/orders`` with the action ``urn:shop:orders/place``."""
    found = _END_OF_ACTION.search(action or "")
    levels = [*endpoint.split("/"), found[0] if found else ""]
    usable = (re.sub(r"[*#]|[^ -~]", "_", one).strip() for one in levels)
    return "/".join(filter(None, usable))[:LONGEST].strip("/ ") or "message"
