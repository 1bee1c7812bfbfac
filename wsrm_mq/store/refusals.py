"""Counters of refusals by reason and partner, with the time of the last one and its answer. Nothing else is kept of a
refused request.

A process counts in memory and, for readers while the store is locked or full, in a file of fixed size beside its
lock. A later commit writes the counts into the store, and they leave the file. Another process takes up the counts of
one that died before (``take_up_left``).
"""

from __future__ import annotations

import os
import re
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from wsrm_mq import errors
from wsrm_mq.store.driver import beside, content_of, is_locked

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
