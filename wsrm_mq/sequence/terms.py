"""The values that a sequence is created with: the agreed terms, which never change, and the bounds of its contents."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from wsrm_mq.sequence.elements import IncompleteSequenceBehavior
from wsrm_mq.versions import AddressingVersion, RMVersion, SOAPVersion


class DeliveryAssurance(enum.StrEnum):
    """The promise of the destination to its application (WS-RM 1.1 §2.4). ``ordered`` is separate."""

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"
    """Settled before it is dispatched: a crash loses it, nothing repeats it."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms that were agreed when the sequence was created; they never change. Times in ms since the epoch."""

    identifier: str
    rm: RMVersion
    soap: SOAPVersion
    addressing: AddressingVersion
    behavior: IncompleteSequenceBehavior = IncompleteSequenceBehavior.NO_DISCARD
    assurance: DeliveryAssurance = DeliveryAssurance.EXACTLY_ONCE
    ordered: bool = True
    expires_at: int | None = None
    inactivity: int | None = None
    """A sequence without traffic ends after this many ms."""
    incomplete_reason: str = "first_gap"
    """The reason with which the messages behind the first gap are dead-lettered, where the behavior discards them."""

    @property
    def skips_gaps(self) -> bool:
        """Nothing waits for a missing number. A behavior that discards has to wait: it was announced (D-DEL-013)."""
        return self.behavior is IncompleteSequenceBehavior.NO_DISCARD and (
            not self.ordered or self.assurance is DeliveryAssurance.AT_MOST_ONCE
        )


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds on the messages that one sequence may hold. Room is checked on acceptance; ``None`` is no bound."""

    max_held: int | None = None
    """Messages that wait behind a gap (Q-051)."""
    max_ranges: int | None = None
    """Ranges of received numbers: gaps, and one."""
    window: int | None = None
    """A number at or above ``expected + window`` is not accepted (D-SEQ-024)."""


NO_BOUNDS: Final = Bounds()
