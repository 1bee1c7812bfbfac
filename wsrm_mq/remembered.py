"""Memories that spare work which the next requests would ask for again.

They are bounded in number, and large values are not remembered: so they are bounded in bytes too.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sized
from contextlib import suppress
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

SMALL: Final = 8 * 1024
"""Bytes or characters, of HTTP headers say: there may be thousands of it."""
_ITEM: Final = 64
"""The bytes that an item takes beside its own, about: many headers of a byte each are much."""


def are_small(items: Iterable[tuple[Sized, Sized]]) -> bool:
    """Whether items that a stranger chose, names and values, are to be remembered."""
    return sum([_ITEM + len(name) + len(value) for name, value in items]) <= SMALL


class Recent(Generic[K, V]):
    """A memory of the ``most`` keys that were asked for last. For many threads: each step is one operation of a
    dictionary, and a value that is forgotten between two of them is made anew."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        value = self._values.get(key)
        if value is not None:
            try:
                self._values.move_to_end(key)
            except KeyError:
                self.keep(key, value)
        return value

    def keep(self, key: K, value: V) -> None:
        self._values[key] = value
        if len(self._values) > self._most:
            with suppress(KeyError):
                self._values.popitem(last=False)
