"""Messages that arrive at an endpoint and are consumed: the mode ``pull``.

The policy of the endpoint's queue holds for what arrives as for what is put. A message is for consumers where its lane
is, and where it need not be answered.
"""

from __future__ import annotations

import json

from wsrm_mq.errors import QuotaExceeded
from wsrm_mq.queue import journaling
from wsrm_mq.queue.adding import Header
from wsrm_mq.queue.arrival import Arrival
from wsrm_mq.queue.declaring import journal_of, known
from wsrm_mq.queue.policies import ms
from wsrm_mq.queue.promoting import charset_of, promote
from wsrm_mq.queue.put import make_room
from wsrm_mq.store.transaction import Transaction


def lack_in_queue(tx: Transaction, arrival: Arrival) -> str:
    """Why the queue that is consumed has no room for a message; empty: it has."""
    try:
        make_room(tx, known(tx, arrival.sender.queue), arrival.body.size)
    except QuotaExceeded as error:
        return str(error)
    return ""


def expiry(tx: Transaction, arrival: Arrival) -> int | None:
    """When a message that arrives now is a dead letter, unless it is leased."""
    ttl = known(tx, arrival.sender.queue).policy.ttl
    return None if ttl is None else tx.now + ms(ttl)


def count_arrived(tx: Transaction, arrival: Arrival, message: int) -> None:
    """Count a message that was stored to be consumed, and keep the properties that its queue promotes."""
    queue = known(tx, arrival.sender.queue)
    tx.add_unsettled(queue.key, 1, arrival.body.size, last=message)
    if queue.policy.journal:
        journaling.record(tx, journal_of(tx, queue), message, message, arrival.body.size)
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
