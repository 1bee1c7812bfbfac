"""One message on its way to the application, and the outcome of its delivery."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from wsrm_mq.queue.arrival import Body
from wsrm_mq.queue.diagnosis import UNKNOWN, Diagnosis
from wsrm_mq.queue.settle import ServiceReply
from wsrm_mq.store.channels import Channel


class Key(NamedTuple):
    """The key by which the application knows a message: identifier and number that it came under, and the plan that
    makes it a new one."""

    identifier: str
    number: int
    replay_id: str = ""


class Delivery(NamedTuple):
    """All that a call of the application needs. ``environ`` is the stored part of the request, as JSON; ``rm``,
    ``soap`` and ``addressing`` are labels of versions."""

    position: int
    number: int
    identifier: str
    partner: str | None
    rm: str
    soap: str
    addressing: str
    action: str | None
    message_id: str | None
    environ: str
    principal: str | None
    connection: str | None
    body: Body
    wants_reply: bool
    attempt: int = 1
    """1 for the first try."""
    redelivery: bool = False
    """The application may have seen it before."""
    late: bool = False
    """Out of order: an operator had forced the sequence past it before it came."""
    at_most_once: bool = False
    """Settled before the call."""
    is_waited_for: bool = False
    """A request waits for the settlement, or may wait for it by now."""
    is_replay: bool = False
    """It was read back from the store: the second loop delivers it."""
    channel: Channel | None = None
    """The channel in which it is sent; ``None``: it is delivered to the application."""
    received_at: int = 0
    """The time when a message to be sent was made."""
    source: Key | None = None
    """The key that it came under, where an operator has it delivered again: its sequence here is one of replays."""

    @property
    def key(self) -> Key:
        return self.source or Key(self.identifier, self.number)


@dataclass(slots=True)
class Outcome:
    """The outcome of a delivery. ``error`` says why the application has not taken the message; ``None``: it has.
    ``remark`` is the answer that it gave to a one-way message, where it took the message and answered a fault or
    content: the sender does not read that."""

    reply: ServiceReply | None = None
    error: str | None = None
    remark: str | None = None
    diagnosis: Diagnosis = UNKNOWN
    """The diagnosis of the error, or of the fault that the remark is about."""
    is_known: bool = False
    """The application says that it had done it before."""
    is_copied: bool = False
    """It is published, now that the application has taken it."""
    is_sent: bool = False
    """It has left, and is settled only by its acknowledgement."""
    left_alone: float | None = None
    """With an error: nothing was called or sent, and nothing is to be for so many seconds. That counts as no
    attempt."""
    seconds: float | None = None
    """How long the call took; ``None``: it was not called yet."""
    settling: Any = None
    """The span that ends when the outcome is stored; see ``tracing``."""


Call = Callable[[Delivery], Outcome]
"""Calls the application. Raises nothing: a raising application is an ``Outcome`` with an error."""
