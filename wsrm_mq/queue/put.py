"""Putting messages into queues: all of a transaction, or nothing of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from wsrm_mq.errors import ConfigurationError, QuotaExceeded
from wsrm_mq.queue.declaring import Declared
from wsrm_mq.queue.leaving import put_aside, standing
from wsrm_mq.queue.policies import ms
from wsrm_mq.queue.promoting import charset_of, promote
from wsrm_mq.store import consuming
from wsrm_mq.store.consuming import DEFAULT_PRIORITY
from wsrm_mq.store.records import Lane
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.versions import ADDRESSING_OF_LABEL, SOAP_OF_LABEL

_SOAP: Final = SOAP_OF_LABEL["1.2"]
_ADDRESSING: Final = ADDRESSING_OF_LABEL["1.0"]
"""A lane has versions of envelopes, also where it has none."""


class Header(NamedTuple):
    """The facts about a message beside its body. ``properties``: a JSON object. Times in ms since the epoch."""

    topic: str | None = None
    properties: str | None = None
    content_type: str | None = None
    receive_by: int | None = None
    client: str | None = None


NOTHING_SAID: Final = Header()


class Put(NamedTuple):
    """A message to be put. ``message_id``: its sender's, by which it is known again. ``ttl``: ms until it is a dead
    letter. ``deliver_at``: it is not delivered before, ms since the epoch. ``group``: all of the same are delivered in
    order."""

    body: bytes
    type: str | None = None
    message_id: str | None = None
    priority: int = DEFAULT_PRIORITY
    ttl: int | None = None
    deliver_at: int | None = None
    group: str | None = None
    header: Header = NOTHING_SAID


def put(tx: Transaction, queue: Declared, one: Put) -> int:
    """Put a message into a queue; answers its position, or that of the same one which was put before. Raises
    ``QuotaExceeded``."""
    if one.message_id is not None:
        known = put_before(tx, queue, one.message_id)
        if known is not None:
            return known
    make_room(tx, queue, len(one.body))
    message = add_message(tx, with_promoted(one, queue.policy.properties))
    return add_entry(tx, queue, one, message, came_with=True)


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


def add_message(tx: Transaction, one: Put) -> int:
    """Store a message; answers its key, which is the position of its first entry."""
    key = tx.add_message(
        {
            "message_id": one.message_id,
            "action": one.type,
            "environ": "{}",
            "principal": None,
            "connection": None,
            "received_at": tx.now,
            "body_size": len(one.body),
            "body": one.body,
        }
    )
    if one.header is not NOTHING_SAID:
        tx.add_header({"message": key, **one.header._asdict()})
    return key


def add_entry(tx: Transaction, queue: Declared, one: Put, message: int, *, came_with: bool = False) -> int:
    """Add a stored message to a queue; answers its position. ``came_with``: it is the first that the message is in."""
    policy = queue.policy
    lane, number = (None, None) if one.group is None else _next_in(tx, queue, one)
    wait = None if one.deliver_at is None or one.deliver_at <= tx.now else one.deliver_at
    row = {
        "queue": queue.key,
        "message": message,
        "lane": lane,
        "number": number,
        "priority": one.priority,
        "expires_at": _expiry(tx, one, policy.ttl),
        "retry_from": None,
        "retry_at": wait,
        "hold": None if wait is None else "scheduled",
        "replay_of": None,
    }
    if came_with:
        row["id"] = message
    position = tx.add_put(row)
    if queue.is_declared:
        tx.add_unsettled(queue.key, 1, len(one.body))
    if one.message_id is not None and policy.dedupe_window:
        until = tx.now + ms(policy.dedupe_window)
        tx.execute(
            consuming.ADD_DEDUPE,
            {"queue": queue.key, "message_id": one.message_id, "message": message, "until": until},
        )
    return position


def put_before(tx: Transaction, queue: Declared, message_id: str) -> int | None:
    """The position of the message that was put into a queue under this id a while ago; ``None`` where there is none."""
    which = {"queue": queue.key, "message_id": message_id}
    found = tx.execute(consuming.PUT_BEFORE, which).fetchone()
    if found is None:
        return None
    message, until = found
    if until > tx.now:
        at = tx.execute(consuming.POSITION_IN, {"message": message, "queue": queue.key}).fetchone()
        if at is not None:
            return int(at[0])
    tx.execute(consuming.FORGET_PUT, which)
    return None


def make_room(tx: Transaction, queue: Declared, size: int) -> None:
    """See that there is room for a message of ``size`` bytes. Raises ``QuotaExceeded`` where there is none, and where
    there is never."""
    policy = queue.policy
    if policy.max_messages is None and policy.max_bytes is None:
        return
    if policy.max_bytes is not None and size > policy.max_bytes:
        raise QuotaExceeded(
            f"The message has {size} bytes, `max_bytes` of {queue.name} is {policy.max_bytes}: it never fits.",
            lasts=True,
        )
    while (lack := _lack_of_room(tx, queue, size)) is not None:
        head = None
        if policy.overflow == "drop_head":
            head = tx.execute(consuming.READY, {"queue": queue.key, "now": tx.now, "count": 1}).fetchone()
        if head is None:
            raise QuotaExceeded(lack)
        put_aside(tx, standing(tx, [head[0]])[head[0]], "quota")


def _lack_of_room(tx: Transaction, queue: Declared, size: int) -> str | None:
    messages, bytes_ = tx.unsettled_in(queue.key)
    policy = queue.policy
    if policy.max_messages is not None and messages >= policy.max_messages:
        return f"{queue.name} has {messages} messages, and its `max_messages` is {policy.max_messages}."
    if policy.max_bytes is not None and bytes_ + size > policy.max_bytes:
        return f"{queue.name} has {bytes_} bytes, and its `max_bytes` is {policy.max_bytes}."
    return None


def _expiry(tx: Transaction, one: Put, ttl: float | None) -> int | None:
    lasts = one.ttl if one.ttl is not None else None if ttl is None else ms(ttl)
    ends = (one.header.receive_by, None if lasts is None else tx.now + lasts)
    return min((end for end in ends if end is not None), default=None)


def _next_in(tx: Transaction, queue: Declared, one: Put) -> tuple[int, int]:
    """Lane and number of a message of an ordered group, whose lane is made with its first."""
    if one.deliver_at is not None:
        raise ConfigurationError("A message of a group is delivered in its turn: leave out `deliver_at`, or `group`.")
    identifier = f"group:{queue.key}:{one.group}"
    lane = tx.lane_named(identifier)
    if lane is None:
        lane = Lane(
            queue=queue.key,
            kind="group",
            identifier=identifier,
            soap=_SOAP,
            addressing=_ADDRESSING,
            created_at=tx.now,
            active_at=tx.now,
        )
        tx.add_lane(lane)
        tx.execute(consuming.MAKE_LEASABLE, {"key": lane.id})
    return lane.id, lane.append(tx.now)
