"""The rows of the read views: sequences, messages and events of the ledger. Times are ms since the epoch."""

from __future__ import annotations

from typing import Final, NamedTuple

from wsrm_mq.sequence.ranges import AckRanges

LIVE: Final = "live"
"""Asks for messages without an outcome."""


class SequenceView(NamedTuple):
    """A sequence as its columns and its ranges tell it."""

    key: int
    identifier: str
    queue: str
    principal: str | None
    peer: str | None
    partner: str | None
    """The configuration section that fits its source."""
    rm: str
    soap: str
    addressing: str
    behavior: str
    assurance: str
    ordered: bool
    created_at: int
    expires_at: int | None
    inactivity: int | None
    state: str
    ended: str | None
    ended_at: int | None
    active_at: int
    due_at: int | None
    last_number: int | None
    expected: int
    cursor: int
    limit: int
    discard_from: int | None
    discard_reason: str | None
    discarding: bool
    owner: str | None
    """Name of the instance that runs it."""
    running_since: int | None
    retry_from: int | None
    retry_at: int | None
    blocked: int | None
    """Position of the entry that stopped it."""
    redelivery_below: int
    duplicates: int
    kind: str
    """``rm``; ``connection``: messages without WS-RM, numbered here; ``replay``: messages that are delivered again;
    ``outgoing``: this side's own."""
    connection: str | None
    replay_of: str | None
    """The sequence whose messages it replays."""
    plan: str | None
    """Id of the plan that it replays them by."""
    sends_to: str | None
    """The address that its messages are sent to: they are this side's own."""
    answers: str | None
    """The sequence that they are about."""
    on_hold_since: int | None
    """Since when an operator holds it."""
    late: str | None
    """The fate of a missing number that comes after an operator has forced the sequence past a gap."""
    held: int
    """How many accepted numbers wait at or beyond the limit."""
    delivery: str
    """The state of its delivery, a word of ``DeliveryState``."""
    consumed: bool
    """Programs consume it; else the service is called with it, or it is sent."""
    received: AckRanges


class MessageView(NamedTuple):
    """A message in its place in a queue."""

    position: int
    queue: str
    sequence: str | None
    number: int | None
    message_id: str | None
    action: str | None
    state: str
    """``held``, ``ready`` or ``leased``; else the outcome."""
    reason: str | None
    received_at: int
    settled_at: int | None
    deliveries: int
    failures: int
    retry_at: int | None
    last_error: str | None
    principal: str | None
    connection: str | None
    body_size: int


class MessageDetail(NamedTuple):
    """The facts about a message that lists leave out."""

    view: MessageView
    environ: str
    """The part of the request that a replay needs, as JSON."""
    wants_reply: bool
    named: bool
    has_body: bool
    reply_status: str | None
    origin: str | None
    """The queue a dead letter comes from."""
    replay_of: int | None
    journal_of: int | None
    """The position of what it records, in a journal."""
    confirmed_at: int | None
    original_sequence: str | None
    """With ``original_number`` the key that the service knows the message by."""
    original_number: int | None
    priority: int | None
    """The priority of a message that programs consume; ``None``: an application is called with it."""
    expires_at: int | None
    leased_until: int | None
    holder: str | None
    """The instance that has leased it."""
    consumer: str | None
    """The name of the consumer there, where it subscribed."""
    topic: str | None
    properties: str | None
    """A JSON object."""
    content_type: str | None
    producer: str | None


class LedgerView(NamedTuple):
    at: int
    event: str
    number: int | None
    position: int | None
    instance: str | None
    attempt: int | None
    reason: str | None
    actor: str | None
