"""A frozen plan: its file, NDJSON with a header and a line for each message in the order in which they run.

The file is written once, as a stream, and the store keeps its SHA-256: the set that runs is the set that was shown,
byte for byte. It may have millions of lines, so it is never in memory as a whole.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from wsrm_mq.errors import NotAllowed, NotFound

FORMAT: Final = 1
"""The version of the form of the file."""

DUPLICATE: Final = "duplicate"
"""The service has taken it before."""
BREAKS_ORDER: Final = "breaks_order"
"""It runs before messages that precede it in its sequence, or after messages that follow it."""

KEY_HEADER: Final = "Wsrm-Mq-Key"
"""The HTTP header of a message that is replayed to an address: ``identifier;number``, with ``;plan`` behind it where
the message is to pass for a new one. Characters other than letters, digits, ``-``, ``.``, ``_``, ``~`` and ``:`` are
percent-encoded."""

_HEADER: Final = 16 * 1024 * 1024
"""The most bytes of the first line."""


class LeftOut(msgspec.Struct, frozen=True):
    """Messages that fit the query and are not in the plan. ``example`` is a position, or a sequence."""

    why: str
    messages: int
    example: str


class About(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a plan of any kind; times in ms since the epoch. ``bytes`` is the size of all bodies.
    ``counts`` has the number of messages in each state and with each flag."""

    wsrm_mq_plan: int
    """The version of the format: ``FORMAT``."""
    id: str
    made_at: int
    actor: str
    reason: str
    query: str
    target: str
    as_new: bool
    skip_missing: bool
    messages: int
    groups: int
    bytes: int
    counts: dict[str, int]
    left_out: tuple[LeftOut, ...]
    warnings: tuple[str, ...]

    def check_format(self, place: str) -> None:
        """Raises ``NotAllowed`` where another version has written the plan that is at ``place``."""
        if self.wsrm_mq_plan != FORMAT:
            raise NotAllowed(
                f"{place} has the format {self.wsrm_mq_plan} of plans, this version knows {FORMAT}. "
                "Make the plan again."
            )


class Header(About, frozen=True, kw_only=True):
    """The first line of a plan that is one file."""

    store: str
    """Id of the store that it was made of."""


class Line(msgspec.Struct, frozen=True):
    """One message. The messages of a ``group`` run in the order of their lines, one at a time."""

    group: int
    position: int
    queue: str
    sequence: str | None
    number: int | None
    message_id: str | None
    action: str | None
    size: int
    """Bytes of its body."""
    state: str
    """The state of the message when the plan was made."""
    flags: tuple[str, ...] = ()


def document(of: About | Line) -> dict[str, Any]:
    """Convert to the dictionary that JSON documents have."""
    found: dict[str, Any] = msgspec.to_builtins(of)
    return found


_encode = msgspec.json.Encoder().encode
_header = msgspec.json.Decoder(Header).decode
_line = msgspec.json.Decoder(Line).decode


def encoded(of: Header | Line) -> bytes:
    """Encode a header or a message as its line in the file."""
    return _encode(of) + b"\n"


def write_plan(path: Path, header: Header, lines: IO[bytes]) -> str:
    """Write header and ``lines``, encoded and read from their beginning, to ``path`` at once, or not at all. Answers
    the digest. Raises ``NotAllowed`` where the file is there or cannot be made."""
    unfinished = path.with_name(f".{path.name}.{header.id}")
    try:
        handle = os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        try:
            with open(handle, "w+b") as file:
                file.write(encoded(header))
                lines.seek(0)
                shutil.copyfileobj(lines, file)
                file.flush()
                os.fsync(handle)
                file.seek(0)
                digest = hashlib.file_digest(file, "sha256")
            os.link(unfinished, path)  # unlike a rename it replaces nothing
        finally:
            unfinished.unlink(missing_ok=True)
    except FileExistsError as error:
        raise NotAllowed(f"{path} is there already; name another file with -o.") from error
    except OSError as error:
        raise NotAllowed(f"{path}: cannot be written: {error.strerror}. No plan was made.") from error
    return digest.hexdigest()


class PlanFile:
    """An open plan. Raises ``NotFound`` where there is no such file, ``NotAllowed`` where it is no plan."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise NotFound(f"{path}: {error.strerror}.") from error
        try:
            self.header = self._read_header()
        except BaseException:
            self._file.close()
            raise
        self._lines_at = self._file.tell()
        self._as_verified: tuple[int, ...] = ()

    def __enter__(self) -> PlanFile:
        return self

    def __exit__(self, *_error: object) -> None:
        self._file.close()

    def _read_header(self) -> Header:
        first = self._file.readline(_HEADER)
        try:
            header = _header(first)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise NotAllowed(f"{self.path} is no plan of wsrm-mq: {error}.") from error
        header.check_format(str(self.path))
        return header

    def digest(self) -> str:
        """SHA-256 of the whole file, as it is now."""
        self._as_verified = self._stamp()
        self._file.seek(0)
        return hashlib.file_digest(self._file, "sha256").hexdigest()

    def lines(self, after: int = 0) -> Iterator[tuple[int, Line]]:
        """Each line behind line ``after`` with its number, from 1. Raises ``NotAllowed`` where the file was written to
        since ``digest``, or is broken."""
        self._file.seek(self._lines_at)
        for number, text in enumerate(self._file, 1):
            if number <= after:
                continue
            if self._as_verified and self._as_verified != self._stamp():
                raise NotAllowed(f"{self.path} was changed while it ran.")
            try:
                yield number, _line(text)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise NotAllowed(f"{self.path}: line {number + 1} is no line of a plan: {error}.") from error

    def _stamp(self) -> tuple[int, ...]:
        found = os.fstat(self._file.fileno())
        return (found.st_ino, found.st_size, found.st_mtime_ns)
