"""How long a destination takes to acknowledge what has left, where it does so in a request of its own: the smoothed
round trip and its deviation, as RFC 6298 has them. A message is taken for lost after the sum of both, four times the
second, and not before: a slow partner gets nothing twice for its slowness.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

LEAST: Final = 1_000
LONGEST: Final = 60_000
"""Bounds of the time-out, in ms (RFC 6298, 2.4 and 2.5)."""
_MOST: Final = 4_096
"""Lanes that are remembered, those that were acknowledged last."""


class _Smoothed(NamedTuple):
    mean: float
    deviation: float


class RoundTrips:
    """The round trips that this process has seen, by lane: one that takes a sequence over learns them anew."""

    def __init__(self) -> None:
        self._of: OrderedDict[int, _Smoothed] = OrderedDict()

    def took(self, lane: int, ms: float) -> None:
        """A message that has left once was acknowledged after so long. One that has left twice tells nothing (Karn)."""
        before = self._of.pop(lane, _Smoothed(ms, ms * 2 / 3))  # the deviation becomes half the first (2.2)
        deviation = 0.75 * before.deviation + 0.25 * abs(before.mean - ms)
        self._of[lane] = _Smoothed(0.875 * before.mean + 0.125 * ms, deviation)
        if len(self._of) > _MOST:
            self._of.popitem(last=False)

    def wait(self, lane: int, ladder: int, attempt: int) -> int:
        """How long to wait for an acknowledgement, in ms, where ``resend`` says ``ladder`` after this attempt: first as
        long as the time-out, where one is known, later as ``ladder`` says, and never less than the time-out."""
        known = self._of.get(lane)
        if known is None:
            return ladder
        time_out = min(round(known.mean + 4 * known.deviation), LONGEST)
        return max(time_out, min(ladder, LEAST) if attempt == 1 else ladder)
