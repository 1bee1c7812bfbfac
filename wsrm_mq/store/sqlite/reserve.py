"""A reserve of disk space, so that settlements can still be written down when the disk is full.

A settlement must be stored: the application has done the work. The reserve is a file of zeros that is given up when a
commit fails for want of space, and made again when there is plenty. In between nothing new is accepted: an acceptance
would eat the room that was freed for settlements.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Final

from wsrm_mq.store.sqlite.files import beside

_SIZE: Final = 1024 * 1024
_PLENTY: Final = 8 * _SIZE
_TIGHT: Final = _SIZE // 2
"""Bytes that are left for settlements and checkpoints where there was never room for a reserve."""
_LOOK_EVERY_SECONDS: Final = 1.0
_ASK_EVERY_SECONDS: Final = 0.02


def is_spent(store: Path) -> bool:
    """Whether the reserve of a store is given up, as a reader can tell."""
    home = beside(store)
    try:
        return home.is_dir() and not (home / "reserve").exists() and shutil.disk_usage(home).free < _PLENTY
    except OSError:  # a reader that may not look into it does not know
        return False


class Reserve:
    """A file of ``size`` bytes at ``path``, shared by the instances of a store."""

    def __init__(self, path: Path, size: int = _SIZE) -> None:
        self._path = path
        self._size = size
        self._looked_at = 0.0
        self.is_made = False
        """Whether there was room for the file once."""
        self._asked_at = float("-inf")
        self._is_there = True
        self._is_tight = False
        self._is_released = False
        """Given up by this instance, and not made again since."""

    @property
    def is_spent(self) -> bool:
        """It was there, and has been given up since, by this instance, or by another a moment ago. Where it is gone
        and there is room, as where its directory was removed, it was taken away: nothing is full."""
        now = time.monotonic()
        if now - self._asked_at >= _ASK_EVERY_SECONDS or not self.is_made:  # little room is gone within less
            self._asked_at = now
            try:
                if self.is_made:
                    self._is_there = self._path.exists() or not (self._is_released or self._lacks_room())
                else:
                    self._is_tight = shutil.disk_usage(self._path.parent).free < _TIGHT
            except OSError:  # the directory may not be read: then nothing is known of it
                self._is_there, self._is_tight = True, False
        return not self._is_there if self.is_made else self._is_tight

    def _lacks_room(self) -> bool:
        home = self._path.parent
        return home.is_dir() and shutil.disk_usage(home).free < _PLENTY

    def restore(self) -> None:
        """Make the file if it is missing and there is room; looks only once a second."""
        now = time.monotonic()
        if now - self._looked_at < _LOOK_EVERY_SECONDS:
            return
        self._looked_at = now
        try:
            if self._path.exists():
                self.is_made = self._is_there = True
                self._is_released = False
                return
            if shutil.disk_usage(self._path.parent).free < _PLENTY:
                return
            handle = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
            try:
                os.posix_fallocate(handle, 0, self._size)
            finally:
                os.close(handle)
            self.is_made = self._is_there = True
            self._is_released = False
        except OSError:
            self.release()

    def release(self) -> None:
        self._is_there, self._is_released = False, self.is_made
        try:
            self._path.unlink()
        except OSError:
            pass
