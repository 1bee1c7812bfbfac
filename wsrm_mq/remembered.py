"""What is remembered of clients, to spare work that their next requests would ask for again.

It is bounded in number, and what is large is not remembered: so it is bounded in bytes, whoever sends what.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sized
from contextlib import suppress
from typing import Any, Final, TypeVar

__all__ = ["Memory", "Tally", "are_small", "is_small", "remembered", "size_of_items", "size_of_values"]

A = TypeVar("A", bound=Hashable)
K = TypeVar("K")
V = TypeVar("V")

_SMALL: Final = 8 * 1024
"""Bytes or characters, of HTTP headers say: there may be thousands of it."""


_ITEM: Final = 64
"""What an item takes beside its own bytes, about: many headers of a byte each are much."""


def is_small(*texts: Sized) -> bool:
    return sum(map(len, texts)) <= _SMALL


def size_of_values(items: Iterable[tuple[object, Sized]]) -> int:
    """Where the names are few and known."""
    return sum([len(value) for _name, value in items])


def size_of_items(items: Iterable[tuple[Sized, Sized]]) -> int:
    """Where a stranger chooses the names too."""
    return sum([_ITEM + len(name) + len(value) for name, value in items])


def are_small(items: Iterable[tuple[Sized, Sized]]) -> bool:
    """Whether items that a stranger chose are to be remembered."""
    return size_of_items(items) <= _SMALL


def remembered(most: int, size: Callable[[Any], int]) -> Callable[[Callable[[A], V]], Callable[[A], V]]:
    """Decorates a function of one argument: what it makes of the last ``most`` is kept, but of those whose ``size`` is
    large."""

    def decorate(make: Callable[[A], V]) -> Callable[[A], V]:
        kept = functools.lru_cache(most)(make)

        @functools.wraps(make)
        def look(argument: A) -> V:
            return kept(argument) if size(argument) <= _SMALL else make(argument)

        return look

    return decorate


class Tally:
    """How often each of the last ``most`` things came. A count that two threads make at once may lack one."""

    def __init__(self, most: int) -> None:
        self._counts: OrderedDict[Hashable, int] = OrderedDict()
        self._most = most

    def again(self, key: Hashable) -> int:
        """It has come once more: how often by now."""
        self._counts[key] = count = self._counts.pop(key, 0) + 1
        if len(self._counts) > self._most:
            with suppress(KeyError):
                self._counts.popitem(last=False)
        return count


class Memory(dict[K, V]):
    """What is known by a key; ``most`` at a time, then it begins anew."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def keep(self, key: K, value: V) -> None:
        if len(self) >= self._most:
            self.clear()
        self[key] = value
