"""What is remembered of clients, to spare work that their next requests would ask for again.

It is bounded in number, and what is large is not remembered: so it is bounded in bytes, whoever sends what.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Sized
from typing import Any, Final, TypeVar

__all__ = ["Memory", "is_small", "remembered", "size_of_values"]

A = TypeVar("A", bound=Hashable)
K = TypeVar("K")
V = TypeVar("V")

_SMALL: Final = 8 * 1024
"""Bytes or characters, of HTTP headers say: there may be thousands of it."""


def is_small(text: Sized) -> bool:
    return len(text) <= _SMALL


def size_of_values(items: Iterable[tuple[object, Sized]]) -> int:
    return sum([len(value) for _name, value in items])


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


class Memory(dict[K, V]):
    """What is known by a key; ``most`` at a time, then it begins anew."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def keep(self, key: K, value: V) -> None:
        if len(self) >= self._most:
            self.clear()
        self[key] = value
