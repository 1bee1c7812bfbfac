"""Shares of what there is little of, where strangers say how much of it they would have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

__all__ = ["Shares"]


class Shares:
    """So many of one thing as ``most`` are lent at a time, each for some names: who has it lent, what for.

    Nobody gets one more who has as many as are left: the first who asks for all gets half, the next a half of the rest.
    So any number of requests of one leaves something to the next one, and no share has to be told beforehand."""

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
