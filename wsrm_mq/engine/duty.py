"""The duty of a process to deliver messages of other processes: one that only forks workers has none.

A server that preloads the application does so in a process that will never be asked a request. Were it to deliver, it
would fork in the middle of a call. Python does not say which process that is, so each goes by what it has seen: one
that was asked delivers; one that was not begins after a short grace, in which a server has forked its workers; and one
that has forked stands by, as long as an instance lives that is younger, as its workers are. The youngest live instance
has no younger one, so two that stand by do not wait for each other.
"""

from __future__ import annotations

import time
from typing import Final

GRACE_SECONDS: Final = 1.0


class Duty:
    """The duty of one process, from its start on. ``is_asked``: a request has come, or the server says that it
    serves."""

    def __init__(self, *, is_asked: bool = False) -> None:
        self.is_asked = is_asked
        self.is_on = is_asked
        self._has_forked = False
        self._begins_at: float | None = time.monotonic() + GRACE_SECONDS
        """``None``: not before a look has put it off."""

    @property
    def left(self) -> float:
        """Seconds until the next look may find it on."""
        return GRACE_SECONDS if self._begins_at is None else max(0.0, self._begins_at - time.monotonic())

    def ask(self) -> None:
        """Note that this process serves: it delivers from now on, even where a younger one lives."""
        self.is_asked = self.is_on = True

    def look(self, younger_lives: bool) -> None:
        """Begin when the time has come; leave it to a younger instance. To be called time and again."""
        if self._begins_at is None or (self._has_forked and younger_lives):
            self.is_on = self.is_asked
            self._begins_at = time.monotonic() + GRACE_SECONDS
        elif not self.left:
            self.is_on = True

    def fork(self) -> None:
        """Stand by, where this process was not asked. Not to be called during a ``look``. The fork may have to wait, so
        the grace runs from the first look after it."""
        self._has_forked = True
        self.is_on = self.is_asked
        self._begins_at = None
