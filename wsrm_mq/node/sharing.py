"""How ready messages are shared among the subscriptions of one queue."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heapreplace
from typing import NamedTuple


class Load(NamedTuple):
    """The load of one subscription: how many messages it has that are not settled, and how many it may have."""

    unsettled: int
    granted: int

    @property
    def room(self) -> int:
        return max(self.granted - self.unsettled, 0)


def shares(fairness: str, loads: Sequence[Load], count: int, first: int = 0) -> list[int]:
    """How many of ``count`` messages each gets. ``proportional``: the next one goes to the smallest part of its
    backlog in use; ``fast``: to the first that has room; ``round_robin``: to one after the other, from ``first`` on."""
    return _SHARES[fairness](loads, count, first)


def _proportional(loads: Sequence[Load], count: int, _first: int) -> list[int]:
    given = [0] * len(loads)
    heap = [(load.unsettled / load.granted, index) for index, load in enumerate(loads) if load.room]
    heapify(heap)
    for _ in range(min(count, sum(load.room for load in loads))):
        index = heap[0][1]
        given[index] += 1
        used = (loads[index].unsettled + given[index]) / loads[index].granted
        heapreplace(heap, (used, index))  # one that is full comes last: nothing is given when all are
    return given


def _fast(loads: Sequence[Load], count: int, _first: int) -> list[int]:
    given = []
    for load in loads:
        given.append(min(load.room, count))
        count -= given[-1]
    return given


def _round_robin(loads: Sequence[Load], count: int, first: int) -> list[int]:
    given = [0] * len(loads)
    left = min(count, sum(load.room for load in loads))
    while left:
        index = first % len(loads)
        if given[index] < loads[index].room:
            given[index] += 1
            left -= 1
        first += 1
    return given


_SHARES = {"proportional": _proportional, "fast": _fast, "round_robin": _round_robin}
