"""AckRanges: the set of message numbers received, as sorted ranges that never touch.

Immutable: every change answers a new value, so a step that is rolled back leaves nothing behind. Cost follows the
number of ranges, never the numbers in them (2^62 as first message costs one range).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final

AckRange = tuple[int, int]
"""(lower, upper), both inclusive, as AcknowledgementRange writes them."""


def _upper(item: AckRange) -> int:
    return item[1]


class AckRanges:
    """Sorted, disjoint, non-adjacent ranges (WS-RM 1.1 §3.9)."""

    __slots__ = ("expected", "highest", "ranges")

    def __init__(self, ranges: tuple[AckRange, ...] = ()) -> None:
        self.ranges = ranges
        self.expected = ranges[0][1] + 1 if ranges and ranges[0][0] == 1 else 1
        """The lowest number not received."""
        self.highest = ranges[-1][1] if ranges else 0
        """The highest number received; 0 for none."""

    @classmethod
    def of(cls, numbers: Iterable[int]) -> AckRanges:
        """The ranges of ``numbers``, in any order, repeats allowed."""
        return cls().union((number, number) for number in numbers)

    @classmethod
    def parse(cls, text: str) -> AckRanges:
        """The ranges that ``str`` has written."""
        parts = (part.partition("-") for part in text.split(",") if part)
        return cls(tuple((int(low), int(high or low)) for low, _dash, high in parts))

    def __iter__(self) -> Iterator[AckRange]:
        return iter(self.ranges)

    def __len__(self) -> int:
        """How many ranges there are (not how many numbers: see ``count``)."""
        return len(self.ranges)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AckRanges) and self.ranges == other.ranges

    def __hash__(self) -> int:
        return hash(self.ranges)

    def __repr__(self) -> str:
        return f"AckRanges({self})"

    def __str__(self) -> str:
        return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in self.ranges)

    def __contains__(self, number: int) -> bool:
        at = bisect_left(self.ranges, number, key=_upper)
        return at < len(self.ranges) and self.ranges[at][0] <= number

    def add(self, number: int) -> AckRanges:
        ranges = self.ranges
        if ranges and ranges[-1][1] == number - 1:  # in order: nearly every message
            return AckRanges((*ranges[:-1], (ranges[-1][0], number)))
        at = bisect_left(ranges, number, key=_upper)
        if at < len(ranges) and ranges[at][0] <= number:
            return self
        lower = upper = number
        before, after = ranges[:at], ranges[at:]
        if before and before[-1][1] == number - 1:
            lower, before = before[-1][0], before[:-1]
        if after and after[0][0] == number + 1:
            upper, after = after[0][1], after[1:]
        return AckRanges((*before, (lower, upper), *after))

    def remove(self, number: int) -> AckRanges:
        at = bisect_left(self.ranges, number, key=_upper)
        if at == len(self.ranges) or self.ranges[at][0] > number:
            return self
        lower, upper = self.ranges[at]
        rest = [r for r in ((lower, number - 1), (number + 1, upper)) if r[0] <= r[1]]
        return AckRanges((*self.ranges[:at], *rest, *self.ranges[at + 1 :]))

    def without(self, other: AckRanges) -> AckRanges:
        """The numbers here that are not in ``other``."""
        if not other:
            return self
        left: list[AckRange] = []
        for lower, upper in self.ranges:
            start = bisect_left(other.ranges, lower, key=_upper)
            for low, high in other.ranges[start:]:
                if low > upper:
                    break
                if low > lower:
                    left.append((lower, low - 1))
                lower = high + 1
            if lower <= upper:
                left.append((lower, upper))
        return AckRanges(tuple(left))

    def within(self, other: AckRanges) -> AckRanges:
        """The numbers that are in both."""
        return self.without(self.without(other))

    def union(self, other: Iterable[AckRange]) -> AckRanges:
        """The numbers that are here or in ``other``: ranges in any order, adjacent or overlapping."""
        joined: list[AckRange] = []
        for lower, upper in sorted((*self.ranges, *other)):
            if joined and lower <= joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], max(joined[-1][1], upper))
            else:
                joined.append((lower, upper))
        return AckRanges(tuple(joined))

    def end_of(self, number: int) -> int:
        """The upper end of the range that holds ``number``; ``number - 1`` where none does."""
        if self.ranges and self.ranges[-1][0] <= number <= self.ranges[-1][1]:
            return self.ranges[-1][1]
        at = bisect_left(self.ranges, number, key=_upper)
        if at < len(self.ranges) and self.ranges[at][0] <= number:
            return self.ranges[at][1]
        return number - 1

    def first_from(self, start: int, end: int) -> int:
        """The lowest number here in ``start`` … ``end - 1``; ``end`` for none."""
        if start > self.highest:
            return end
        at = bisect_left(self.ranges, start, key=_upper)
        if at == len(self.ranges):
            return end
        return min(max(start, self.ranges[at][0]), end)

    def count(self, start: int = 0) -> int:
        """How many numbers are at or above ``start``."""
        at = bisect_left(self.ranges, start, key=_upper)
        total = sum(upper - lower + 1 for lower, upper in self.ranges[at:])
        if at < len(self.ranges) and self.ranges[at][0] < start:
            total -= start - self.ranges[at][0]
        return total

    def gaps(self, until: int | None = None) -> AckRanges:
        """The numbers missing between 1 and ``until`` (default: the highest received)."""
        last = self.highest if until is None else until
        return AckRanges(((1, last),)).without(self) if last >= 1 else EMPTY

    def opens_range(self, number: int) -> bool:
        """Whether ``number`` would start a range of its own, touching none."""
        at = bisect_left(self.ranges, number, key=_upper)
        follows = at > 0 and self.ranges[at - 1][1] == number - 1
        return not follows and not (at < len(self.ranges) and self.ranges[at][0] <= number + 1)


EMPTY: Final = AckRanges()
