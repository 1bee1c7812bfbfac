"""Messages that arrive at an endpoint and are consumed: the mode ``pull``.

The endpoint's queue is declared then, by its first message or by whoever comes before it, and its policy holds for what
arrives as for what is put. A message is for consumers where its lane is, and where it need not be answered.
"""

from __future__ import annotations

import json
from typing import Final

from wsrm_mq.errors import QuotaExceeded
from wsrm_mq.queue import journaling
from wsrm_mq.queue.adding import Header
from wsrm_mq.queue.arrival import Arrival
from wsrm_mq.queue.declaring import Declared
from wsrm_mq.queue.policies import DEFAULT as NOTHING_DECLARED
from wsrm_mq.queue.policies import QueuePolicy as ConsumedPolicy
from wsrm_mq.queue.policies import changed, encoded, ms
from wsrm_mq.queue.policy import Mode, QueuePolicy
from wsrm_mq.queue.promoting import charset_of, promote
from wsrm_mq.queue.put import make_room
from wsrm_mq.store import queues
from wsrm_mq.store.records import Lane
from wsrm_mq.store.transaction import Transaction

_FOR_EVER: Final = 1e10
"""Seconds."""


def endpoint_queue(tx: Transaction, name: str, policy: QueuePolicy) -> int:
    """The key of an endpoint's queue, which is made if it is missing, and consumed where the mode says so. What only
    some of its senders are to have consumed makes it so for all."""
    key = tx.queue(name)
    row = tx.queue_row(name)
    assert row is not None
    found = Declared(*row)
    if policy.mode is Mode.PULL and found.mode != Mode.PULL:
        tx.set_mode(name, key, Mode.PULL, encoded(_as_kept(policy)))
    elif policy.mode is not Mode.PULL and found.is_declared and found.mode is None:
        messages, _bytes = tx.unsettled_in(key)
        tx.set_mode(name, key, Mode.DISPATCH)
        tx.taken_from_programs(key, name, messages)
    return key


def claim(tx: Transaction, name: str) -> bool:
    """A service that is called has given its queue this name: no program declares it from now on. Answers whether none
    has."""
    row = tx.queue_row(name)
    if row is None:
        tx.queue(name)
    return row is None or not (Declared(*row).is_declared and Declared(*row).mode is None)


def _as_kept(policy: QueuePolicy) -> ConsumedPolicy:
    """A consumed message is kept as long as a dispatched one."""
    return changed(NOTHING_DECLARED, {"retain": _FOR_EVER if policy.retain is None else policy.retain / 1000})


def goes_to_consumers(tx: Transaction, lane: Lane) -> bool:
    """Whether a message that came in ``lane`` is for consumers if it is delivered again: as its queue is consumed now.
    What has ended before the mode was changed follows it, but for a partner's, whose own mode is not known here."""
    name, _application = tx.execute(queues.QUEUE, {"key": lane.queue}).fetchone()
    row = tx.queue_row(name)
    assert row is not None
    mode = Declared(*row).mode
    if mode == Mode.PULL and lane.is_over and lane.partner is None:
        return True
    return lane.is_consumed and mode != Mode.DISPATCH


def lack_in_queue(tx: Transaction, arrival: Arrival) -> str:
    """Why the queue that is consumed has no room for a message; empty: it has."""
    try:
        make_room(tx, _queue(tx, arrival), arrival.body.size)
    except QuotaExceeded as error:
        return str(error)
    return ""


def expiry(tx: Transaction, arrival: Arrival) -> int | None:
    """When a message that arrives now is a dead letter, unless it is leased."""
    ttl = _queue(tx, arrival).policy.ttl
    return None if ttl is None else tx.now + ms(ttl)


def count_arrived(tx: Transaction, arrival: Arrival, message: int) -> None:
    """Count a message that was stored to be consumed, and keep the properties that its queue promotes."""
    queue = _queue(tx, arrival)
    tx.add_unsettled(queue.key, 1, arrival.body.size, last=message)
    if queue.policy.journal:
        journaling.arrived(tx, queue, message, message, arrival.body.size)
    expressions = queue.policy.properties
    if not expressions:
        return
    content = arrival.body.content
    if content is None:
        with arrival.body.open() as body:
            content = body.read()
    content_type = json.loads(arrival.environ).get("CONTENT_TYPE")
    found = promote(expressions, content, charset_of(content_type))
    if found:
        header = Header(properties=json.dumps(found, ensure_ascii=False), content_type=content_type)
        tx.add_header({"message": message, **header._asdict()})


def _queue(tx: Transaction, arrival: Arrival) -> Declared:
    row = tx.queue_row(arrival.sender.queue)
    assert row is not None
    return Declared(*row)
