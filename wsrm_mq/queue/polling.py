"""A message may wait until its endpoint fetches it by MakeConnection: it is lent to one request at a time.

A numbered message waits until it is acknowledged: it is lent again after ``LENT_FOR``. Any other is gone with the first
request whose connection took it. What is never fetched is forgotten with the sequence that it is about.
"""

from __future__ import annotations

import json
from typing import Final

from wsrm_mq.queue.acknowledgement import acknowledged, answer_ack_requested
from wsrm_mq.queue.arrival import Fetched, FetchReceipt, Sender
from wsrm_mq.queue.ownership import settle_cursor
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.queue.sending import LENT_FOR
from wsrm_mq.sequence.elements import AckRequested
from wsrm_mq.store import channels, entries
from wsrm_mq.store.records import About, SequenceRecord, outbound_of
from wsrm_mq.store.transaction import Transaction

_MOST: Final = 16
"""The most acknowledgements in one answer."""


def fetch(
    tx: Transaction, sender: Sender, address: str, policy: QueuePolicy, ack_requested: tuple[AckRequested, ...] = ()
) -> FetchReceipt:
    """The oldest message that waits for ``address``, or the acknowledgements that do."""
    receipt = FetchReceipt()
    answer_ack_requested(tx, sender, policy, ack_requested, receipt, None)
    tx.write_lanes()
    whose = {"address": address, "principal": sender.principal, "peer": sender.peer}
    waiting = tx.execute(channels.WAITING, {**whose, "now": tx.now, "count": 2}).fetchall()
    keys = [key for (key,) in tx.execute(channels.ACKNOWLEDGEMENTS, {**whose, "count": _MOST})]
    acknowledging = {record.id: record for key in keys if (record := tx.sequence(key)) and tx.serves(record.queue)}
    for position, number, answers, outbound, is_numbered in waiting[:1]:
        about = tx.about(answers, outbound)
        if about is not None and tx.serves(about.queue):
            if isinstance(about, SequenceRecord) and about.acks_fetched_by == address:
                acknowledging[about.id] = about
            message = _lent(tx, position, about, number if is_numbered else None)
            receipt.fetched = message._replace(is_pending=len(waiting) > 1)
    for record in acknowledging.values():
        record.ack_waits = False
        receipt.others += (acknowledged(tx.db, record, policy, lambda: tx.used_bytes),)
    return receipt


def taken(tx: Transaction, position: int) -> None:
    """The connection took the message at ``position``, which has no number: it is not lent again."""
    found = tx.execute(channels.TAKEN, {"key": position, "now": tx.now}).fetchone()
    lane = tx.lane(found[0]) if found is not None else None
    if lane is not None:
        settle_cursor(tx, lane)
        tx.counts.delivered(lane.queue, None, is_replay=False)


def leave_to_fetch(tx: Transaction, position: int) -> None:
    """No request waits any longer for the reply to the message at ``position``."""
    tx.execute(entries.SET_WAITER, {"key": position, "waiter": None})


def _lent(tx: Transaction, position: int, about: About, number: int | None) -> Fetched:
    tx.execute(channels.SENT, {"key": position, "now": tx.now, "retry_at": tx.now + LENT_FOR})
    environ, body = tx.execute(channels.ENVELOPE, {"key": position}).fetchone()
    outbound = outbound_of(about)
    place = outbound.value.header(number) if number is not None and outbound is not None else None
    content_type = json.loads(environ)["CONTENT_TYPE"]
    return Fetched(position, about.value.terms, content_type, body, place)
