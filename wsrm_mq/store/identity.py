"""Which store this is, and whether what stands at its place is the newest state of it.

A copy from the past has forgotten what was acknowledged since. Served as if nothing had happened, it would lose
messages and deliver others twice, in silence. Two things tell:

* ``store backup`` **stamps** its copy: it is not served before an operator adopts it.
* a **witness**, a small file in the directory beside the store, has the store's id and the highest ``mark`` seen. The
  mark in the store grows with every start, every stop, every act of an operator, and every few seconds while
  something is written. Commit first, then the witness: it may lag behind what is durable and never leads it. A store
  with less than its witness was put there from elsewhere.

On a copy acts may be tried where an operator has said so (``begin_rehearsal``): it stays a copy, which nothing serves.

What neither can tell: a snapshot of the whole directory takes the witness along; and of a file copied from under a
running service, the last seconds. What was made of the state that was lost so, as an archive is, is known by its
**epoch**: each run of the service has a random token, and the store knows which mark was reached in which.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import sqlite3
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from wsrm_mq.errors import NotAllowed, StoreCorrupt, StoreError, StoreFull, StoreUnavailable, StoreUnconfirmed
from wsrm_mq.events.telling import tell
from wsrm_mq.hints import about, store_flag
from wsrm_mq.store.beside import content_of, rehearsal_file, witness_file
from wsrm_mq.store.database import connect_reader, store_errors
from wsrm_mq.store.port import Database

if TYPE_CHECKING:
    from wsrm_mq.store.transaction import Transaction

_IDENTITY: Final = "SELECT id, mark, copied_at FROM identity"
_RENAME: Final = "UPDATE identity SET id = ?, mark = mark + 1, copied_at = NULL"
_STAMP: Final = "UPDATE identity SET copied_at = coalesce(copied_at, ?)"
_ANY_LANE: Final = "SELECT 1 FROM lane LIMIT 1"
EPOCHS: Final = 10_000
"""So many are kept, the newest."""
_BEGIN: Final = """
INSERT INTO epoch (mark, token) SELECT mark, ? FROM identity WHERE TRUE
ON CONFLICT (mark) DO UPDATE SET token = excluded.token
"""
_KEEP: Final = "DELETE FROM epoch WHERE mark <= (SELECT mark FROM epoch ORDER BY mark DESC LIMIT 1 OFFSET ?)"
_AT: Final = "SELECT token FROM epoch WHERE mark <= ? ORDER BY mark DESC LIMIT 1"
ADVANCE: Final = "UPDATE identity SET mark = mark + 1 RETURNING id, mark, copied_at"
UNFINISHED: Final = """
SELECT id FROM lane WHERE ended IS NULL OR owner IS NOT NULL
UNION SELECT lane FROM entry WHERE outcome IS NULL AND lane IS NOT NULL
"""
"""Keys of lanes that are open, run or have something unsettled: what a copy of a store may be wrong about."""


class Identity(NamedTuple):
    """What a store says of itself. ``mark`` grows now and then and never falls: less of it is an older state."""

    id: str
    mark: int
    copied_at: int | None
    """This file is a copy, made at this time (ms since the epoch) and not adopted since."""


def identify(db: Database) -> Identity:
    """Which store this is. Raises ``StoreCorrupt`` where it does not say so."""
    row = db.execute(_IDENTITY).fetchone()
    if row is None:
        raise StoreCorrupt("The store does not say which it is.")
    return Identity(*row)


def advance(tx: Transaction) -> Identity:
    """Move the mark. The witness is told when this is committed."""
    return Identity(*tx.execute(ADVANCE).fetchall()[0])


def begin_epoch(db: Database) -> None:
    """From this mark on another run of the service writes. It may have been put back from a copy before."""
    db.execute(_BEGIN, (secrets.token_hex(8),))
    db.execute(_KEEP, (EPOCHS,))


def epoch_at(db: Database, mark: int) -> str | None:
    """The token of the run that the store had this mark in; ``None`` where that is not known."""
    row = db.execute(_AT, (mark,)).fetchone()
    return None if row is None else str(row[0])


def is_of_another_past(epoch: str | None, here: str | None) -> bool:
    """Whether what was read in ``epoch`` is not what this store had at that mark, which was ``here``."""
    return epoch is not None and here is not None and epoch != here


def rename(tx: Transaction) -> None:
    """From now on this is a store of its own, no copy of another."""
    tx.execute(_RENAME, (secrets.token_hex(16),))


def stamp(db: sqlite3.Connection, now: int) -> None:
    """Mark this file as a copy."""
    db.execute(_STAMP, (now,))


class Witness:
    """The file beside a store at ``path``."""

    def __init__(self, path: Path) -> None:
        self.file = witness_file(path)
        self._known: Identity | None = None
        """What this process wrote there last."""

    def seen(self) -> Identity | None:
        """What any process wrote there last; ``None`` where nothing can be read."""
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
    tx.execute(_STAMP, (tx.now,))


def begin_rehearsal(path: Path) -> None:
    """From now on acts may be tried on this copy, which is marked as one."""
    file = rehearsal_file(path)
    try:
        file.parent.mkdir(mode=0o700, exist_ok=True)
        file.touch(0o600)
    except OSError as error:
        raise StoreUnavailable(f"{file}: cannot be written: {error.strerror}.") from error


def end_rehearsal(path: Path) -> None:
    """What acts were tried on is going to be served."""
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


def why_unconfirmed(db: Database, path: Path) -> Doubt | None:
    """What speaks against serving this store as it is."""
    seen = Witness(path).seen()  # first: a service that runs moves the mark in the store, then the witness
    is_empty = db.execute(_ANY_LANE).fetchone() is None
    return _doubt(identify(db), seen, is_empty)


_OLDER: Final = (
    "Put the newest store in its place, if there is one. Else go on with this one: `wsrm-mq store adopt` does that, "
    "and with --dry-run says what is lost by it."
)
_TRY: Final = "To try a repair on a copy that nothing serves: `wsrm-mq store rehearse`."
_PERHAPS: Final = (
    "If this is its newest state, as when it was moved with the service stopped, say so with `wsrm-mq store adopt "
    "--current`. If it is an older one, or you are not sure: `wsrm-mq store adopt`."
)


def _doubt(found: Identity, seen: Identity | None, is_empty: bool) -> Doubt | None:
    if found.copied_at is not None:
        made = datetime.fromtimestamp(found.copied_at // 1000, UTC)
        text = f"is a copy of {made:%Y-%m-%d %H:%M:%S} UTC; it has forgotten what was acknowledged since."
        return Doubt(text, _OLDER if seen is not None else f"{_OLDER} {_TRY}")
    if seen is not None and seen.id == found.id and found.mark < seen.mark:
        return Doubt("is older than what was here before; it has forgotten what was acknowledged since.", _OLDER)
    if is_empty:
        return None  # nothing of it was ever acknowledged: a source that asks it for a sequence learns that it has none
    if seen is None:
        if found.mark == 0:
            return None  # from a version without a witness
        return Doubt("has been in use, but its witness, in the directory beside it, is missing.", f"{_PERHAPS} {_TRY}")
    if seen.id != found.id:
        return Doubt("is not the store that was used here before.", _PERHAPS)
    return None
