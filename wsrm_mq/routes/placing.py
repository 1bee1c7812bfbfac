"""Messages that other nodes have handed over are placed: in a queue of this node, or in the transmission queue of the
next one.

One transaction settles what has come and writes it where it goes, so whenever a process is killed it is in one place.
What has no place is a dead letter where it has come, with the reason; redriven, it is placed anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from wsrm_mq.errors import BadRequest, ConfigurationError, NotAllowed, QuotaExceeded, StoreError
from wsrm_mq.queue import hopping, put, settling
from wsrm_mq.queue.adding import check_group
from wsrm_mq.queue.declaring import LOG, Declared, is_name
from wsrm_mq.queue.hopping import UNKNOWN
from wsrm_mq.queue.leasing import Leased, Request, lease
from wsrm_mq.queue.reporting import Asks, Report, reached, tell
from wsrm_mq.queue.routing import Route, choose, node_name, routes
from wsrm_mq.queue.settling import Lease
from wsrm_mq.routes.block import Carried, carried
from wsrm_mq.store import routing
from wsrm_mq.store.applications import INTAKE
from wsrm_mq.store.driver import translate
from wsrm_mq.store.transaction import Transaction, as_json

MOST: Final = 64
"""The most messages of one transaction."""
_MOST_BYTES: Final = 16 * 1024 * 1024
_ANY_STORE: Final = Path()

May = Callable[[Transaction, str | None, str], bool]
"""Whether the holder of a token, by its name, may put into the queue of a name by way of this node."""


class _At(NamedTuple):
    """The node, for one transaction. ``full``: the queues of it that have no room, as far as it was found."""

    name: str
    routes: list[Route]
    may: May
    full: set[str]


class Refused(NamedTuple):
    """A message has no place: the reason of the dead letter, and a sentence that says more."""

    reason: str
    why: str


class Waits(Exception):
    """The queue that it is for has no room, and its producers wait for that."""


class Broken(Exception):
    """The message at a position cannot be placed for an error that is none of its sender's, which is the cause."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


def place(tx: Transaction, may: May, aside: Mapping[int, str] | None = None) -> int:
    """Place what has come, some of it; answers how many messages that were. Those that are ``aside``, by position, are
    given up for an error. Raises ``Broken``."""
    waits: dict[Lease, int | None] = {}  # with their lanes: they stay leased meanwhile, so the next look has others
    at, placed = _At(node_name(tx).name, routes(tx), may, set()), 0
    while not placed and (found := _come(tx)):
        keys = as_json([one.seen.message for one in found])
        principals = dict(tx.execute(routing.PRINCIPALS, {"keys": keys}).fetchall())
        for one in found:
            if one.seen.lane in waits.values():
                waits[_lease_of(one)] = one.seen.lane
                continue
            try:
                why = (aside or {}).get(one.seen.position)
                principal = principals.get(one.seen.message)
                refused = _place(tx, at, one, principal) if why is None else Refused("unreadable", why)
            except Waits:
                waits[_lease_of(one)] = one.seen.lane
                continue
            except Exception as error:
                if isinstance(error, StoreError | MemoryError | OSError) or translate(error, _ANY_STORE) is not error:
                    raise  # a full disk is not the message's fault
                raise Broken(one.seen.position) from error
            if refused is None:
                settling.ack(tx, [_lease_of(one)])
            else:
                settling.reject(tx, [_lease_of(one)], refused.reason, refused.why)
            placed += 1
    settling.hand_back(tx, list(waits))
    return placed


def _come(tx: Transaction) -> list[Leased]:
    row = tx.queue_row(INTAKE)
    return [] if row is None else lease(tx, [Declared(*row)], Request(MOST, _MOST_BYTES))


def _lease_of(one: Leased) -> Lease:
    return Lease(one.seen.position, one.seen.fence)


def _place(tx: Transaction, at: _At, one: Leased, principal: str | None) -> Refused | None:
    try:
        come = carried(one.seen.body or b"", one.seen.received_at)
    except BadRequest as error:
        return Refused("unreadable", str(error))
    come = _told_where_it_may(tx, at, _anew(tx, come, one), principal)
    name, is_named, node = come.target.rpartition("@")
    target = name if is_named and node == at.name else come.target
    refused = (
        _forbidden(tx, principal, target, at.may)
        or _too_late(tx, come)
        or _far(tx, come, target, at.name)
        or _go_on(tx, at, come, target)
    )
    if refused is not None:
        silent = come.one._replace(asks=0)  # its sender is told by whom it is refused
        hopping.keep_origin(tx, one.seen.message, target, silent, come.origin)
    if refused is not None and come.one.asks & Asks.NOT_DELIVERED and come.one.header.report_to:
        said = Report("not_delivered", refused.reason, come.target, come.origin.position, come.one.message_id)
        tell(tx, come.one.header.report_to, come.origin.node, said)
    return refused


def _anew(tx: Transaction, come: Carried, one: Leased) -> Carried:
    """A message that was redriven has no deadline any more, and has been nowhere."""
    lane = None if one.seen.lane is None else tx.lane(one.seen.lane)
    if lane is None or lane.kind != "replay":
        return come
    header = come.one.header._replace(receive_by=None)
    return come._replace(one=come.one._replace(header=header, reach_by=None), origin=come.origin._replace(via=()))


def _told_where_it_may(tx: Transaction, at: _At, come: Carried, principal: str | None) -> Carried:
    """Without the wishes for reports into a queue that the node which hands it over may not put into: reports go there
    in the name of this node."""
    to, node = come.one.header.report_to, come.origin.node
    if not come.one.asks or to is None or principal == node:
        return come
    home = to if node == at.name else f"{to}@{node}"
    if at.may(tx, principal, home):
        return come
    tx.skipped("report_skipped", 0, to, f"{principal} has not the right `route` to {home}")
    return come._replace(one=come.one._replace(asks=0))


def _forbidden(tx: Transaction, principal: str | None, target: str, may: May) -> Refused | None:
    if may(tx, principal, target):
        return None
    return Refused("not_allowed", f"{principal} has not the right `route` to {target}.")


def _too_late(tx: Transaction, come: Carried) -> Refused | None:
    for reason, end in (("ttl_expired", come.one.header.receive_by), ("reach_by", come.one.reach_by)):
        if end is not None and end <= tx.reached:
            return Refused(reason, f"Its time was over when it came here, from {come.origin.via[-1:]}.")
    return None


def _far(tx: Transaction, come: Carried, target: str, here: str) -> Refused | None:
    via = " ".join(come.origin.via)
    if here in come.origin.via and tx.queue_row(target) is None:
        return Refused("loop", f"It was here before, by {via}: routes of these nodes lead to each other.")
    if len(come.origin.via) >= come.one.max_hops:
        return Refused("hop_count_exceeded", f"{come.one.max_hops} nodes have had it: {via}.")
    return None


def _go_on(tx: Transaction, at: _At, come: Carried, target: str) -> Refused | None:
    row = tx.queue_row(target) if is_name(target) else None
    if row is not None:
        return _put(tx, come, Declared(*row), at.full)
    route = choose(at.routes, target, come.origin.via)
    if route is None:
        return Refused(UNKNOWN, f"There is no queue {target} at {at.name}, and no route is for it.")
    hopping.forward(tx, route, target, come.one, come.origin, is_express=come.is_express)
    return None


def _put(tx: Transaction, come: Carried, queue: Declared, full: set[str]) -> Refused | None:
    if queue.name in full:  # what came before it waits there: it passes nothing
        raise Waits
    if not queue.is_consumed:
        return Refused(UNKNOWN, f"The application of {queue.name} is called with what arrives there.")
    if hopping.has_arrived(tx, come.origin, queue.name):
        node, incarnation, position, _via = come.origin
        tx.add_ledger("repeated", queue.key, reason=f"{position} of {node}, incarnation {incarnation}")
        return None
    try:
        if come.one.message_id is not None and put.put_before(tx, queue, come.one.message_id) is not None:
            tx.add_ledger("repeated", queue.key, reason=f"put before with the id {come.one.message_id}")
            hopping.arrived(tx, come.origin, queue.key)
            return None
        if queue.kind != LOG:
            check_group(come.one, queue)  # before its body is written
        position = put.put(tx, queue, come.one._replace(asks=come.one.asks & ~Asks.REACHED))
        hopping.keep_origin(tx, position, come.target, come.one, come.origin)
        reached(tx, come.one, position)
    except QuotaExceeded as error:
        if error.blocks:
            full.add(queue.name)
            raise Waits from None
        return Refused("quota", str(error))
    except (NotAllowed, ConfigurationError) as error:
        return Refused("rejected", str(error))
    hopping.arrived(tx, come.origin, queue.key)
    return None
