"""The manifest of an archive, by which one state of it becomes the next, at once or not at all."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from wsrm_mq.errors import ExportError, NotAllowed, NotFound
from wsrm_mq.export.manifest import HISTORY, MANIFEST, Manifest, Segment, loaded, not_written, sweep
from wsrm_mq.files import lock_at_once
from wsrm_mq.sequence.ranges import AckRange

HELD: Final = ("messages", "replies", "sequences", "ranges", "ledger")
"""The tables of an archive; ``attempts`` are rows of the ledger."""
_LOCK: Final = "lock"

Keys = tuple[AckRange, ...]


class ArchivedSegment(Segment, frozen=True, kw_only=True):
    """Sorted by sequence and number where the table has them; ``first`` and ``last`` are the least and the greatest of
    its keys."""

    batch: int
    """Number of the manifest that it came with."""
    verified_at: int | None = None
    """The time when its rows were found equal to those of the store."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """An act on the archive."""

    number: int
    """The number of the manifest that it led to."""
    act: str
    """``archived`` or ``forgotten``."""
    at: int
    actor: str
    reason: str | None = None
    rows: dict[str, int]
    """The number of rows that were added or taken out, by table."""
    keys: dict[str, Keys] = {}
    """The keys that were read of the store, by table."""
    before: dict[str, str] = {}
    """SHA-256 of the files that were replaced, by their names."""
    after: dict[str, str] = {}
    """SHA-256 of the files in their places."""


class Archive(Manifest, frozen=True, kw_only=True):
    """The manifest of an archive: its contents, and its records. Each batch writes the next one."""

    archive: str
    """Its id."""
    number: int
    """The number of this manifest; 0: nothing is archived yet."""
    mark: int = 0
    """The mark of the store when it was read last (``store.identity``)."""
    epoch: str | None = None
    """The token of the run of the service in which the store had that mark; ``None``: not known."""
    ledger: int = 0
    """The ledger is archived up to this key."""
    messages: Keys = ()
    """Positions of messages that are archived as settled, with all that was deleted between them."""
    sequences: Keys = ()
    """Keys of sequences that are archived and over."""
    unfinished: Keys = ()
    """Keys of sequences that were archived as they were then; the next batch has them anew."""
    reopened: Keys = ()
    """Positions whose row is from before an operator restored the message; it is replaced when that is settled."""
    forgotten: Keys = ()
    """Positions that were archived, and taken out again: they never come back."""
    forgotten_sequences: Keys = ()
    forgotten_partners: tuple[tuple[str, int], ...] = ()
    """SHA-256 of a partner's name, and a time: sequences that the partner had begun until then are forgotten."""
    records: tuple[Record, ...] = ()
    segments: tuple[ArchivedSegment, ...] = ()

    @property
    def unverified(self) -> tuple[ArchivedSegment, ...]:
        return tuple(one for one in self.segments if one.verified_at is None)


def digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def load(place: Path) -> Archive:
    """Read the manifest of an archive, from its directory or from a file. Raises ``NotFound`` where there is none,
    ``ExportError`` where it cannot be read or was changed."""
    if not place.exists():
        raise NotFound(f"{place}: there is no archive.")
    file = place / MANIFEST if place.is_dir() else place
    if loaded(file, Manifest).archive is None:
        raise ExportError(
            f"{place}: is an export, and no archive. `wsrm-mq pipeline archive` makes archives of stores."
        )
    return loaded(file, Archive)


def commit(directory: Path, following: Archive) -> Archive:
    """Make ``following`` the state of the archive, whose files are all on disk, and remove every other file."""
    sealed = following.sealed()
    (directory / HISTORY).mkdir(mode=0o700, exist_ok=True)
    sealed.write(directory / HISTORY / f"{sealed.number:06}.json", directory / MANIFEST)
    _sweep(directory, sealed.segments)
    return sealed


def _sweep(directory: Path, segments: Iterable[ArchivedSegment]) -> None:
    sweep(directory, segments, (file for table in HELD for file in (directory / table).rglob("*.parquet*")))


def _clean(directory: Path) -> None:
    """Remove files of no archive. An archive whose manifest cannot be read is left as it is."""
    try:
        segments = load(directory).segments
    except NotFound:
        segments = ()
    except ExportError:
        return
    _sweep(directory, segments)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Lock the archive for this process; an error leaves nothing behind. Raises ``NotAllowed`` where another process
    works on it, ``ExportError`` where it cannot be written."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(directory / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise _not_written(directory, error) from error
    try:
        if not lock_at_once(handle):
            raise NotAllowed(f"{directory}: another process is working on this archive.")
        with _undone(directory):
            _clean(directory)
            yield
    finally:
        os.close(handle)


@contextmanager
def _undone(directory: Path) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        with suppress(OSError):
            _clean(directory)
        if isinstance(error, OSError):
            raise _not_written(directory, error) from error
        raise


def _not_written(directory: Path, error: OSError) -> ExportError:
    return not_written(directory, error, "try again; the archive is as it was")
