"""Leasing what is ready: messages by themselves, the highest priority first, and runs of ordered groups.

A message that fits its queue's ``barrier`` is held until all before it in the queue are settled. Then each subscription
of the queue gets it, and with the last of them it is settled, whatever they do with it; until then nothing behind it is
delivered. Where there is no subscription, the first who receives gets it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any, Final, NamedTuple

from wsrm_mq.queue import settling
from wsrm_mq.queue.declaring import Declared, take_for
from wsrm_mq.queue.expiring import sweep
from wsrm_mq.queue.policies import FOREVER
from wsrm_mq.queue.reporting import left
from wsrm_mq.queue.settling import Lease
from wsrm_mq.store import consuming, subscribing
from wsrm_mq.store.filtering import Comparison, Every, Field, Filter
from wsrm_mq.store.port import Database
from wsrm_mq.store.records import SequenceRecord
from wsrm_mq.store.transaction import Transaction, as_json

_MOST_GROUPS: Final = 256
"""Groups that are looked at where not every message is wanted."""
MOST_COUNTED: Final = 10_000
"""The most messages left in a queue that are counted."""


class Request(NamedTuple):
    """The request of a consumer. ``max_bytes``: of bodies in all; a message that is larger comes alone. ``lease``: ms,
    ``None``: as the queue says. ``consumer``: its name, where one alone may read. ``lessee``: key of its subscription.
    """

    most: int = 1
    max_bytes: int | None = None
    lease: int | None = None
    wanted: Filter | None = None
    consumer: str = ""
    lessee: int | None = None


class Seen(NamedTuple):
    """The entry as its consumer sees it. ``message`` is a key; times in ms since the epoch."""

    position: int
    fence: int
    priority: int
    deliveries: int
    failures: int
    expires_at: int | None
    lane: int | None
    number: int | None
    message: int
    message_id: str | None
    type: str | None
    received_at: int
    size: int
    body: bytes | None
    request: str
    topic: str | None
    properties: str | None
    content_type: str | None
    sequence: str | None
    asks: int | None


class Leased(NamedTuple):
    """A message that is leased. ``seen`` has the fence of the lease, and this delivery among its deliveries.
    ``until``: when the lease ends, by the clock that is never set."""

    queue: Declared
    seen: Seen
    until: int
    is_barrier: bool = False

    @property
    def is_told(self) -> bool:
        """Whether a report may have come with the lease: it was settled as delivered by it."""
        return bool(self.seen.asks) and self.queue.policy.delivery == "at_most_once"


def lease(tx: Transaction, queues: Sequence[Declared], request: Request) -> list[Leased]:
    """Lease what is ready in these queues, each queue its share; what one of them has not goes to the others. Raises
    ``QueueBusy`` where another consumer alone reads one."""
    sweep(tx)
    found: list[Leased] = []
    for queue in queues:
        take_for(tx, queue, request.consumer)
        if request.lessee is None:
            found += barriers_for(tx, queue, None)
    share = max(1, request.most // len(queues))
    for most in (share, request.most) if len(queues) > 1 else (request.most,):
        for queue in queues:
            left = request.most - len(found)
            if left > 0:
                found += _lease_of(tx, queue, request._replace(most=min(most, left)), sum(x.seen.size for x in found))
    return found


def barriers_for(tx: Transaction, queue: Declared, subscription: int | None) -> list[Leased]:
    """The barriers of a queue that a subscription gets now: they are not leased."""
    found: list[Leased] = []
    if queue.policy.barrier is not None:
        while (row := _take_barrier(tx, queue, subscription)) is not None:
            found.append(Leased(queue, Seen._make(row), FOREVER, is_barrier=True))
    return found


def ready_in(tx: Transaction, queue: Declared, wanted: Filter | None, count: int) -> list[Seen]:
    """Up to ``count`` messages by themselves that are ready in a queue, in the order of their delivery, each as a lease
    makes it that begins now."""
    statement, values = (consuming.LETTERS if queue.kind == "dead_letter" else consuming.READY).of(wanted)
    rows = tx.execute(statement, {**values, "queue": queue.key, "now": tx.reached, "count": count}).fetchall()
    return list(map(Seen._make, rows))


def count_ready(db: Database, queue: Declared, wanted: Filter | None, now: int, most: int = MOST_COUNTED) -> int:
    """How many messages are ready in a queue: by themselves, counted up to ``most``, or in a group that is free and
    does not wait."""
    has_letters = queue.kind == "dead_letter"
    statement, values = (consuming.COUNT_LETTERS if has_letters else consuming.COUNT_READY).of(wanted)
    search = {**values, "queue": queue.key, "now": now, "count": most}
    (count,) = db.execute(statement, search).fetchone()
    (grouped,) = db.execute(consuming.COUNT_GROUPED, {"queue": queue.key, "now": now}).fetchone()
    return int(count + (grouped if wanted is None else 0))


def _lease_of(tx: Transaction, queue: Declared, request: Request, size: int) -> list[Leased]:
    policy = queue.policy
    until = policy.lease_end(tx.measured, request.lease)
    barrier = _first_barrier(tx, queue)
    loose = ready_in(tx, queue, _before(barrier, request.wanted), request.most)
    lanes = _runs(tx, queue, request)
    if barrier is not None:
        lanes = [run for lane in lanes if (run := [seen for seen in lane if seen.position < barrier])]
    if lanes or request.max_bytes is not None or queue.kind == "dead_letter":
        found, taken = _as_far_as_wanted(tx, queue, request, _in_turn(loose, lanes), size, until)
    else:
        found, taken = [Leased(queue, seen, until) for seen in loose], [seen.position for seen in loose]
    if taken:
        row = {"keys": as_json(taken), "owner": tx.instance, "lessee": request.lessee, "until": until, "now": tx.now}
        at_most_once = policy.delivery == "at_most_once" and queue.kind != "dead_letter"
        leased = tx.execute(consuming.HAND_OUT if at_most_once else consuming.LEASE, row)
        if at_most_once:
            sizes = {one.seen.position: one.seen.size for one in found}
            for position, message, asks in leased.fetchall():
                if asks:
                    left(tx, position, message, sizes[position], asks, "delivered")
            tx.counts["delivered", queue.key, ""] += len(taken)
            if queue.is_declared:
                tx.add_unsettled(queue.key, -len(taken), -sum(one.seen.size for one in found if one.seen.lane is None))
    return found


def _before(barrier: int | None, wanted: Filter | None) -> Filter | None:
    if barrier is None:
        return wanted
    before = Comparison(Field("position", False), "<", (barrier,))
    return before if wanted is None else Every((before, wanted))


def _as_far_as_wanted(
    tx: Transaction, queue: Declared, request: Request, runs: Iterator[list[Seen]], size: int, until: int
) -> tuple[list[Leased], list[int]]:
    """The beginning of ``runs`` that a request has room for, where ``size`` bytes are leased already; groups are leased
    here. Answers all that is found, and the positions of messages by themselves, which are still to be leased."""
    found: list[Leased] = []
    taken: list[int] = []
    for run in runs:
        fitting = list(_fitting(run, request.most - len(found), size, request.max_bytes))
        if not fitting:
            break
        size += sum(seen.size for seen in fitting)
        if run[0].lane is None or queue.kind == "dead_letter":
            taken.append(run[0].position)
        else:
            fitting = _take_lane(tx, fitting, until, request.lessee)
        found += (Leased(queue, seen, until) for seen in fitting)
        if len(fitting) < len(run) or len(found) >= request.most:
            break
    return found, taken


def _runs(tx: Transaction, queue: Declared, request: Request) -> list[list[Seen]]:
    """The beginnings of free groups, each with as much as is wanted: as far as the messages fit, and none of them
    has to be answered."""
    tx.write_lanes()
    count = request.most
    groups = count if request.wanted is None else max(count, _MOST_GROUPS)
    statement, values = consuming.RUN_OF_LANE.of(request.wanted)
    search = {"queue": queue.key, "now": tx.now, "count": groups}
    runs = []
    for lane in tx.lanes_by(consuming.LEASABLE, search):
        bounds = {**values, "lane": lane.id, "lower": lane.cursor, "upper": lane.deliver_below, "count": count}
        rows = tx.execute(statement, bounds).fetchall()
        run = [Seen._make(row) for *row, _ends in takewhile(lambda row: not row[-1], rows)]
        if run:
            runs.append(run)
    return runs


def _in_turn(loose: list[Seen], runs: list[list[Seen]]) -> Iterator[list[Seen]]:
    """Messages by themselves and runs of groups, in the order in which the first of each was put; what has a higher
    priority before them, and what has a lower one behind."""
    singles = [[seen] for seen in loose]
    if not runs:
        yield from singles
        return
    yield from sorted((*singles, *runs), key=lambda run: (-run[0].priority, run[0].position))


def _fitting(run: list[Seen], count: int, size: int, max_bytes: int | None) -> Iterator[Seen]:
    for seen in run[:count]:
        size += seen.size
        if max_bytes is not None and size > max_bytes and size > seen.size:
            return
        yield seen


def _take_lane(tx: Transaction, run: list[Seen], until: int, lessee: int | None) -> list[Seen]:
    assert run[0].lane is not None
    lane = tx.lane(run[0].lane)
    assert lane is not None
    assert run[-1].number is not None
    lane.owner, lane.running_since = tx.instance, tx.now
    lane.fence += 1
    if lane.retry_at is not None:
        lane.wait(tx.now, None)
    row = {"key": lane.id, "below": run[-1].number + 1, "until": until, "lessee": lessee, "now": tx.now}
    tx.execute(consuming.LEASE_LANE, row)
    if isinstance(lane, SequenceRecord):
        tx.execute(consuming.MARK_RUN, {"keys": as_json([seen.position for seen in run]), "fence": lane.fence})
    return [seen._replace(fence=lane.fence) for seen in run]


# barriers


def _first_barrier(tx: Transaction, queue: Declared) -> int | None:
    """The position of the first barrier in a queue: what lies behind it is not delivered. ``None``: there is none."""
    if queue.policy.barrier is None:
        return None
    (position,) = tx.execute(subscribing.FIRST_BARRIER, {"queue": queue.key}).fetchone()
    return None if position is None else int(position)


def _take_barrier(tx: Transaction, queue: Declared, subscription: int | None) -> tuple[Any, ...] | None:
    """The row of the barrier that a subscription gets now, if there is one (``consuming.SEEN_AT``); ``None`` for a
    subscription: a consumer that has none. With the last that gets it, it is settled."""
    position = _first_barrier(tx, queue)
    which = {"queue": queue.key, "position": position}
    if position is None or tx.execute(subscribing.UNSETTLED_BEFORE, which).fetchone() is not None:
        return None
    found = tx.execute(subscribing.SUBSCRIBED_WITHOUT, which).fetchall()
    waiting = {key for key, instance in found if tx.instances.lives(instance) is not False}
    had = tx.execute(subscribing.WAS_HAD, which).fetchone() is not None
    gets_it = subscription in waiting or (subscription is None and not waiting and not had)
    row: tuple[Any, ...] | None = tx.execute(consuming.SEEN_AT, {"key": position}).fetchone() if gets_it else None
    if subscription in waiting:
        tx.execute(subscribing.HAD, {"key": subscription, "position": position})
    if waiting <= {subscription} and (had or gets_it):
        settling.ack(tx, [Lease(position)])
    return row
