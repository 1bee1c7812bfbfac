"""What a message is put with wishes for, beside its delivery: reports on its way, and a record of the sender's when it
leaves. Each is written in the transaction that makes it true.

A report is an ordinary message in the queue that the sender named, and asks for nothing itself.
"""

from __future__ import annotations

import enum
import json
from typing import Final

from wsrm_mq.errors import NotAllowed, UnknownQueue
from wsrm_mq.queue import journaling
from wsrm_mq.queue.adding import Header, Put, add_entry, add_message
from wsrm_mq.queue.declaring import declared, refuse_system
from wsrm_mq.queue.quota import lack_of_room
from wsrm_mq.store import entries, journals
from wsrm_mq.store.records import Lane
from wsrm_mq.store.transaction import Transaction

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


def reached(tx: Transaction, one: Put, position: int) -> None:
    """A message that was put is in a queue, at ``position``."""
    if one.asks & Asks.REACHED:
        _report(tx, position, "reached")


def settled(tx: Transaction, lane: Lane, position: int, outcome: str, reason: str) -> None:
    """A message was given up. Where it was consumed, its queue counts it no longer, and it is told where that was
    wished for."""
    found = tx.execute(entries.LEAVES, {"key": position}).fetchone() if lane.is_consumed else None
    if found is not None:
        message, size, asks = found
        tx.add_unsettled(lane.queue, -1, -size)
        if asks:
            left(tx, position, message, size, asks, outcome, reason)


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
    said = {"report": report, "reason": reason, "queue": queue, "position": position, "message_id": message_id}
    properties = json.dumps({name: value for name, value in said.items() if value is not None}, ensure_ascii=False)
    one = Put(b"", TYPE, header=Header(properties=properties))
    add_entry(tx, into, one, add_message(tx, one), came_with=True)
