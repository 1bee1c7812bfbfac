"""The promises of a queue, and its behaviour when its application fails."""

from __future__ import annotations

import enum
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from wsrm_mq.queue.room import Room
from wsrm_mq.sequence.elements import IncompleteSequenceBehavior
from wsrm_mq.sequence.terms import Bounds, DeliveryAssurance

MAX_RANGES: Final = 4_096
"""Separate ranges of numbers in one sequence: what an acknowledgement says, and a row each."""


class OnPoison(enum.StrEnum):
    """The end of a message whose last try failed."""

    BLOCK = "block"
    """The sequence stops there until an operator resumes or skips."""
    DEAD_LETTER = "dead_letter"
    """The message goes to the dead letters and the sequence goes on."""
    TERMINATE = "terminate"
    """The sequence ends; the source is told SequenceTerminated."""


class OnFault(enum.StrEnum):
    """The end of a one-way message that the application answered with a fault which is its sender's."""

    SETTLE = "settle"
    """It is settled as delivered, and remarked upon."""
    DEAD_LETTER = "dead_letter"
    """It goes to the dead letters and the sequence goes on."""


class Mode(enum.StrEnum):
    """Who takes the messages that arrive at an endpoint."""

    DISPATCH = "dispatch"
    """The application is called with each."""
    PULL = "pull"
    """Programs consume one-way messages from the endpoint's queue; the application is called with the others."""
    COPY = "copy"
    """The application is called with each, and what it has taken is published to a topic."""


class Acknowledge(enum.StrEnum):
    """When an acknowledgement may name a message."""

    STORED = "stored"
    DELIVERED = "delivered"
    """An acknowledgement names a number only once the application has taken it (CXF: robust)."""


@dataclass(frozen=True, slots=True)
class Resend:
    """How this side sends again what is not taken, or not acknowledged."""

    ladder: tuple[int, ...] = tuple(
        1_000 * step for step in (3, 10, 30, 120, 600, 1800, 3600, 7200, 14400, 28800, 28800)
    )
    """How long to wait before the second, third, … sending, in ms; after the last it is a dead letter. A day in all."""
    spread: float = 0.0
    """Each wait is longer by up to this share of it, drawn anew: many that failed together do not come back together
    (S-RET-004)."""

    def wait(self, sendings: int) -> int | None:
        """How long to wait after so many, in ms; ``None``: there is no other."""
        if sendings > len(self.ladder):
            return None
        return round(self.ladder[sendings - 1] * random.uniform(1, 1 + self.spread))


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """The policy of a wrapped endpoint. Times in ms."""

    mode: Mode = Mode.DISPATCH
    retry: tuple[int, ...] = (1_000, 5_000, 15_000, 60_000, 300_000)
    """The ladder: how long to wait before the second, third, … try. Empty: no second try."""
    resend: Resend = field(default_factory=Resend)
    """The ladder for what this side sends."""
    on_poison: OnPoison = OnPoison.BLOCK
    on_fault: OnFault = OnFault.SETTLE
    acknowledge: Acknowledge = Acknowledge.STORED
    behavior: IncompleteSequenceBehavior = IncompleteSequenceBehavior.NO_DISCARD
    incomplete_reason: str = "first_gap"
    assurance: DeliveryAssurance = DeliveryAssurance.EXACTLY_ONCE
    ordered: bool = True
    max_expires: int = 7 * 24 * 3_600_000
    inactivity: int | None = None
    bounds: Bounds = field(default_factory=lambda: Bounds(max_held=1_000_000, max_ranges=MAX_RANGES))
    connection_idle: int = 300_000
    """A connection without traffic for so long is over, where the server does not show its end."""
    connection_on_poison: OnPoison = OnPoison.DEAD_LETTER
    """``on_poison`` for messages that came without WS-RM."""
    room: Room = field(default_factory=Room)
    tells_room: bool = False
    """Acknowledgements say how much room is left, and a message that finds none is left unacknowledged (WCF)."""
    acknowledgement_interval: int | None = None
    """Where one-way messages get an empty answer: how long an acknowledgement may be put off."""
    retry_faults: bool = False
    """Any fault of a two-way operation counts as a failure, not as the answer."""
    retain: int | None = 7 * 24 * 3_600_000
    """How long a settled message is kept; ``None``: for ever."""
    retain_until_archived: bool = False
    """Whether nothing is deleted before an archive holds it."""
    retain_ended: int = 30 * 24 * 3_600_000
    """How long an ended sequence is remembered."""
    retain_ledger: int = 30 * 24 * 3_600_000
    """How long the ledger keeps what is about neither a message nor a sequence; of no partner."""


PolicyOf = Callable[[str | None], QueuePolicy]
"""A partner's name, ``None`` for those without a section → the policy that rules their sequences."""
