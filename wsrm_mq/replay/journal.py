"""How far a part of a plan has come: a file for each attempt to run it, to which a line is added for each message.

An attempt claims a part by making the next file, which at most one can, and goes on where the files before it end. The
older one looks for a newer file before each message and sends no more when there is one. So what an executor that was
given up still sends is the message that was on its way, and the newer attempt sends that under the same key.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from wsrm_mq.errors import NotAllowed

SYNC_SECONDS: Final = 0.05
"""So much of what was answered may be sent again after a power cut. The death of a process loses nothing."""


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of a line. ``error``: why it was not delivered; its group stands still for the rest of ``run``."""

    line: int
    group: int
    at: int
    """ms since the epoch."""
    error: str | None = None
    run: str | None = None
    """Of an error: which run met it."""


_encode = msgspec.json.Encoder().encode
_record = msgspec.json.Decoder(Record).decode


class State:
    """What the journals of a part tell."""

    def __init__(self) -> None:
        self.delivered: int = 0
        """Messages."""
        self.last: dict[int, int] = {}
        """Group → the last of its lines that was delivered."""
        self.stopped: dict[int, Record] = {}
        """Group → why it stands still."""

    def add(self, record: Record) -> None:
        if record.error is not None:
            self.stopped[record.group] = record
        elif record.line > self.last.get(record.group, 0):
            self.last[record.group] = record.line
            self.delivered += 1
            self.stopped.pop(record.group, None)

    def is_over(self, line: int, group: int, run: str) -> bool:
        """Whether ``run`` leaves a line alone: it was delivered, or its group has met an error."""
        stopped = self.stopped.get(group)
        return line <= self.last.get(group, 0) or (stopped is not None and stopped.run == run)


def state_of(directory: Path) -> State:
    """What the journals in ``directory`` tell now."""
    state = State()
    for file in _files(directory):
        for record in _records(file):
            state.add(record)
    return state


def _files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.ndjson"))


def _records(file: Path) -> Iterator[Record]:
    """A last line that was not written to its end tells nothing."""
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield _record(line)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise NotAllowed(
                    f"{file}: line {number} cannot be read: {error}. Without it the run does not know what it has "
                    "sent; make a new plan."
                ) from error


class Journal:
    """That of this attempt, which has claimed the part in ``directory``; ``state`` is what was there before. Closed at
    the end of its block."""

    def __init__(self, directory: Path, run: str) -> None:
        self._run = run
        directory.mkdir(mode=0o700, exist_ok=True)
        self._handle, self._next = _claimed(directory)
        self._synced_at = time.monotonic()
        self.state = state_of(directory)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_error: object) -> None:
        os.fsync(self._handle)
        os.close(self._handle)

    def is_superseded(self) -> bool:
        """Whether a newer attempt has the part."""
        return self._next.exists()

    def delivered(self, line: int, group: int) -> None:
        self._add(Record(line, group, _now()))

    def stopped(self, line: int, group: int, error: str) -> None:
        self._add(Record(line, group, _now(), error, self._run))

    def _add(self, record: Record) -> None:
        os.write(self._handle, _encode(record) + b"\n")
        self.state.add(record)
        now = time.monotonic()
        if now - self._synced_at >= SYNC_SECONDS:
            os.fsync(self._handle)
            self._synced_at = now


def _claimed(directory: Path) -> tuple[int, Path]:
    """The next file, which is new, open; and the path of the one behind it."""
    while True:
        files = _files(directory)
        number = int(files[-1].stem) + 1 if files else 1
        try:
            handle = os.open(directory / _name(number), os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o600)
        except FileExistsError:
            continue
        return handle, directory / _name(number + 1)


def _name(number: int) -> str:
    return f"{number:06}.ndjson"


def _now() -> int:
    return time.time_ns() // 1_000_000
