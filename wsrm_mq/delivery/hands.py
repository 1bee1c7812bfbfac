"""Claims that a request runs in its own thread: from the commit that takes the claim to the settlement.

Such a thread is not ours. Its server may throw something into it at any moment, and then its claim is dropped. So a
claim is expected to be taken within seconds, and the first to take it has it: the request, or else the watch. Taken,
it is in hand for as long as the call lives that took it.
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import Final

from wsrm_mq.queue.ownership import Claim

__all__ = ["OVERDUE_SECONDS", "RequestClaims"]

OVERDUE_SECONDS: Final = 2.0
"""So long after the commit a request that has not begun to run its message will not: it is run without it."""


class Hold:
    """In hand while this lives: a variable of the call that runs the message."""

    __slots__ = ("__weakref__",)


class RequestClaims:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        """Taken as itself: an error thrown into a thread could leave a condition's own ``with`` locked."""
        self._changed = threading.Condition(self.lock)
        self._expected: dict[Claim, float] = {}
        """When each was committed."""
        self._running: weakref.WeakValueDictionary[Claim, Hold] = weakref.WeakValueDictionary()

    def expect(self, claim: Claim) -> None:
        """It is committed, and its request will take it."""
        with self.lock:
            self._expected[claim] = time.monotonic()

    def take(self, claim: Claim) -> Hold | None:
        """The caller, who has the ``lock``, runs it from now on, if it is still to be had."""
        if self._expected.pop(claim, None) is None:
            return None
        hold = Hold()
        self._running[claim] = hold
        return hold

    def leave(self, claim: Claim) -> None:
        with self.lock:
            self._running.pop(claim, None)
            self._changed.notify_all()

    def overdue(self) -> list[Claim]:
        """Those that were not taken in their time: they are the caller's."""
        before = time.monotonic() - OVERDUE_SECONDS
        with self.lock:
            found = [claim for claim, since in self._expected.items() if since < before]
            for claim in found:
                del self._expected[claim]
        return found

    def all(self) -> set[Claim]:
        with self.lock:
            return {*self._expected, *self._running}

    def wait_for_none(self, deadline: float | None) -> bool:
        """Wait until no request runs a message, until ``deadline`` of ``time.monotonic``. Answers whether none does."""
        with self.lock:
            while len(self._running):
                left = 1.0 if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(min(left, 1.0))  # a call that was broken off may have told nothing
        return True
