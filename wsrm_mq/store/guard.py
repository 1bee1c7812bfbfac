"""Whether the files that a writer has open still stand at the store's place, and what to do if they do not: ``rescue``
has the story."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from typing import Final

from wsrm_mq.errors import StoreUnavailable
from wsrm_mq.events.telling import Events
from wsrm_mq.store.rescue import FileIds, file_id, file_ids, put_back, rescue, rescued_path

__all__ = ["LOOK_SECONDS", "Guard"]

LOOK_SECONDS: Final = 0.02
"""So often, at most, the files are looked up. A look gives up the interpreter's lock, and getting that back costs more
than the look."""


class Guard:
    """Of one writer. ``name`` is that of its instance."""

    def __init__(self, path: Path, name: str, events: Events) -> None:
        self._path = path
        self._name = name
        self._events = events
        self._files: FileIds = ()
        self._looked_at = float("-inf")
        self.lost: StoreUnavailable | None = None
        """The files are gone: what to say of it. What they held is saved, or it says why not."""

    def check_same(self) -> None:
        """Raise ``StoreUnavailable`` where another file than the one ``opened`` last stands at the place: what this
        instance knows is of that one."""
        if self._files and file_id(self._path) not in (None, self._files[0]):
            raise StoreUnavailable(f"{self._path}: was replaced while this process forked.", "Restart the service.")

    def opened(self) -> None:
        """What stands there now has just been opened."""
        self._files = file_ids(self._path)

    @property
    def are_there(self) -> bool:
        """Whether what is open is what stands at the store's place. Always looked up."""
        return file_ids(self._path) == self._files

    def are_gone(self) -> bool:
        """Whether they are not, looked up now and then: what is committed in between is in the open files, and is
        saved with them."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_SECONDS:
            return False
        is_there = self.are_there
        self._looked_at = now if is_there else float("-inf")  # gone: whoever writes next has to see that too
        return not is_there

    def lose(self, db: sqlite3.Connection) -> StoreUnavailable:
        """The files of ``db`` are gone: save what they hold, once, and say what to do."""
        if self.lost is None:
            self.lost = self._saved(db)
        return self.lost

    def are_back(self) -> None:
        """A commit went into the very same files: what was saved of them is a copy of the past."""
        if self.lost is None:
            return
        self.lost = None
        saved = rescued_path(self._path)
        try:
            saved.unlink(missing_ok=True)
        except OSError as error:  # the next start would take it for the newer one
            self._events.tell("store.copy_left", path=saved, error=error)

    def _saved(self, db: sqlite3.Connection) -> StoreUnavailable:
        gone = f"{self._path}: was removed or replaced while it is open here; nothing is taken any more."
        try:
            saved = rescue(db, self._path, self._name)
        except (OSError, sqlite3.Error) as error:
            self._events.tell("store.not_rescued", path=self._path, error=error)
            return StoreUnavailable(
                gone, f"It could not be saved ({error}): copy the open files in /proc/{os.getpid()}/fd while it runs."
            )
        self._events.tell("store.rescued", path=self._path, to=saved)
        return StoreUnavailable(gone, f"All that was in it is in {saved.name}. {put_back(self._path)}.")
