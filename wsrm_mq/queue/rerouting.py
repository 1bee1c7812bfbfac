"""Messages that wait for a next node go by another route: that node does not answer, or no route leads to it any more.

The next node may have had what was sent and not acknowledged: it is the same message whatever way it comes, and the
node that has its queue takes it once. A sequence that some of it has left takes no more: what stays goes on in another.

What is for one queue keeps its order. It leaves in parts, the first ones first; the rest follows where the first part
has gone, and only then goes on from there as routes say by then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from wsrm_mq.queue import requests
from wsrm_mq.queue.ending import bury
from wsrm_mq.queue.hopping import UNKNOWN, destination, via_of
from wsrm_mq.queue.outbound import lanes_of, step_of
from wsrm_mq.queue.ownership import count_unsettled, settle_cursor
from wsrm_mq.queue.routing import choose, routes
from wsrm_mq.queue.sending import channel_of
from wsrm_mq.sequence.outbound import Own
from wsrm_mq.sequence.outbound_states import OutboundState
from wsrm_mq.store import routing
from wsrm_mq.store.applications import hop_queue
from wsrm_mq.store.entries import HELD_BYTES
from wsrm_mq.store.outbound import OutboundRecord
from wsrm_mq.store.records import Lane
from wsrm_mq.store.transaction import Transaction, as_json
from wsrm_mq.versions import MAX_MESSAGE_NUMBER

MOST: Final = 5_000
_MOST_BURIED: Final = 500
_Way = tuple[str, str]
"""A next node, and the name that it is told."""


class _End(NamedTuple):
    """The nodes that messages were at, as their rows have them, the queue that they are for, and its name at the node
    that they wait for."""

    via: str
    target: str
    sent_as: str


class Rerouted(NamedTuple):
    """The numbers of messages that go by another route, and that are dead letters as there is none."""

    moved: int = 0
    dead: int = 0


class _Part(NamedTuple):
    """The messages of a lane that leave it in one transaction: up to a number, or all of them."""

    lane: Lane
    upto: int
    is_whole: bool

    def of(self, ends: Iterable[_End]) -> dict[str, object]:
        return {"old": self.lane.id, "upto": self.upto, "ends": _as_texts(ends)}


def try_again(tx: Transaction, next_hop: str) -> None:
    """A next node answers again: nothing waits for its next attempt any longer."""
    for (key,) in tx.execute(routing.OPEN_TO, {"queue": hop_queue(next_hop)}).fetchall():
        for lane in tx.lanes_by(routing.LANES_OF, {"outbound": key}):
            lane.wait(tx.now, None)


def reroute_waiting(tx: Transaction) -> Rerouted:
    """Have a part of what waits for whatever next node go by other routes; nothing of it is left where that is none."""
    left = [address for (address,) in tx.execute(routing.MOVING).fetchall()]
    return next(filter(any, (reroute(tx, address) for address in left)), Rerouted())


def reroute(tx: Transaction, next_hop: str) -> Rerouted:
    """Have what waits for a next node go by other routes, as far as there are: ``MOST`` messages of a sequence, the
    first ones, as those behind them may be a million. The rest waits for its turn where it is."""
    among = routes(tx)
    ways: dict[_End, _Way | None] = {}
    for *end, leads_to, leads_as in tx.execute(routing.ENDS, {"address": next_hop}).fetchall():
        one = _End(*end)
        if leads_to is not None:
            ways[one] = leads_to, leads_as
        else:
            route = choose(among, one.target, via_of(one.via))
            ways[one] = None if route is None else (route.next_hop, route.sent_as(one.target))
    leaving = {end: way for end, way in ways.items() if way != (next_hop, end.sent_as)}
    done = Rerouted()
    for (key,) in tx.execute(routing.OPEN_TO, {"queue": hop_queue(next_hop)}).fetchall() if leaving else ():
        outbound = tx.outbound(key)
        assert outbound is not None
        tx.write_lanes()
        moved, dead = _leave(tx, next_hop, outbound, leaving)
        done = Rerouted(done.moved + moved, done.dead + dead)
        if sum(done) >= MOST:  # what is behind may not pass what is left of this
            for end, way in leaving.items():
                if way is not None:
                    tx.execute(routing.LEAD, _row(next_hop, end) | {"leads_to": way[0], "leads_as": way[1]})
            return done
    tx.execute(routing.MOVE_ON, {"address": next_hop})
    for end in ways:
        tx.execute(routing.HAS_MOVED, _row(next_hop, end))
    return done


def _row(address: str, end: _End) -> dict[str, object]:
    return {"address": address, **end._asdict()}


def _leave(tx: Transaction, hop: str, outbound: OutboundRecord, ways: Mapping[_End, _Way | None]) -> Rerouted:
    """Have messages of a sequence to a next node leave it, as far as it has any of these ends."""
    parts = [_Part(lane, *_last_of(tx, lane, ways)) for lane in lanes_of(tx, outbound)]
    if not any(_count(tx, part, ways) for part in parts):
        return Rerouted()
    is_asked_for = outbound.value.state is OutboundState.CREATING
    if is_asked_for and all(part.is_whole for part in parts):  # there it is not known: no part of it stays
        step_of(tx, outbound, Own.REFUSED)
        stays = [_End(*end) for end in tx.execute(routing.ENDS_IN, {"outbound": outbound.id}).fetchall()]
        ways = {**{end: (hop, end.sent_as) for end in stays}, **ways}
    elif not is_asked_for:
        requests.close(tx, outbound)
    groups: dict[str, dict[_End, str]] = defaultdict(dict)
    dead = 0
    for end, way in ways.items():
        if way is None:
            dead += sum(_bury(tx, part, end) for part in parts)
        else:
            groups[way[0]][end] = way[1]
    return Rerouted(sum(_move(tx, outbound, parts, to, ends) for to, ends in groups.items()), dead)


def _last_of(tx: Transaction, lane: Lane, ends: Iterable[_End]) -> tuple[int, bool]:
    which = {"old": lane.id, "ends": _as_texts(ends), "most": MOST}
    behind = tx.execute(routing.BEHIND, which).fetchone()
    return (MAX_MESSAGE_NUMBER, True) if behind is None else (behind[0] - 1, False)


def _count(tx: Transaction, part: _Part, ends: Iterable[_End]) -> int:
    return int(tx.execute(routing.COUNT_FOR, part.of(ends)).fetchone()[0])


def _move(tx: Transaction, outbound: OutboundRecord, parts: list[_Part], to: str, ends: dict[_End, str]) -> int:
    """Have the messages of these ``ends``, each with its name there, wait for the node at ``to``, behind all that waits
    for it."""
    counts = [_count(tx, part, ends) for part in parts]
    if not any(counts):
        return 0
    there = destination(to, tx.queue_name(outbound.queue).partition("#")[2] or None)
    queue = tx.queue(there.queue, "outgoing")
    if (before := requests.current(tx, queue, there, offers=False)) is not None:
        step_of(tx, before, Own.SEAL)
    made = requests.begin(tx, queue, there, offers=False)
    lane = channel_of(tx, made)
    for part, count in zip(parts, counts, strict=True):
        if count:
            requests.enter_behind(tx, lane, routing.MOVE, part.of(ends), count)
            tx.execute(routing.MOVED, {**part.of(ends), "now": tx.now})
        _recount(tx, part.lane)
    for end, sent_as in ends.items():
        if sent_as != end.sent_as:
            tx.execute(routing.SEND_AS, {"lane": lane.id, "ends": _as_texts([end]), "sent_as": sent_as})
    made.follow(made.value._replace(given=sum(counts)), tx.now)
    (lane.held_bytes,) = tx.execute(HELD_BYTES, {"lane": lane.id, "limit": 1}).fetchone()
    tx.ledger("rerouted", lane, reason=f"{sum(counts)} messages for {outbound.peer} go to {to}")
    return sum(counts)


def _bury(tx: Transaction, part: _Part, end: _End) -> int:
    count = 0
    while found := tx.execute(routing.WAITING_FOR, {**part.of([end]), "count": _MOST_BURIED}).fetchall():
        for position, number in found:
            bury(tx, part.lane, position, number, UNKNOWN)
        count += len(found)
    _recount(tx, part.lane)
    return count


def _as_texts(ends: Iterable[_End]) -> str:
    return as_json(["\x1f".join((via + target, sent_as)) for via, target, sent_as in ends])


def _recount(tx: Transaction, lane: Lane) -> None:
    settle_cursor(tx, lane)
    lane.release(count_unsettled(tx, lane, lane.limit))
