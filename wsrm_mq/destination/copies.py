"""The answers to copies of an answered message: the reply again, or the acknowledgement alone.

A client that cannot use a reply drops it with the acknowledgement that comes with it, and would send for ever; a client
that lost the reply can use it. So they go out in turn.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, TypeVar

from wsrm_mq.remembered import Recent

K = TypeVar("K", bound=Hashable)

_OLD_REPLY_MS: Final = 60_000
"""A client that still asks for a reply that left so long ago may be one that cannot use it."""
_ALWAYS_REPLIED: Final = 2
"""Copies of a message after the first, each of which gets the reply, however old that is."""
_REPEATED: Final = 100_000
"""Messages whose copies are counted."""


class Copies:
    """Counts the copies of messages that came to this process. Where two threads count at once, one may be lacking."""

    def __init__(self) -> None:
        self._of_old: Recent[int, int] = Recent(_REPEATED)
        self._of_bare: Recent[tuple[str, int], int] = Recent(_REPEATED)

    def acknowledges_alone(self, position: int, reply_age: int) -> bool:
        """Whether this copy of a message is answered by the acknowledgement alone, from the third copy on: a restarted
        CXF client cannot correlate the reply, and drops it. ``reply_age`` in ms."""
        again = _count(self._of_old, position) - _ALWAYS_REPLIED
        return again > 0 and again % 2 == 1 and reply_age >= _OLD_REPLY_MS

    def of_bare(self, identifier: str, number: int) -> int:
        """Count an answer to a message whose reply can carry no acknowledgement, and tell how many there were: each
        second time it is the acknowledgement's turn, for without one the message would come for ever."""
        return _count(self._of_bare, (identifier, number))


def _count(counts: Recent[K, int], key: K) -> int:
    count = (counts.get(key) or 0) + 1
    counts.keep(key, count)
    return count
