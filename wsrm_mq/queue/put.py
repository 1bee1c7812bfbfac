"""Putting messages into queues: all of a transaction, or nothing of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from wsrm_mq.errors import QuotaExceeded
from wsrm_mq.queue.adding import Put, add_entry, add_message
from wsrm_mq.queue.declaring import Declared, refuse_system
from wsrm_mq.queue.leaving import put_aside, standing
from wsrm_mq.queue.promoting import charset_of, promote
from wsrm_mq.queue.quota import lack_of_room
from wsrm_mq.queue.reporting import reached
from wsrm_mq.store import consuming
from wsrm_mq.store.transaction import Transaction


def put(tx: Transaction, queue: Declared, one: Put) -> int:
    """Put a message into a queue; answers its position, or that of the same one which was put before. Raises
    ``QuotaExceeded``."""
    refuse_system(queue)
    if one.message_id is not None:
        known = put_before(tx, queue, one.message_id)
        if known is not None:
            return known
    make_room(tx, queue, len(one.body))
    message = add_message(tx, with_promoted(one, queue.policy.properties))
    position = add_entry(tx, queue, one, message, came_with=True)
    reached(tx, one, position)
    return position


def with_promoted(one: Put, expressions: Mapping[str, str]) -> Put:
    """The message with the properties too that its queue promotes: they go before those that it was put with."""
    found = promote(expressions, one.body, charset_of(one.header.content_type)) if expressions else {}
    if not found:
        return one
    said = json.loads(one.header.properties or "{}")
    properties = json.dumps({**said, **found}, ensure_ascii=False)
    return one._replace(header=one.header._replace(properties=properties))


def put_many(tx: Transaction, queue: Declared, many: Sequence[Put]) -> list[int]:
    """``put`` of each; answers their positions, in order."""
    return [put(tx, queue, one) for one in many]


def put_before(tx: Transaction, queue: Declared, message_id: str) -> int | None:
    """The position of the message that was put into a queue under this id a while ago; ``None`` where there is none."""
    which = {"queue": queue.key, "message_id": message_id}
    found = tx.execute(consuming.PUT_BEFORE, which).fetchone()
    if found is None:
        return None
    message, until = found
    position = position_in(tx, message, queue) if until > tx.now else None
    if position is None:
        tx.execute(consuming.FORGET_PUT, which)
    return position


def position_in(tx: Transaction, message: int, queue: Declared) -> int | None:
    """The position of a message in a queue, also where it is a dead letter by now; ``None``: it did not come there."""
    at = tx.execute(consuming.POSITION_IN, {"message": message, "queue": queue.key}).fetchone()
    return None if at is None else int(at[0])


def make_room(tx: Transaction, queue: Declared, size: int) -> None:
    """See that there is room for a message of ``size`` bytes. Raises ``QuotaExceeded`` where there is none, and where
    there is never."""
    policy = queue.policy
    if policy.max_bytes is not None and size > policy.max_bytes:
        raise QuotaExceeded(
            f"The message has {size} bytes, `max_bytes` of {queue.name} is {policy.max_bytes}: it never fits.",
            lasts=True,
        )
    while (lack := lack_of_room(tx, queue, size)) is not None:
        head = None
        if policy.overflow == "drop_head":
            head = tx.execute(consuming.READY.text, {"queue": queue.key, "now": tx.now, "count": 1}).fetchone()
        if head is None:
            blocks = policy.overflow == "block"
            raise QuotaExceeded(f"{lack} Have it consumed, or declare it with a larger one.", blocks=blocks)
        put_aside(tx, standing(tx, [head[0]])[head[0]], "quota")
