"""Whether what stands at a store's place is the newest state of it, and the same file as before.

A copy from the past has forgotten what was acknowledged since. Served as if nothing had happened, it would lose
messages and deliver others twice, in silence. Two things tell:

* ``store backup`` **stamps** its copy: it is not served before an operator adopts it.
* a **witness**, a small file in the directory beside the store, has the store's id and the highest ``mark`` seen.
  Commit first, then the witness: it may lag behind what is durable and never leads it. A store with less than its
  witness was put there from elsewhere.

On a copy acts may be tried where an operator has said so (``begin_rehearsal``): it stays a copy, which nothing serves.

What neither can tell: a snapshot of the whole directory takes the witness along; and of a file copied from under a
running service, the last seconds.

While a process writes, its ``Guard`` looks. An older state can come into the open files too: by SQLite's backup
interface (``.restore`` of its shell), which writes as any transaction does. So whenever another connection has written,
what never falls is compared with what this process has seen and committed: the store's mark, and the last keys given in
its tables.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import sqlite3
import time
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from wsrm_mq.errors import NotAllowed, StoreError, StoreFull, StoreUnavailable, StoreUnconfirmed, about, store_flag
from wsrm_mq.events.telling import Events, tell
from wsrm_mq.store.identity import STAMP, Identity, identify
from wsrm_mq.store.port import Database
from wsrm_mq.store.sqlite.connection import connect_reader, store_errors
from wsrm_mq.store.sqlite.files import (
    FileIds,
    content_of,
    file_id,
    file_ids,
    put_back,
    rehearsal_file,
    rescue,
    rescued_path,
    witness_file,
)

if TYPE_CHECKING:
    from wsrm_mq.store.transaction import Transaction

_ANY_LANE: Final = "SELECT 1 FROM lane LIMIT 1"
_LAST_KEYS: Final = "SELECT name, seq FROM sqlite_sequence"


class Witness:
    """The file beside a store at ``path``."""

    def __init__(self, path: Path) -> None:
        self.file = witness_file(path)
        self._known: Identity | None = None
        """The identity that this process wrote there last."""

    def seen(self) -> Identity | None:
        """The identity that a process wrote there last; ``None`` if nothing can be read."""
        try:
            found = json.loads(content_of(self.file))
            return Identity(str(found["store"]), int(found["mark"]), None)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def tell(self, committed: Identity) -> None:
        """Write down what is durable. Where that fails it lags behind, which is allowed."""
        if self._known is not None and committed.id != self._known.id:
            return  # the file was replaced under this process: the witness must not forget
        seen = self.seen()
        if seen is not None and seen.id == committed.id and committed.mark < seen.mark:
            return  # another process was quicker, or knows that the store has forgotten something
        try:
            self.begin(committed)
        except StoreUnavailable as error:
            tell("store.witness_not_told", error=error)

    def tell_of(self, path: Path) -> None:
        """Write down what is committed in the store at ``path``."""
        try:
            with closing(connect_reader(path)) as db, store_errors(path):
                committed = identify(db)
        except StoreError as error:
            tell("store.witness_not_told", error=error)
            return
        self.tell(committed)

    def remind(self) -> None:
        """Write it again where it was removed."""
        if self._known is not None and not self.file.exists():
            self.tell(self._known)

    def begin(self, committed: Identity) -> None:
        """Write it, or raise ``StoreUnavailable``: a store that is in use has to have one."""
        unfinished = self.file.with_name(f"witness.{secrets.token_hex(4)}")
        try:
            self.file.parent.mkdir(mode=0o700, exist_ok=True)
            handle = os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            try:
                os.write(handle, json.dumps({"store": committed.id, "mark": committed.mark}).encode())
                os.fsync(handle)
            finally:
                os.close(handle)
            unfinished.replace(self.file)
        except OSError as error:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
            kind = StoreFull if error.errno == errno.ENOSPC else StoreUnavailable
            raise kind(f"{self.file}: cannot be written: {error.strerror}.") from error
        self._known = committed


def admit(path: Path, *, for_act: bool = False) -> Witness:
    """The witness of a store that is going to be written. Raises ``StoreUnconfirmed`` for one that may have forgotten
    what it acknowledged; ``for_act``: not for a copy on which acts are tried."""
    witness = Witness(path)
    with closing(connect_reader(path)) as db, store_errors(path):
        doubt = why_unconfirmed(db, path)
        seen, found = witness.seen(), identify(db)
        is_tried = for_act and is_for_rehearsal(db, path)
    if doubt is not None and not is_tried:
        raise StoreUnconfirmed(f"{path}: {doubt.what}", about(path, doubt.hint))
    if seen is None or seen.id != found.id:
        if seen is not None:
            tell("store.new", path=path)
        witness.begin(found)
    return witness


def is_for_rehearsal(db: Database, path: Path) -> bool:
    """Whether it is a copy on which acts are tried."""
    return identify(db).copied_at is not None and rehearsal_file(path).exists()


def may_be_rehearsed(db: Database, path: Path) -> bool:
    """Whether it is a copy in a place where no service has used a store: acts may be tried on it, or are already."""
    return is_for_rehearsal(db, path) or (Witness(path).seen() is None and why_unconfirmed(db, path) is not None)


def mark_for_rehearsal(tx: Transaction, path: Path) -> None:
    """Mark this as a copy, so that nothing serves it. Raises ``NotAllowed`` where a service uses the store, or has used
    one in this place."""
    if not may_be_rehearsed(tx, path):
        raise NotAllowed(
            f"{path}: a store is in use in this place, or was. Make a copy and rehearse on that: "
            f"`wsrm-mq store backup FILE{store_flag(path)}`, `wsrm-mq store rehearse --store FILE`."
        )
    tx.execute(STAMP, (tx.now,))


def begin_rehearsal(path: Path) -> None:
    """Allow that acts are tried on this store, which is marked as a copy."""
    file = rehearsal_file(path)
    try:
        file.parent.mkdir(mode=0o700, exist_ok=True)
        file.touch(0o600)
    except OSError as error:
        raise StoreUnavailable(f"{file}: cannot be written: {error.strerror}.") from error


def end_rehearsal(path: Path) -> None:
    """Allow no longer that acts are tried on this store: it is going to be served."""
    rehearsal_file(path).unlink(missing_ok=True)


def convict(path: Path, known: Identity) -> None:
    """The store at ``path`` has forgotten what a process knew of it: nothing opens it before an operator adopts it.
    Raises ``StoreUnavailable`` where the witness cannot be told."""
    witness = Witness(path)
    seen = witness.seen()
    with closing(connect_reader(path)) as db, store_errors(path):
        found = identify(db)
    marks = [known.mark, found.mark] + ([seen.mark] if seen is not None else [])
    witness.begin(Identity(known.id, max(marks) + 1, None))


def is_older(path: Path, found: Identity) -> bool:
    """Whether the witness proves that a service has written to this store since."""
    seen = Witness(path).seen()
    return seen is not None and seen.id == found.id and found.mark < seen.mark


class Doubt(NamedTuple):
    """Why a store is not served before an operator confirms it, and what to do about it."""

    what: str
    hint: str


_OLDER: Final = (
    "Put the newest store in its place, if there is one. Else go on with this one: `wsrm-mq store adopt` does that, "
    "and with --dry-run says what is lost by it."
)
_TRY: Final = "To try a repair on a copy that nothing serves: `wsrm-mq store rehearse`."
_PERHAPS: Final = (
    "If this is its newest state, as when it was moved with the service stopped, say so with `wsrm-mq store adopt "
    "--current`. If it is an older one, or you are not sure: `wsrm-mq store adopt`."
)


def why_unconfirmed(db: Database, path: Path) -> Doubt | None:
    """The doubt about serving this store as it is; ``None`` if there is none."""
    seen = Witness(path).seen()  # first: a service that runs moves the mark in the store, then the witness
    found = identify(db)
    if found.copied_at is not None:
        made = datetime.fromtimestamp(found.copied_at // 1000, UTC)
        text = f"is a copy of {made:%Y-%m-%d %H:%M:%S} UTC; it has forgotten what was acknowledged since."
        return Doubt(text, _OLDER if seen is not None else f"{_OLDER} {_TRY}")
    if seen is not None and seen.id == found.id and found.mark < seen.mark:
        return Doubt("is older than what was here before; it has forgotten what was acknowledged since.", _OLDER)
    if db.execute(_ANY_LANE).fetchone() is None:
        return None  # nothing of it was ever acknowledged: a source that asks it for a sequence learns that it has none
    if seen is None:
        if found.mark == 0:
            return None  # from a version without a witness
        return Doubt("has been in use, but its witness, in the directory beside it, is missing.", f"{_PERHAPS} {_TRY}")
    if seen.id != found.id:
        return Doubt("is not the store that was used here before.", _PERHAPS)
    return None


LOOK_SECONDS: Final = 0.02
"""The files are looked up so often, at most. A look gives up the interpreter's lock, and getting that back costs more
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
        """Remember the files at the store's place, which have just been opened, and answer their ids."""
        self._files = file_ids(self._path)
        return self._files

    @property
    def are_there(self) -> bool:
        """Whether what is open is what stands at the store's place. Always looked up."""
        return file_ids(self._path) == self._files

    def are_gone(self) -> bool:
        """Whether the open files were moved or replaced, looked up now and then: commits in between are in the open
        files, and are saved with them."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_SECONDS:
            return False
        is_there = self.are_there
        self._looked_at = now if is_there else float("-inf")  # gone: the next commit has to see that too
        return not is_there

    def lose(self, db: Database, name: str) -> StoreError:
        """The files of ``db`` are gone: save what they hold, once, and say what to do. ``name`` is the instance's."""
        if self.lost is None:
            self.lost = self._saved(db, name)
        return self.lost

    def check_newest(self, db: Database) -> None:
        """To be called when another connection has written, or this one was opened. Raises ``StoreUnconfirmed`` if an
        older state of the store, or another store, was written."""
        if isinstance(self.lost, StoreUnconfirmed):
            raise self.lost
        found = _state(db)
        if self._seen is not None and self._has_fallen(self._seen, *found):
            self.lost = self._gone_back(self._seen)
            raise self.lost
        self._seen, self._keys = found

    def is_behind(self, db: Database) -> bool:
        """Whether ``db`` shows less than this process has seen in the store."""
        return self._seen is not None and self._has_fallen(self._seen, *_state(db))

    def _has_fallen(self, seen: Identity, found: Identity, found_keys: dict[str, int]) -> bool:
        return (
            found.id != seen.id
            or found.mark < seen.mark
            or found_keys.get("entry", 0) < self._position
            or any(found_keys.get(table, 0) < key for table, key in self._keys.items())
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

    def _saved(self, db: Database, name: str) -> StoreUnavailable:
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
    """The identity, and the last key given in each table: none of them ever falls."""
    return identify(db), dict(db.execute(_LAST_KEYS).fetchall())
