"""Messages that wait for a next node go by another route: that node does not answer, or no route leads to it any more.

The next node may have had what was sent and not acknowledged: it is the same message whatever way it comes, and the
node that has its queue takes it once. A sequence that some of it has left takes no more: what stays goes on in another.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final, NamedTuple

from wsrm_mq.queue import requests
from wsrm_mq.queue.ending import bury
from wsrm_mq.queue.hopping import UNKNOWN, destination, via_of
from wsrm_mq.queue.outbound import lanes_of, step_of
from wsrm_mq.queue.ownership import count_unsettled, settle_cursor
from wsrm_mq.queue.routing import Route, choose, routes
from wsrm_mq.queue.sending import channel_of
from wsrm_mq.sequence.outbound import Own
from wsrm_mq.sequence.outbound_states import OutboundState
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.store import queues, routing
from wsrm_mq.store.applications import hop_queue
from wsrm_mq.store.entries import HELD_BYTES
from wsrm_mq.store.outbound import OutboundRecord
from wsrm_mq.store.records import Lane
from wsrm_mq.store.transaction import Transaction, as_json
from wsrm_mq.versions import MAX_MESSAGE_NUMBER

MOST: Final = 5_000
_MOST_BURIED: Final = 500
_End = tuple[str, str]
"""The nodes that have had a message, as its row has them, and the queue that it is for."""


class Rerouted(NamedTuple):
    """The numbers of messages that go by another route, and that are dead letters as there is none."""

    moved: int = 0
    dead: int = 0


class _Part(NamedTuple):
    """The messages of a lane that leave it in one transaction: up to a number, or all of them."""

    lane: Lane
    upto: int
    is_whole: bool

    def of(self, ends: list[_End]) -> dict[str, object]:
        return {"old": self.lane.id, "upto": self.upto, "ends": _as_texts(ends)}


def _is_other(way: Route | None, next_hop: str, target: str, sent_as: str) -> bool:
    """Whether a message is to go elsewhere, or under another name: its route has been corrected."""
    return way is None or way.next_hop != next_hop or way.sent_as(target) != sent_as


def try_again(tx: Transaction, next_hop: str) -> None:
    """A next node answers again: nothing waits for its next attempt any longer."""
    for (key,) in tx.execute(routing.OPEN_TO, {"queue": hop_queue(next_hop)}).fetchall():
        for (lane,) in tx.execute(routing.LANES_OF, {"outbound": key}).fetchall():
            found = tx.lane(lane)
            if found is not None:
                found.wait(tx.now, None)


def reroute_waiting(tx: Transaction) -> Rerouted:
    """Have a part of what waits for whatever next node go by other routes; nothing of it is left where that is none."""
    waited_for = [address for (address,) in tx.execute(routing.WAITED_FOR).fetchall()]
    return next(filter(any, (reroute(tx, address) for address in waited_for)), Rerouted())


def reroute(tx: Transaction, next_hop: str) -> Rerouted:
    """Have what waits for a next node go by other routes, as far as there are: ``MOST`` messages of a sequence, the
    first ones, as those behind them may be a million. The rest waits for its turn where it is."""
    among = routes(tx)
    done = Rerouted()
    for (key,) in tx.execute(routing.OPEN_TO, {"queue": hop_queue(next_hop)}).fetchall():
        outbound = tx.outbound(key)
        assert outbound is not None
        tx.write_lanes()
        ends = tx.execute(routing.ENDS, {"outbound": key}).fetchall()
        ways = {(via, target): choose(among, target, via_of(via)) for via, target, _sent_as in ends}
        others = {(via, to) for via, to, sent_as in ends if _is_other(ways[via, to], next_hop, to, sent_as)}
        if others:
            moved, dead = _leave(tx, outbound, ways, others)
            done = Rerouted(done.moved + moved, done.dead + dead)
            if sum(done) >= MOST:
                return done  # what is behind may not pass what is left of this
    tx.execute(routing.HAS_MOVED, {"address": next_hop})
    return done


def _leave(tx: Transaction, outbound: OutboundRecord, ways: dict[_End, Route | None], others: set[_End]) -> Rerouted:
    is_asked_for = outbound.value.state is OutboundState.CREATING
    parts = [_Part(lane, *_last_of(tx, lane, [*others])) for lane in lanes_of(tx, outbound)]
    is_refused = is_asked_for and all(part.is_whole for part in parts)
    if is_refused:  # there it is not known: no part of it stays
        step_of(tx, outbound, Own.REFUSED)
    elif not is_asked_for:
        requests.close(tx, outbound)
    leaving = [end for end in ways if is_refused or end in others]
    groups: dict[str, list[_End]] = defaultdict(list)
    dead = 0
    for via, target in leaving:
        way = ways[via, target]
        if way is None:
            dead += sum(_bury(tx, part, (via, target)) for part in parts)
            continue
        groups[way.next_hop].append((via, target))
        for part in parts:
            tx.execute(routing.SEND_AS, {**part.of([(via, target)]), "sent_as": way.sent_as(target)})
    return Rerouted(sum(_move(tx, outbound, parts, to, ends) for to, ends in groups.items()), dead)


def _last_of(tx: Transaction, lane: Lane, ends: list[_End]) -> tuple[int, bool]:
    which = {"old": lane.id, "ends": _as_texts(ends), "most": MOST}
    behind = tx.execute(routing.BEHIND, which).fetchone()
    return (MAX_MESSAGE_NUMBER, True) if behind is None else (behind[0] - 1, False)


def _move(tx: Transaction, outbound: OutboundRecord, parts: list[_Part], to: str, ends: list[_End]) -> int:
    """Have the messages of these ``ends`` wait for the node at ``to``, behind all that waits for it."""
    name, _application = tx.execute(queues.QUEUE, {"key": outbound.queue}).fetchone()
    there = destination(to, name.partition("#")[2] or None)
    queue = tx.queue(there.queue, "outgoing")
    if (before := requests.current(tx, queue, there, offers=False)) is not None:
        step_of(tx, before, Own.SEAL)
    made = requests.begin(tx, queue, there, offers=False)
    lane = channel_of(tx, made)
    moved = sum(_move_part(tx, part, lane, ends) for part in parts)
    made.follow(made.value._replace(given=moved), tx.now)
    (lane.held_bytes,) = tx.execute(HELD_BYTES, {"lane": lane.id, "limit": 1}).fetchone()
    tx.ledger("rerouted", lane, reason=f"{moved} messages for {outbound.peer} go to {to}")
    return moved


def _move_part(tx: Transaction, part: _Part, lane: Lane, ends: list[_End]) -> int:
    which = part.of(ends)
    (count,) = tx.execute(routing.COUNT_FOR, which).fetchone()
    if count:
        begins = tx.reserve_positions(count).start
        row = {**which, "lane": lane.id, "queue": lane.queue, "begins": begins, "given": lane.held}
        tx.execute(routing.MOVE, row)
        tx.execute(routing.MOVED, {**which, "now": tx.now})
        lane.held += count
        lane.numbers = AckRanges(((1, lane.held),))
    _recount(tx, part.lane)
    return int(count)


def _bury(tx: Transaction, part: _Part, end: _End) -> int:
    count = 0
    while found := tx.execute(routing.WAITING_FOR, {**part.of([end]), "count": _MOST_BURIED}).fetchall():
        for position, number in found:
            bury(tx, part.lane, position, number, UNKNOWN)
        count += len(found)
    _recount(tx, part.lane)
    return count


def _as_texts(ends: list[_End]) -> str:
    return as_json([via + target for via, target in ends])


def _recount(tx: Transaction, lane: Lane) -> None:
    settle_cursor(tx, lane)
    lane.release(count_unsettled(tx, lane, lane.limit))
