"""Log-ins that failed, by the place that they came from: so many may fail in a minute."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

MOST: Final = 10
"""Log-ins of a place that may fail within ``SECONDS``."""
SECONDS: Final = 60.0
_PLACES: Final = 10_000
"""Places that are remembered; the one that is forgotten first may fail again."""


class FailedLogins:
    """For the threads of a process. A flood costs a place in a dictionary, and two lines in the log a minute."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._failed: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """Since when, and how many, by the place."""

    def note(self, peer: str | None) -> tuple[int, float]:
        """One more of ``peer`` has failed. Answers how many did within the last while, and after how many seconds that
        begins anew."""
        now = self._monotonic()
        place = _place(peer)
        since, count = self._failed.pop(place, (now, 0))
        if now - since >= SECONDS:
            since, count = now, 0
        self._failed[place] = (since, count + 1)
        if len(self._failed) > _PLACES:
            self._failed.popitem(last=False)
        return count + 1, since + SECONDS - now


def _place(peer: str | None) -> str:
    """The address; of version 6 its network, all of which one host may have."""
    try:
        address = ip_address(peer or "")
    except ValueError:
        return peer or ""
    return str(ip_network((address, 64), strict=False)) if isinstance(address, IPv6Address) else str(address)
