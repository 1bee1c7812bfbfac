"""Counts of what happens, in the store: right whichever process is asked, whatever retention takes.

A verb counts in ``UnitOfWork.counts``, which are numbers in memory. What a committed transaction has counted waits
in its process, and is written with a later transaction: at most ten times a second while there are any, by the watch
within a second when there are none. What has a row in the ledger is rare, and is written with that very row. So a
``kill -9`` loses at most the last second of what is frequent, and nothing else; no count ever falls.
"""

from __future__ import annotations

import os
import re
import struct
import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from wsrm_mq import errors
from wsrm_mq.store.driver import beside, content_of, is_locked

# refusals: counted by reason and partner, with the time of the last one and its answer; nothing else is kept of one
#
# A process counts in memory and, for readers while the store is locked or full, in a file of fixed size beside its
# lock. A later commit writes the counts into the store, and they leave the file. Another process takes up the counts of
# one that died before (``take_up_left``).

_LIMIT: Final = re.compile(r"\b(max_\w+|window|application)\b")
_REASONS: Final = (
    (errors.StoreOverloaded, "overloaded"),
    (errors.StoreBusy, "store_locked"),
    (errors.StoreFull, "disk_full"),
    (errors.StoreError, "store_unavailable"),
    (errors.NotAuthenticated, "not_authenticated"),
    (errors.NameServerSilent, "name_server_silent"),
    (errors.ConfigurationError, "misconfigured"),
)

MOST: Final = 64
"""Kinds of refusals that a process tells apart until they are in the store."""
ACK_NOT_SENT: Final = "acknowledgement_not_sent"
"""Counted where the other side refuses: an acknowledgement or fault that its address did not take."""
SAID: Final = 320
"""The number of characters that are kept of an answer."""
OTHER: Final = "other"
"""The reason of what comes beyond that."""
_SLOT: Final = struct.Struct("<40s72sQq320s")
FILE_BYTES: Final = MOST * _SLOT.size
_SUFFIX: Final = ".refused"
_MODE: Final = os.O_CREAT | os.O_RDWR | os.O_TRUNC | os.O_NOFOLLOW


class Refusal(NamedTuple):
    """``partner`` is empty where none is known; ``last_at`` in ms since the epoch."""

    reason: str
    partner: str
    times: int
    last_at: int
    said: str = ""
    """The answer to the last one, cut short."""

    def after(self, earlier: Refusal) -> Refusal:
        """Both as one; what the later said stays."""
        last = max(self, earlier, key=lambda one: one.last_at)
        return last._replace(times=self.times + earlier.times)


class Refusals:
    """The refusals of one process that are not in the store yet. May be called by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[tuple[str, str], Refusal] = {}
        self._places: dict[tuple[str, str], int] = {}
        self._file: int | None = None

    def open(self, store: Path, instance: str) -> None:
        """Make the file of the instance with this name, anew where it was removed. Without one they are counted all
        the same."""
        self.close()
        with self._lock:
            try:
                handle = os.open(beside(store) / f"{instance}{_SUFFIX}", _MODE, 0o600)
                self._file = handle
                os.write(handle, bytes(FILE_BYTES))
            except OSError:
                return
            for key in self._waiting:
                self._show(key)

    def close(self, store: Path | None = None, instance: str = "") -> None:
        """Close the file. The instance of ``store`` that ends takes it away, unless it says something."""
        handle, self._file = self._file, None  # without the lock: after a fork a thread may hold it that is not here
        if handle is not None:
            os.close(handle)
        if store is not None and not self.is_waiting:
            (beside(store) / f"{instance}{_SUFFIX}").unlink(missing_ok=True)

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def note(self, reason: str, partner: str | None, at: int, times: int = 1, said: str = "") -> None:
        key = (reason, partner or "")
        with self._lock:
            if key not in self._waiting and len(self._waiting) >= MOST - 1:
                key = (OTHER, "")
            noted, known = Refusal(*key, times, at, said[:SAID]), self._waiting.get(key)
            self._waiting[key] = noted if known is None else noted.after(known)
            self._show(key)

    def waiting(self) -> list[Refusal]:
        with self._lock:
            return [*self._waiting.values()]

    def written(self, rows: list[Refusal]) -> None:
        """Note that these rows are in the store."""
        with self._lock:
            for row in rows:
                key = (row.reason, row.partner)
                left = self._waiting[key].times - row.times
                if left:
                    self._waiting[key] = self._waiting[key]._replace(times=left)
                else:
                    del self._waiting[key]
                self._show(key)

    def _show(self, key: tuple[str, str]) -> None:
        """Write one slot of the file, at the place that it has; what is gone makes its place free."""
        if self._file is None:
            return
        row = self._waiting.get(key)
        place = self._places.get(key)
        if place is None:
            place = next(free for free in range(MOST) if free not in self._places.values())
            self._places[key] = place
        if row is None:
            del self._places[key]
        slot = bytes(_SLOT.size)
        if row is not None:
            slot = _SLOT.pack(*map(_bytes, key), row.times, row.last_at, _bytes(row.said))
        try:
            os.pwrite(self._file, slot, place * _SLOT.size)
        except OSError:
            pass  # the disk is worn or the file system read-only: memory still counts

    def take_up_left(self, store: Path) -> None:
        """Count as its own what processes left that have ended. Each file is taken by one process."""
        for file in beside(store).glob(f"*{_SUFFIX}"):
            if is_locked(file.with_suffix(".lock")):
                continue
            taken = file.with_suffix(f".{os.getpid()}.taken")
            try:
                os.rename(file, taken)
            except OSError:  # another process has it
                continue
            for row in _read(taken):
                self.note(row.reason, row.partner, row.last_at, row.times, row.said)
            taken.unlink(missing_ok=True)


def in_files(store: Path) -> list[Refusal]:
    """The refusals that processes of a store have counted and not yet written into it, dead processes included. Reads
    no database."""
    return [row for file in beside(store).glob(f"*{_SUFFIX}") for row in _read(file)]


def _read(file: Path) -> Iterator[Refusal]:
    try:
        content = content_of(file)
    except OSError:
        return
    whole = len(content) // _SLOT.size * _SLOT.size
    for reason, partner, times, last_at, said in _SLOT.iter_unpack(content[:whole]):
        if times:
            yield Refusal(_text(reason), _text(partner), times, last_at, _text(said))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _text(padded: bytes) -> str:
    return padded.rstrip(b"\0").decode("utf-8", "ignore")


def reason_of(error: Exception) -> str:
    """The word that a refusal by ``error`` is counted under."""
    return next((word for kind, word in _REASONS if isinstance(error, kind)), "refused")


def limit_named(no_room: str) -> str:
    """The option that a message found no room by: the text names it."""
    named = _LIMIT.search(no_room)
    return named[1] if named is not None else "no_room"


# counts

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
        """An attempt failed with this ``kind`` of failure (``queue.failure``); it took so many ``seconds``, where it
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
