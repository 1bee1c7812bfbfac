"""The clock, and how far it is believed: what ends for ever waits where it has jumped, as it may come back.

A clock that runs ahead at a start (set by hand, a real-time clock of another time zone) is put right within minutes.
What is written down has the time that the clock shows; what would expire by a jump waits for ``GRACE``, counted by a
clock that is never set. The last time that was believed is in a file beside the store: a process that starts while the
clock is doubted, the next worker or the same one again, finds the wrong time in the store already.

Leases are measured by a clock that is never set (``Steady``), so no step of the time of day ends one, or keeps one. Its
times are ms since the epoch, near those of the wall clock: what is to be added for that to the seconds since the
machine began is in the store, and is the same for all of its processes. It is taken anew where none of them lives; then
no lease is left.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from wsrm_mq.store.driver import content_of
from wsrm_mq.store.port import Database

JUMP: Final = 600_000
"""ms. Further on than that from one look to the next, the clock has jumped."""
GRACE: Final = 600.0
"""Seconds after which a jump is believed."""
_SINCE_BOOT: Final = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
"""Seconds of a clock that is never set; it counts while the machine sleeps too, where there is one that does."""
Clock = Callable[[], int]
"""ms since the epoch."""


def wall_clock() -> int:
    return time.time_ns() // 1_000_000


class Believed:
    """The clock as one process believes it. ``passed``: seconds of a clock that is never set; without it no time is
    doubted. ``file`` has the last time that was believed here; without it the next process begins with what the store
    has. ``steady``: the clock that leases are measured by; without it they are by the time of day."""

    def __init__(
        self, passed: Callable[[], float] | None, file: Path | None = None, steady: Steady | None = None
    ) -> None:
        self.steady = steady
        self._passed = passed
        self._file = file
        self._known: tuple[int, float] | None = None
        """A time that is believed, and the value of ``passed`` then."""
        self._doubted_since: float | None = None
        self.ahead = 0
        """ms that the clock is further on than is believed; 0: it is believed."""
        self.jumps: deque[int] = deque()
        """ms, of each jump that was not told yet; back is negative."""

    def know(self, last: int | None, now: int) -> None:
        """At a start at ``now``, where ``last`` is the last time that the store has: how long nothing ran is not known.
        To be called before anything is written there."""
        if self._passed is not None:
            noted = self._noted()
            at = last if noted is None else noted
            self._known = now if at is None else min(at, now), self._passed()
            self._doubted_since = None
            self.by(now)
            self.note(now)

    def note(self, now: int) -> None:
        """Write down which time is believed, for the next process. Where that fails it has an older one."""
        if self._passed is None or self._file is None:
            return
        fresh = self._file.with_name(f"{self._file.name}.{os.getpid()}")
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
            with os.fdopen(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as opened:
                opened.write(str(self.by(now)))
            fresh.replace(self._file)

    def _noted(self) -> int | None:
        with suppress(OSError, ValueError):
            return None if self._file is None else int(content_of(self._file))
        return None

    def by(self, now: int) -> int:
        """The time that decides whether something has expired, when the clock shows ``now``; ms since the epoch."""
        if self._passed is None:
            return now
        passed = self._passed()
        at, then = self._known or (now, passed)
        expected = at + round((passed - then) * 1000)
        if now - expected > JUMP:
            if self._doubted_since is None:
                self._doubted_since = passed
                self.jumps.append(now - expected)
            if passed - self._doubted_since < GRACE:
                self.ahead = now - expected
                return expected
        elif expected - now > JUMP:
            self.jumps.append(now - expected)
        self._known, self._doubted_since, self.ahead = (now, passed), None, 0
        return now


def believed_of(clock: Clock, file: Path) -> Believed:
    """How far ``clock`` is believed: wholly, where it is not the machine's own. ``file``: see ``Believed``."""
    passed = _SINCE_BOOT if clock is wall_clock else None
    return Believed(passed, file, Steady(clock, passed))


_OFFSET: Final = "SELECT clock_offset FROM identity"
_AGREE: Final = "UPDATE identity SET clock_offset = ?"


class Steady:
    """``clock`` shows the time of day; ``passed`` counts seconds and is never set. Without ``passed`` the time of day
    is all there is."""

    def __init__(self, clock: Callable[[], int], passed: Callable[[], float] | None) -> None:
        self._clock = clock
        self._passed = passed
        self._offset: int | None = None

    def __call__(self) -> int:
        if self._passed is None or self._offset is None:
            return self._clock()
        return round(self._passed() * 1000) + self._offset

    def agree(self, db: Database, *, is_first: bool) -> None:
        """Count as the other processes do, or, where this is the first, as the others will; in a transaction."""
        if self._passed is None:
            return
        found = db.execute(_OFFSET).fetchone()
        self._offset = None if found is None else found[0]
        if is_first or self._offset is None:
            self._offset = self._clock() - round(self._passed() * 1000)
            db.execute(_AGREE, (self._offset,))
