"""A clock that stands still until it is told."""

from __future__ import annotations


class ManualClock:
    """Milliseconds since the epoch that pass only when told to; a negative step is a clock set back."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def advance(self, milliseconds: int) -> int:
        self.now += milliseconds
        return self.now
