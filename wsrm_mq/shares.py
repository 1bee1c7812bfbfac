"""Shares of something scarce (threads, places in a queue) of which strangers decide how much they ask for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable


class Shares:
    """At most ``most`` of one thing are lent at a time, each under some names, such as its sender and its host.

    A name gets one more while it has fewer than are left: the first that asks for all of it gets a half, the next a
    half of the rest. So no number of requests under one name leaves nothing to the next, and no limit for each has to
    be set beforehand."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._lent: Counter[Hashable] = Counter()

    def has_one(self, *names: Hashable, beside: int = 0) -> bool:
        """Whether one more may be lent for ``names``, where ``beside`` are about to be lent."""
        left = self._left - beside
        return left > 0 and all(self._lent[name] < left for name in names if name in self._lent)

    def lend(self, *names: Hashable) -> None:
        """Then ``take_back`` has to follow, with the same names."""
        self._left -= 1
        self._lent.update(names)

    def take_back(self, *names: Hashable) -> None:
        self._left += 1
        for name in names:
            self._lent[name] -= 1
            if not self._lent[name]:
                del self._lent[name]
