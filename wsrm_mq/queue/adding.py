"""Adding to a queue what was put: a message, and its entry there."""

from __future__ import annotations

from typing import Final, NamedTuple

from wsrm_mq.errors import ConfigurationError
from wsrm_mq.queue import journaling
from wsrm_mq.queue.declaring import LOG, Declared, journal_of
from wsrm_mq.queue.filters import fits_stored
from wsrm_mq.queue.policies import ms
from wsrm_mq.store import consuming
from wsrm_mq.store.bulk import PUT
from wsrm_mq.store.records import Lane
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.store.words import DEFAULT_PRIORITY
from wsrm_mq.versions import ADDRESSING_OF_LABEL, SOAP_OF_LABEL

_SOAP: Final = SOAP_OF_LABEL["1.2"]
_ADDRESSING: Final = ADDRESSING_OF_LABEL["1.0"]
"""A lane has versions of envelopes, also where it has none."""


MAX_HOPS: Final = 15


class Header(NamedTuple):
    """The facts about a message beside its body. ``properties``: a JSON object. Times in ms since the epoch."""

    topic: str | None = None
    properties: str | None = None
    content_type: str | None = None
    receive_by: int | None = None
    client: str | None = None
    report_to: str | None = None


NOTHING_SAID: Final = Header()


class Put(NamedTuple):
    """A message to be put. ``message_id``: its sender's, by which it is known again. ``ttl``: ms until it is a dead
    letter. ``deliver_at``: it is not delivered before, ms since the epoch. ``group``: all of the same are delivered in
    order. ``asks``: what is told of it beside, ``reporting.Asks``. ``reach_by``: it is a dead letter then, ms since the
    epoch, unless it has reached its queue, which may be another node's; ``max_hops``: so many nodes have it at most."""

    body: bytes
    type: str | None = None
    message_id: str | None = None
    priority: int = DEFAULT_PRIORITY
    ttl: int | None = None
    deliver_at: int | None = None
    group: str | None = None
    header: Header = NOTHING_SAID
    asks: int = 0
    reach_by: int | None = None
    max_hops: int = MAX_HOPS


def add_message(tx: Transaction, one: Put) -> int:
    """Store a message; answers its key, which is the position of its first entry."""
    key = tx.add_message(one.message_id, one.type, one.body)
    if one.header is not NOTHING_SAID:
        tx.add_header({"message": key, **one.header._asdict()})
    return key


def add_entry(tx: Transaction, queue: Declared, one: Put, message: int, *, came_with: bool = False) -> int:
    """Add a stored message to a queue; answers its position. ``came_with``: it is the first that the message is in."""
    policy = queue.policy
    hold, one = _held(tx, queue, one, message)
    lane, number = (None, None) if one.group is None else _next_in(tx, queue, one)
    row = {
        "queue": queue.key,
        "message": message,
        "lane": lane,
        "number": number,
        "priority": one.priority,
        "expires_at": _expiry(tx, one, policy.ttl),
        "retry_from": None,
        "retry_at": one.deliver_at if hold == "scheduled" else None,
        "hold": hold,
        "replay_of": None,
        "journal_of": None,
        "asks": one.asks or None,
    }
    if came_with:
        row["id"] = message
    position = tx.add_entry(row, PUT)
    if queue.is_declared:
        tx.add_unsettled(queue.key, 1, len(one.body))
    if policy.journal:
        journaling.record(tx, journal_of(tx, queue), position, message, len(one.body))
    if one.message_id is not None and policy.dedupe_window:
        until = tx.now + ms(policy.dedupe_window)
        tx.execute(
            consuming.ADD_DEDUPE, {"queue": queue.key, "message_id": one.message_id, "message": message, "until": until}
        )
    return position


def _held(tx: Transaction, queue: Declared, one: Put, message: int) -> tuple[str | None, Put]:
    """Why the entry of a message in a queue waits from the beginning, if it does; and the message with the wishes that
    the queue heeds."""
    if queue.kind == LOG:
        header = one.header._replace(receive_by=None)
        return "retained", one._replace(ttl=None, deliver_at=None, group=None, header=header, asks=0)
    barrier = queue.policy.barrier
    if barrier is not None and fits_stored(tx, barrier, message, one.priority):
        return "barrier", one._replace(deliver_at=None, group=None)
    if one.deliver_at is not None and one.deliver_at > tx.now:
        return "scheduled", one
    return None, one


def _expiry(tx: Transaction, one: Put, ttl: float | None) -> int | None:
    lasts = one.ttl if one.ttl is not None else None if ttl is None else ms(ttl)
    ends = (one.header.receive_by, None if lasts is None else tx.now + lasts)
    return min((end for end in ends if end is not None), default=None)


def check_group(one: Put, queue: Declared | None = None) -> None:
    """Raises ``ConfigurationError`` for a group that has no order; ``queue`` is not known where another node has it."""
    if one.group is None:
        return
    if one.deliver_at is not None:
        raise ConfigurationError("A message of a group is delivered in its turn: leave out `deliver_at`, or `group`.")
    if queue is not None and queue.policy.delivery == "at_most_once":
        raise ConfigurationError(
            f"{queue.name} delivers at most once, and a group waits for the acknowledgement of each of its messages: "
            "leave out `group`, or declare the queue with `delivery='at_least_once'`."
        )


def _next_in(tx: Transaction, queue: Declared, one: Put) -> tuple[int, int]:
    """Lane and number of a message of an ordered group, whose lane is made with its first."""
    check_group(one, queue)
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
            is_consumed=True,
        )
        tx.add_lane(lane)
    return lane.id, lane.append(tx.now)
