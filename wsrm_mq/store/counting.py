"""Counts of what happens, in the store: right whichever process is asked, whatever retention takes.

A verb counts in ``UnitOfWork.counts``, which are numbers in memory. What a committed transaction has counted waits
in its process, and is written with a later transaction: at most ten times a second while there are any, by the watch
within a second when there are none. What has a row in the ledger is rare, and is written with that very row. So a
``kill -9`` loses at most the last second of what is frequent, and nothing else; no count ever falls.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from wsrm_mq.store.refusals import Refusal, Refusals

Key = tuple[str, int, str]
"""The name of a counter, the key of its queue (0 without a queue), and a label."""

EVERY_SECONDS: Final = 0.1
SHOWN: Final = 200
"""Queues whose counts are told apart, those with the first keys: no other takes the place of one that is gone, for then
what is counted of the others would fall. A peer that makes up paths makes no time series."""

RECEIVED: Final = ("accepted", "held", "duplicate", "discarded", "no_room", "refused")
"""The counters of messages with a Sequence header, by their fate: deliverable at once, held, known already, dropped as
the sequence promises, sent away with 503, answered with a fault. The label is the version of RM."""
BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the durations that are counted together, in seconds."""
_TOOK: Final = tuple(f"{bound:g}" for bound in (*BOUNDS, float("inf")))


class Counts(defaultdict[Key, int]):
    """The counts of one transaction."""

    def delivered(self, queue: int, seconds: float | None, *, is_replay: bool) -> None:
        """A message was delivered; its operation took ``seconds``, ``None``: it is called only then. The label of the
        count is the bucket of the duration, which saves a number of its own."""
        if seconds is None:
            self["delivered", queue, ""] += 1
        else:
            self["delivered", queue, _TOOK[bisect_left(BOUNDS, seconds)]] += 1
            self["took_us", queue, ""] += int(seconds * 1e6)
        if is_replay:
            self["replayed", queue, ""] += 1

    def failed(self, queue: int, kind: str, seconds: float | None = None) -> None:
        """An attempt failed with this ``kind`` of failure (``queue.diagnosis``); it took so many ``seconds``, where it
        ran."""
        self["failed", queue, kind] += 1
        if seconds is not None:
            self.took(queue, seconds)

    def took(self, queue: int, seconds: float) -> None:
        """An operation ran so long, which is not counted with a delivery: its bucket, and the sum in microseconds."""
        self["took", queue, _TOOK[bisect_left(BOUNDS, seconds)]] += 1
        self["took_us", queue, ""] += int(seconds * 1e6)


class Tally:
    """The counts that one process has committed and not yet written to the store, and its refusals. Only the writer of
    that process uses it."""

    def __init__(self, refusals: Refusals | None = None) -> None:
        self.refusals = refusals or Refusals()
        self._refused: list[Refusal] = []
        self._waiting: dict[Key, int] = {}
        self.due_at = float("-inf")
        """When what waits is written with the next transaction, by ``time.monotonic``."""

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting) or self.refusals.is_waiting

    def with_waiting(self, counts: Mapping[Key, int]) -> list[tuple[str, int, str, int]]:
        """Rows for ``bulk.COUNTERS``: what waits, and ``counts``."""
        keys = dict.fromkeys((*self._waiting, *counts))
        return [(*key, self._waiting.get(key, 0) + counts.get(key, 0)) for key in keys]

    def refused(self) -> list[Refusal]:
        """The rows of ``bulk.REFUSALS`` that are written next."""
        self._refused = self.refusals.waiting()
        return self._refused

    def wait(self, counts: Mapping[Key, int]) -> None:
        """Keep counts that were committed, and are not written yet."""
        for key, value in counts.items():
            self._waiting[key] = self._waiting.get(key, 0) + value

    def written(self) -> None:
        self._waiting = {}
        self.due_at = time.monotonic() + EVERY_SECONDS
        if self._refused:
            self.refusals.written(self._refused)
            self._refused = []
