"""A reserve of disk space, so that settlements can still be written down when the disk is full.

A settlement must be stored: the application has done the work. The reserve is a file of zeros that is given up when a
commit fails for want of space, and made again when there is plenty. One byte is left of it, which tells the other
processes. In between nothing new is accepted: an acceptance would eat the room that was freed for settlements. What
makes room is stored, as a lease is, while more is left than settlements need (see ``GroupCommit.has_room``).

It is as large as what the log may have that is not in the file yet: a checkpoint finds room on a full disk. From then
on the log is written anew from its beginning, and needs no room of the disk.

A file that was drained on a full disk keeps what it has grown by, as free pages. Then the disk has room for a small
reserve alone, and free pages are the rest of it: it is given up before they are filled (see ``GroupCommit.is_short``).
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Final

from wsrm_mq.store.sqlite.files import beside

_MOST: Final = 16 * 1024 * 1024
_PART: Final = 16
"""On a small disk the reserve is this part of it."""
_PLENTY: Final = 8 * 1024 * 1024
_TIGHT: Final = 512 * 1024
"""Bytes that are left for settlements and checkpoints."""
_GIVEN_UP: Final = 1
"""The size of a reserve that is given up."""
_LOOK_EVERY_SECONDS: Final = 1.0
_ASK_EVERY_SECONDS: Final = 0.02


def is_spent(store: Path) -> bool:
    """Whether the reserve of a store is given up, as a reader can tell."""
    return _is_spent(beside(store) / "reserve", _PLENTY)


def _is_spent(path: Path, little: int) -> bool:
    """Whether it is given up. Where it is missing, as where its directory was removed, less than ``little`` is free."""
    try:
        size = _size(path)
        return size == _GIVEN_UP or (not size and path.parent.is_dir() and _free(path) < little)
    except OSError:  # one that may not look into the directory does not know
        return False


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _free(path: Path) -> int:
    return shutil.disk_usage(path.parent).free


class Reserve:
    """A file at ``path``, shared by the instances of a store."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.due_at = 0.0
        """When ``restore`` looks again, by ``time.monotonic``."""
        self.size = 0
        """Its bytes, when this instance looked last; 0: there was never room for it."""
        self.plenty = _PLENTY
        """Bytes that are free where it is made."""
        self.whole = 0
        """Its bytes where there is plenty."""
        self.is_small = False
        """Free pages of the store's file are a part of it."""
        self._asked_at = float("-inf")
        self.was_spent = False
        """The last answer of ``is_spent``."""

    @property
    def is_spent(self) -> bool:
        """Whether it is given up, by this instance, or by another a moment ago."""
        now = time.monotonic()
        if now - self._asked_at >= _ASK_EVERY_SECONDS or not self.size:  # little room is gone within less
            self._asked_at = now
            self.was_spent = _is_spent(self._path, _PLENTY if self.size else _TIGHT)
        return self.was_spent

    def lacks(self, more: int) -> bool:
        """Whether less than its whole is left, where ``more`` bytes are free beside those of the disk."""
        return _free(self._path) + self.size + more < self.whole

    def restore(self, spare: int = 0) -> None:
        """Make the file if it is missing and there is room; looks only once a second. ``spare``: bytes that are free in
        the store's file: where they are plenty a smaller one is enough."""
        now = time.monotonic()
        if now < self.due_at:
            return
        self.due_at = now + _LOOK_EVERY_SECONDS
        try:
            disk = shutil.disk_usage(self._path.parent)
            free = disk.free
            self.whole = wanted = min(_MOST, disk.total // _PART)
            self.plenty = max(_PLENTY, 2 * wanted)
            self.size = _size(self._path)
            if free < self.plenty:  # the rest is for the log
                wanted = min(wanted, free // 8)
            if self.size < wanted and free >= 2 * _TIGHT and free + spare >= self.plenty:
                self._make(wanted)
            self.is_small = 0 < self.size < self.whole
        except OSError:
            pass

    def _make(self, size: int) -> None:
        handle = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
        try:
            os.posix_fallocate(handle, 0, size)
            self.size, self.was_spent = size, False
        except OSError:  # as where a quota is reached
            os.ftruncate(handle, self.size)
        finally:
            os.close(handle)

    def release(self) -> None:
        self.was_spent = bool(self.size)
        try:
            handle = os.open(self._path, os.O_WRONLY | os.O_NOFOLLOW)
            try:
                os.ftruncate(handle, min(_GIVEN_UP, self.size))
            finally:
                os.close(handle)
        except OSError:
            pass

    def leaves_enough(self, more: int) -> bool:
        """Whether more is left than settlements need, where ``more`` bytes are free beside those of the disk."""
        return _free(self._path) + more >= _TIGHT
