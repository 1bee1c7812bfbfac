"""Whether the files that a writer has open still stand at the store's place, and are the newest state of the store;
and what to do if not. ``rescue`` has the story of the first, ``identity`` of the second.

An older state can come into the open files: by SQLite's backup interface (``.restore`` of its shell), which writes as
any transaction does. So whenever another connection has written, what never falls is compared with what this process
has seen and committed: the store's mark, and the last keys given in its tables.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from typing import Final

from wsrm_mq.errors import StoreError, StoreUnavailable, StoreUnconfirmed
from wsrm_mq.events.telling import Events
from wsrm_mq.hints import about
from wsrm_mq.store.identity import Identity, convict, identify
from wsrm_mq.store.port import Database
from wsrm_mq.store.rescue import FileIds, file_id, file_ids, put_back, rescue, rescued_path

LOOK_SECONDS: Final = 0.02
"""So often, at most, the files are looked up. A look gives up the interpreter's lock, and getting that back costs more
than the look."""


class Guard:
    """Guards the files of one writer, from its start to its close."""

    def __init__(self, path: Path, events: Events) -> None:
        self._path = path
        self._events = events
        self._files: FileIds = ()
        self._looked_at = float("-inf")
        self._seen: Identity | None = None
        self._keys: dict[str, int] = {}
        """The last keys given, by table, when another connection had written."""
        self._position = 0
        """The last entry that this process has committed."""
        self.lost: StoreError | None = None
        """The files are gone: what to say of it. What they held is saved, or it says why not. Or they went back."""

    def check_same(self) -> None:
        """Raise ``StoreUnavailable`` where another file than the one ``opened`` last stands at the place: what this
        instance knows is of that one."""
        if self._files and file_id(self._path) not in (None, self._files[0]):
            raise StoreUnavailable(f"{self._path}: was replaced while this process forked.", "Restart the service.")

    def opened(self) -> FileIds:
        """What stands there now has just been opened; answers which files that are."""
        self._files = file_ids(self._path)
        return self._files

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
        self._looked_at = now if is_there else float("-inf")  # gone: the next commit has to see that too
        return not is_there

    def lose(self, db: sqlite3.Connection, name: str) -> StoreError:
        """The files of ``db`` are gone: save what they hold, once, and say what to do. ``name`` is the instance's."""
        if self.lost is None:
            self.lost = self._saved(db, name)
        return self.lost

    def check_newest(self, db: sqlite3.Connection) -> None:
        """Another connection has written, if not just this one was opened. Raises ``StoreUnconfirmed`` where that was
        an older state of the store, or another store."""
        if isinstance(self.lost, StoreUnconfirmed):
            raise self.lost
        if self._seen is not None and self.is_behind(db):
            self.lost = self._gone_back(self._seen)
            raise self.lost
        self._seen, self._keys = _state(db)

    def is_behind(self, db: Database) -> bool:
        """Whether ``db`` shows less than this process has seen in the store."""
        seen, keys, position = self._seen, self._keys, self._position
        if seen is None:
            return False
        found, found_keys = _state(db)
        return (
            found.id != seen.id
            or found.mark < seen.mark
            or found_keys.get("entry", 0) < position
            or any(found_keys.get(table, 0) < key for table, key in keys.items())
        )

    def committed(self, position: int, mark: int | None) -> None:
        """A commit went into the very same files: what was saved of them is a copy of the past. ``position`` of the
        last entry, 0 where it has none; ``mark`` if it moved."""
        if position:
            self._position = position
        if mark is not None and self._seen is not None:
            self._seen = self._seen._replace(mark=mark)
        if self.lost is not None:
            self._are_back()

    def _are_back(self) -> None:
        self.lost = None
        saved = rescued_path(self._path)
        try:
            saved.unlink(missing_ok=True)
        except OSError as error:  # the next start would take it for the newer one
            self._events.tell("store.copy_left", path=saved, error=error)

    def _gone_back(self, seen: Identity) -> StoreUnconfirmed:
        path = self._path
        self._events.tell("store.went_back", path=path)
        try:
            convict(path, seen)
        except (OSError, StoreError) as error:
            self._events.tell("store.witness_not_told", error=error)
        return StoreUnconfirmed(
            f"{path}: an older state of it, or another store, was written into it while it is open here. What was "
            "acknowledged since is not in it; nothing is taken any more.",
            about(
                path,
                "Stop the service. Put the newest copy in its place, if there is one; else `wsrm-mq store adopt` says "
                "what is lost and goes on.",
            ),
        )

    def _saved(self, db: sqlite3.Connection, name: str) -> StoreUnavailable:
        gone = f"{self._path}: was removed or replaced while it is open here; nothing is taken any more."
        try:
            saved = rescue(db, self._path, name)
        except (OSError, sqlite3.Error) as error:
            self._events.tell("store.not_rescued", path=self._path, error=error)
            return StoreUnavailable(
                gone, f"It could not be saved ({error}): copy the open files in /proc/{os.getpid()}/fd while it runs."
            )
        self._events.tell("store.rescued", path=self._path, to=saved)
        return StoreUnavailable(gone, f"All that was in it is in {saved.name}. {put_back(self._path)}.")


def _state(db: Database) -> tuple[Identity, dict[str, int]]:
    """What never falls."""
    return identify(db), dict(db.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
