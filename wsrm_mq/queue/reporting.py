"""The wishes that a message is put with, beside its delivery: reports on its way, and a record of the sender's when it
leaves. Each is written in the transaction that makes it true.

A report is an ordinary message in the queue that the sender named, and asks for nothing itself. Where the message was
put at another node, the report goes there by a route, for ``queue@node``.
"""

from __future__ import annotations

import enum
import json
from typing import Final, NamedTuple

from wsrm_mq.errors import NotAllowed, UnknownQueue
from wsrm_mq.queue import journaling
from wsrm_mq.queue.adding import Header, Put, add_entry, add_message
from wsrm_mq.queue.declaring import declared, refuse_system
from wsrm_mq.queue.quota import lack_of_room
from wsrm_mq.queue.routing import choose, node_name, routes
from wsrm_mq.store import entries, journals, routing
from wsrm_mq.store.records import Lane
from wsrm_mq.store.transaction import Transaction, as_json

TYPE: Final = "report"


class Asks(enum.IntFlag):
    """The wishes of a message, as its entries have them."""

    REACHED = 1
    """A report when it is stored in a queue."""
    RECEIVED = 2
    """A report when a consumer has acknowledged it."""
    NOT_DELIVERED = 4
    """A report when it is given up, with the reason."""
    RECORD = 8
    """An entry in the sender's journal when it has left a queue, whatever its outcome."""


class Report(NamedTuple):
    """``queue``: the one that the message is for; ``position``: the one where it was put, as its sender knows it;
    ``reason``: why it was given up."""

    report: str
    reason: str | None
    queue: str
    position: int
    message_id: str | None


def reached(tx: Transaction, one: Put, position: int) -> None:
    """A message that was put is in a queue, at ``position``."""
    if one.asks & Asks.REACHED:
        _report(tx, position, "reached")


def settled(tx: Transaction, lane: Lane, position: int, outcome: str, reason: str) -> None:
    """A message was given up. Where it was consumed, its queue counts it no longer, and it is told where that was
    wished for."""
    if lane.kind == "outgoing":
        for _entry, message, size, asks in tx.execute(routing.GIVEN_UP, {"key": position}).fetchall():
            left(tx, position, message, size, asks, outcome, reason)
    found = tx.execute(entries.LEAVES, {"key": position}).fetchone() if lane.is_consumed else None
    if found is not None:
        message, size, asks = found
        tx.add_unsettled(lane.queue, -1, -size)
        if asks:
            left(tx, position, message, size, asks, outcome, reason)


def went_on(tx: Transaction, lane: Lane, messages: list[int]) -> None:
    """The next node has these messages of a lane."""
    search = {"keys": as_json(messages), "lane": lane.id, "record": int(Asks.RECORD)}
    for position, message, size, _asks in tx.execute(routing.LEFT, search).fetchall():
        journaling.sent(tx, position, message, size)


def left(
    tx: Transaction, position: int, message: int, size: int, asks: int, outcome: str, reason: str | None = None
) -> None:
    """A message that was put with wishes has left its queue: it has this outcome there."""
    if asks & Asks.RECORD:
        journaling.sent(tx, position, message, size)
    if outcome == "delivered" and asks & Asks.RECEIVED:
        _report(tx, position, "received")
    elif outcome != "delivered" and asks & Asks.NOT_DELIVERED:
        _report(tx, position, "not_delivered", reason)


def _report(tx: Transaction, position: int, report: str, reason: str | None = None) -> None:
    to, queue, message_id = tx.execute(journals.REPORTED, {"key": position}).fetchone()
    node, origin, target = tx.execute(routing.HOME, {"key": position}).fetchone() or (None, position, queue)
    tell(tx, to, node, Report(report, reason, target, origin, message_id))


def tell(tx: Transaction, to: str, node: str | None, said: Report) -> None:
    """Report into the queue ``to`` of the node where the message was put; ``None``: of this one."""
    here = node_name(tx).name
    found = {name: value for name, value in {**said._asdict(), "node": node and here}.items() if value is not None}
    one = Put(b"", TYPE, header=Header(properties=json.dumps(found, ensure_ascii=False)))
    if node not in (None, here):
        from wsrm_mq.queue import hopping  # which reports, too

        home = f"{to}@{node}"
        way = choose(routes(tx), home)
        if way is None:
            tx.skipped("report_skipped", 0, to, f"no route is for {home}, where the message was put")
        else:
            hopping.forward(tx, way, home, one)
        return
    try:
        into = declared(tx, to)
        refuse_system(into)
    except (UnknownQueue, NotAllowed) as error:
        tx.skipped("report_skipped", 0, to, str(error))
        return
    lack = lack_of_room(tx, into, 0)
    if lack is not None:
        tx.skipped("report_skipped", into.key, to, lack)
        return
    add_entry(tx, into, one, add_message(tx, one), came_with=True)
