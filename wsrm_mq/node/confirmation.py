"""The confirmation of a put that is not waited for. One that was refused and never asked is told: that message is in no
queue, and its program does not know it."""

from __future__ import annotations

import atexit
import sys
import time
from concurrent.futures import Future
from typing import Final, TypeVar

from wsrm_mq.events.telling import tell

R = TypeVar("R")
AGAIN_SECONDS: Final = 60.0


class Unasked:
    """Refused puts whose confirmations were not asked. Each is counted; the first of an error is told at once, and
    those that follow once a minute. It takes no lock: a finalizer calls it, in the midst of whatever runs."""

    def __init__(self) -> None:
        self._told: tuple[str, str] | None = None
        self._again_at = 0.0
        self._count = 0
        """The number of refused puts that are not told yet."""

    def add(self, to: str, error: BaseException) -> None:
        """Count a put that was refused; ``to``: its queue or topic."""
        one, now = (to, str(error)), time.monotonic()
        if one != self._told:
            self.tell()
        self._count += 1
        if one != self._told or now >= self._again_at or sys.is_finalizing():
            self._told, self._again_at = one, now + AGAIN_SECONDS
            self.tell()

    def tell(self) -> None:
        """Log how many refusals were counted since the last line of the log about them."""
        count, self._count = self._count, 0
        if count and self._told is not None:
            tell("put.refused", queue=self._told[0], count=count, error=self._told[1])


UNASKED: Final = Unasked()
atexit.register(UNASKED.tell)


class Confirmation(Future[R]):
    """``result()`` waits, and answers the position, or raises why it was refused."""

    def __init__(self, to: str) -> None:
        super().__init__()
        self._to = to
        self._is_asked = False
        self._refused: BaseException | None = None

    def result(self, timeout: float | None = None) -> R:
        self._is_asked = True
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._is_asked = True
        return super().exception(timeout)

    def set_exception(self, exception: BaseException | None) -> None:
        self._refused = exception
        super().set_exception(exception)

    def __del__(self) -> None:
        if self._refused is not None and not self._is_asked:
            UNASKED.add(self._to, self._refused)
