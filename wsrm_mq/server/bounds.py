"""Bounds of principals: how many sessions, subscriptions, leases and bytes one of them may have at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from wsrm_mq.errors import LimitReached


class Bounds(NamedTuple):
    """The most that one principal may have at a time. ``bytes``: of bodies that are on their way."""

    sessions: int = 1_000
    subscriptions: int = 1_000
    waiting: int = 10_000
    leases: int = 100_000
    bytes: int = 256 * 1024 * 1024


class Use:
    """How much one principal has of each of its bounds."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self.used: Counter[str] = Counter()
        """The number that is used of each thing."""

    def room(self, what: str, least: int = 1) -> int:
        """How much more it may have. Raises ``LimitReached`` where that is less than ``least``."""
        bound: int = getattr(self._bounds, what)
        if bound - self.used[what] < least:
            raise LimitReached(
                f"You have {self.used[what]} {what} of the {bound} that you may have at a time: there is no room for "
                f"{least} more. End some, then try again."
            )
        return bound - self.used[what]

    def take(self, what: str, count: int = 1) -> None:
        """Use so many more of a thing. Raises ``LimitReached``."""
        self.room(what, count)
        self.used[what] += count

    def part_of(self, wanted: int, what: str) -> int:
        """As much of ``wanted`` as there is room for, and 1 at least."""
        return min(wanted, max(1, int(getattr(self._bounds, what)) - self.used[what]))

    def add(self, what: str, count: int = 1) -> None:
        """Use so many more of a thing, whatever its bound is."""
        self.used[what] += count

    def give(self, what: str, count: int = 1) -> None:
        self.used[what] -= count

    @contextmanager
    def taken(self, what: str) -> Iterator[None]:
        self.take(what)
        try:
            yield
        finally:
            self.give(what)
