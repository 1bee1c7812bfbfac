"""The manifest of an export, ``manifest.json``, which is written when all segments are there. Until then
``unfinished.ndjson`` has a line for each closed segment, from which an interrupted export goes on."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, Self, TypeVar

import msgspec

from wsrm_mq.errors import ConfigurationError, ExportError, NotAllowed, NotFound
from wsrm_mq.export.schema import TABLES, VERSION
from wsrm_mq.files import digest_of, lock_at_once, replacing

# Places of exports and archives, which lie on this machine.

_FILE: Final = re.compile(r"^file:(//(localhost)?)?(?=/)", re.I)
_ADDRESS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def on_this_machine(path: str) -> str:
    """The path that ``path`` is, also where it is an address ``file:``. Raises ``ConfigurationError`` for any other
    address: its name would become that of a directory here."""
    plain = _FILE.sub("", path)
    if (address := _ADDRESS.match(plain)) and not os.path.lexists(plain):
        raise ConfigurationError(
            f"{path}: addresses with {address[1]}: are not supported yet. Mount it, or copy it to this machine, and "
            "name its path."
        )
    return plain


FORMAT: Final = "wsrm-export"
MANIFEST: Final = "manifest.json"
HISTORY: Final = "manifests"
"""The directory of an archive with all its manifests."""
_UNFINISHED: Final = "unfinished.ndjson"
_PRIVATE: Final = 0o600

M = TypeVar("M", bound="Manifest")
S = TypeVar("S", bound="Segment")


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A file with rows of one table, in the order of its key, each later one with greater keys."""

    table: str
    file: str
    """The path of its file, from the manifest."""
    rows: int
    bytes: int
    sha256: str
    first: tuple[int, ...]
    """The key of its first row: of a message, its position."""
    last: tuple[int, ...]
    earliest: int | None
    """The least of the table's moments, such as ``received_at``: ms since the epoch. ``None``: it has none."""
    latest: int | None
    read_at: int
    """The time when it was begun: states and counters are those of that time or a little later."""


class SegmentTally:
    """Adds up the rows of a segment that is being written."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._keys: list[tuple[int, ...]] = []
        self._moments: list[int] = []
        self.rows = 0
        self.bytes = 0

    def add(self, rows: int, size: int, keys: Iterable[tuple[int, ...]], moments: Iterable[int]) -> None:
        """``size``: bytes of what is counted; ``keys`` and ``moments``: the least and the greatest are among them."""
        self.rows += rows
        self.bytes += size
        self._keys, self._moments = _ends([*self._keys, *keys]), _ends([*self._moments, *moments])

    def segment(self, kind: type[S], directory: Path, file: Path, **more: Any) -> S:
        """The segment in a ``file`` that is whole and on disk."""
        digest, size = digest_of(directory / file)
        (first, last), (earliest, latest) = self._keys, self._moments or (None, None)
        return kind(
            table=self._table,
            file=file.as_posix(),
            rows=self.rows,
            bytes=size,
            sha256=digest,
            first=first,
            last=last,
            earliest=earliest,
            latest=latest,
            **more,
        )


def _ends(values: list[Any]) -> list[Any]:
    return [min(values), max(values)] if values else []


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """The exported contents of a table."""

    columns: dict[str, str]
    """Kind by name; see ``schema``."""
    upper: int | None
    """The last key that it had when the export began; ``None``: no row."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of an export; ``manifest.json`` beside its files. Times in ms since the epoch."""

    format: str = FORMAT
    version: int = VERSION
    store: str
    node: str
    read_views: int
    encoding: str
    """``ndjson``, ``csv``, ``zip`` or ``parquet``."""
    query: str
    """The query of the exported messages; empty: all."""
    bodies: bool
    """Envelopes, and bodies of replies, are there."""
    security: str
    """``redacted`` or ``kept``."""
    headers: tuple[str, ...]
    """The headers of requests that are given, beside Content-Type and SOAPAction."""
    begun_at: int
    tables: dict[str, Contents]
    finished_at: int | None = None
    segments: tuple[Segment, ...] = ()
    archive: str | None = None
    """The id of the archive, whose rows are all settled; ``None``: this is an export."""
    digest: str = ""
    """SHA-256 of all the rest."""

    def as_dict(self) -> dict[str, Any]:
        """Convert to the dictionary that is written."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    def sealed(self) -> Self:
        """Answer the manifest with its digest."""
        plain = msgspec.structs.replace(self, digest="")
        return msgspec.structs.replace(self, digest=_digest(plain))

    def write(self, *files: Path) -> None:
        """Write it to each of these files, indented for people."""
        for file in files:
            with replacing(file) as opened:
                opened.write(msgspec.json.format(msgspec.json.encode(self), indent=1))

    def same(self, other: Manifest) -> bool:
        """Whether both were asked for the same contents."""
        return self._asked() == other._asked()

    def _asked(self) -> object:
        tables = {name: contents.columns for name, contents in self.tables.items()}
        return tables, msgspec.structs.replace(self, begun_at=0, tables={}, finished_at=None, segments=())


def load(directory: Path) -> Manifest:
    """Read the manifest of a finished export or of an archive. Raises ``NotFound`` where there is none, ``ExportError``
    where it cannot be read, was changed or is missing."""
    return loaded(directory / MANIFEST, Manifest)


def loaded(file: Path, kind: type[M]) -> M:
    """The manifest in ``file``, as ``load``."""
    try:
        found = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        raise _missing(file.parent) from None
    except (OSError, msgspec.DecodeError) as error:
        raise ExportError(f"{file}: is no manifest that can be read: {error}. Copy it again.") from error
    what, version = found.get("format"), found.get("version")
    if what != FORMAT or not isinstance(version, int) or version > VERSION:
        raise ExportError(f"{file}: is of format {what} {version}; this version reads {FORMAT} {VERSION}.")
    digest = found.get("digest")
    if (digest or found.get("archive")) and digest != _digest(found | {"digest": ""}):  # older exports have none
        other = f"take one of {HISTORY}/" if found.get("archive") else "export again"
        raise ExportError(f"{file}: was changed after it was written. Copy it again, or {other}.")
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        raise ExportError(f"{file}: is no whole manifest: {error}.") from error


def _digest(content: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()


def is_part(directory: Path) -> bool:
    """Whether it has a part of an export or an archive, whole or not."""
    return any((directory / name).exists() for name in (MANIFEST, _UNFINISHED, HISTORY, *TABLES))


def _missing(directory: Path) -> NotFound | ExportError:
    if (directory / _UNFINISHED).exists():
        return NotFound(f"{directory}: has an unfinished export; run its command again.")
    if history := sorted((directory / HISTORY).glob("*.json")):
        step = shlex.join(["cp", str(history[-1]), str(directory / MANIFEST)])
        return ExportError(f"{directory}: is an archive whose {MANIFEST} is missing. Put it back: `{step}`")
    if is_part(directory):
        return NotFound(
            f"{directory}: has tables and no {MANIFEST}: it was copied in part, which is copied again; or it is an "
            "archive whose first run was interrupted, and `wsrm-mq pipeline archive` goes on with it."
        )
    return NotFound(f"{directory}: has no export and no archive.")


class Unfinished:
    """An export as far as it has come; ``file`` is its journal, locked."""

    def __init__(self, directory: Path, file: BinaryIO, asked: Manifest) -> None:
        self.directory: Final = directory
        self._file: Final = file
        begun, *segments = _lines(file, directory) or (asked,)
        if not isinstance(begun, Manifest) or not begun.same(asked):
            raise NotAllowed(
                f"{directory}: has an unfinished export that was asked for something else. Ask for the same, or name "
                "another directory."
            )
        self.begun: Final = begun
        self.segments: Final = [one for one in segments if isinstance(one, Segment)]
        if file.tell() == 0:
            self._append(begun)
        tables = (directory / table for table in begun.tables)
        sweep(directory, self.segments, (file for table in tables for file in table.glob("*")))

    def add(self, segment: Segment) -> None:
        """Write down a segment, whose file is closed, named and on disk."""
        self.segments.append(segment)
        self._append(segment)

    def finish(self, now: int) -> Manifest:
        whole = msgspec.structs.replace(self.begun, finished_at=now, segments=tuple(self.segments)).sealed()
        whole.write(self.directory / MANIFEST)
        (self.directory / _UNFINISHED).unlink()
        return whole

    def _append(self, line: Manifest | Segment) -> None:
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


@contextmanager
def unfinished(directory: Path, asked: Manifest) -> Iterator[Unfinished]:
    """Begin an export, or go on with the one that is there. Raises ``NotAllowed`` where there is anything else."""
    if (directory / MANIFEST).exists():
        raise NotAllowed(f"{directory}: has an export that is finished; it stays as it is. Name another directory.")
    is_new = not directory.exists()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_new and not (directory / _UNFINISHED).exists() and any(directory.iterdir()):
        raise NotAllowed(f"{directory}: is not empty, and has no export. Name another directory.")
    handle = os.open(directory / _UNFINISHED, os.O_CREAT | os.O_RDWR, _PRIVATE)
    with os.fdopen(handle, "r+b") as file:
        if not lock_at_once(handle):
            raise NotAllowed(f"{directory}: another process is exporting to it.")
        yield Unfinished(directory, file, asked)


def sweep(directory: Path, segments: Iterable[Segment], there: Iterable[Path]) -> None:
    """Remove the files ``there`` that are no segment's, left by an interrupted run or replaced by a later one: a reader
    of all files of a folder must not find them."""
    for file in set(there) - {directory / one.file for one in segments}:
        file.unlink(missing_ok=True)


@contextmanager
def write_errors(directory: Path, then: str) -> Iterator[None]:
    """Raises ``ExportError`` where ``directory`` cannot be written; ``then`` says the next step when the cause is
    mended."""
    try:
        yield
    except OSError as error:
        again = "Make room" if error.errno == errno.ENOSPC else "See to that"
        why = f"cannot be written: {error.strerror or error}. {again}, and {then}."
        raise ExportError(f"{directory}: {why}") from error


def _lines(file: BinaryIO, directory: Path) -> list[Manifest | Segment]:
    """Read the journal. A last line that was not written to its end is cut off."""
    found: list[Manifest | Segment] = []
    while (line := file.readline()).endswith(b"\n"):
        try:
            kind: type[Manifest | Segment] = Segment if found else Manifest
            found.append(msgspec.json.decode(line, type=kind))
        except msgspec.DecodeError as error:
            raise ExportError(f"{directory / _UNFINISHED}: cannot be read: {error}. Remove the directory.") from error
    file.seek(-len(line), os.SEEK_CUR)
    file.truncate()
    return found
