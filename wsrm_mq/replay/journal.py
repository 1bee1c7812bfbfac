"""The journals of a part of a plan: a file for each attempt to run it, with a line for each message that is over.

An attempt claims a part by making the next file, which at most one attempt can, and goes on where the earlier files
end. The older attempt looks for a newer file before each message, and sends no more once there is one. So an attempt
that was given up can still send the message that was on its way; the newer attempt sends that one under the same
key.
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
"""The time between two calls of fsync. After a power cut the messages of that time may be sent again; the death of a
process loses nothing."""


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """The end of a line. ``error`` is the reason why it was not delivered; then its group stands still for the rest of
    ``run``."""

    line: int
    group: int
    at: int
    """ms since the epoch."""
    error: str | None = None
    run: str | None = None
    """The id of the run that met the error."""


_encode = msgspec.json.Encoder().encode
_record = msgspec.json.Decoder(Record).decode


class State:
    """The progress of a part, by its journals."""

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


def state_of(directory: Path) -> State:
    """Read the journals in ``directory``."""
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


class Rehearsal:
    """The messages of an attempt that sends nothing, added to the ``state`` of a part and written nowhere."""

    def __init__(self, state: State, run: str) -> None:
        self.state = state
        self._run = run

    def is_superseded(self) -> bool:
        """Whether a newer attempt has the part."""
        return False

    def is_over(self, line: int, group: int) -> bool:
        """Whether this run leaves a line alone: it was delivered, or its group has met an error."""
        stopped = self.state.stopped.get(group)
        return line <= self.state.last.get(group, 0) or (stopped is not None and stopped.run == self._run)

    def delivered(self, line: int, group: int) -> None:
        self._add(Record(line, group, _now()))

    def stopped(self, line: int, group: int, error: str) -> None:
        self._add(Record(line, group, _now(), error, self._run))

    def _add(self, record: Record) -> None:
        self.state.add(record)


class Journal(Rehearsal):
    """The journal of this attempt, which has claimed the part in ``directory``; ``state`` begins with the records of
    earlier ones. It is closed at the end of its block."""

    def __init__(self, directory: Path, run: str) -> None:
        directory.mkdir(mode=0o700, exist_ok=True)
        self._handle, self._next = _claimed(directory)
        self._synced_at = time.monotonic()
        super().__init__(state_of(directory), run)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_error: object) -> None:
        os.fsync(self._handle)
        os.close(self._handle)

    def is_superseded(self) -> bool:
        return self._next.exists()

    def _add(self, record: Record) -> None:
        os.write(self._handle, _encode(record) + b"\n")
        super()._add(record)
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
