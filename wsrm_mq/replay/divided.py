"""A plan of many stores: a directory with a manifest, and a file of lines for each part.

Parts run beside each other, each in the order of its lines; the messages of a sequence are all in one. The manifest has
the digest of each part, and ``digest`` that of the manifest: the set that runs is the set that was shown, byte for
byte.

Each part has journals: a file for each attempt to run it, with a line for each message that is over. An attempt claims
a part by making the next file, which at most one attempt can, and goes on where the earlier files end. The older
attempt looks for a newer file before each message, and sends no more once there is one. So an attempt that was given up
can still send the message that was on its way; the newer attempt sends that one under the same key.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from wsrm_mq.delivery.delivery import Call, Delivery, Key, Outcome
from wsrm_mq.errors import NotAllowed, NotFound
from wsrm_mq.files import replacing
from wsrm_mq.queue.arrival import Body
from wsrm_mq.replay.plan import DUPLICATE, About, Line
from wsrm_mq.replay.run import Pace
from wsrm_mq.store.clock import wall_clock

MANIFEST: Final = "plan.json"
PARTS: Final = "parts"
JOURNALS: Final = "journals"
_DIGEST: Final = "digest"


class Part(msgspec.Struct, frozen=True, kw_only=True):
    file: str
    """Its name in ``parts``."""
    messages: int
    sha256: str


class Manifest(About, frozen=True, kw_only=True):
    """The description of the plan."""

    stores: tuple[str, ...]
    """Ids of the stores that its messages came to."""
    sources: tuple[str, ...]
    """Paths of the stores, exports and archives that it was made of."""
    headers: tuple[str, ...]
    """The headers of requests that are read, beside Content-Type and SOAPAction."""
    security: bool
    """Envelopes keep their ``wsse:Security``."""
    earliest: int
    """The time when the first of its messages was received."""
    latest: int
    parts: tuple[Part, ...]


class PartLine(Line, frozen=True, kw_only=True):
    """One message; ``position`` and ``queue`` are those that it has in ``store``. Its ``sequence`` and ``number`` are
    those that it came under."""

    store: str


_line = msgspec.json.Decoder(PartLine).decode
_manifest = msgspec.json.Decoder(Manifest).decode


def freeze(directory: Path, manifest: Manifest) -> None:
    """Write the manifest and its digest, which make a plan of the parts in ``directory``."""
    content = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    (directory / JOURNALS).mkdir(mode=0o700, exist_ok=True)
    for name, text in ((_DIGEST, hashlib.sha256(content).hexdigest().encode()), (MANIFEST, content)):
        with replacing(directory / name) as file:
            file.write(text)


class Stopped(NamedTuple):
    """A sequence that stands still, at the message that was not delivered."""

    store: str
    sequence: str | None
    number: int | None
    position: int
    error: str


class Standing(NamedTuple):
    """The progress of a plan, in messages, by its journals."""

    messages: int
    delivered: int
    stopped: tuple[Stopped, ...]

    @property
    def is_done(self) -> bool:
        return self.delivered == self.messages


class DividedPlan:
    """The plan in ``directory``. Raises ``NotFound`` where there is none, ``NotAllowed`` where its manifest was
    changed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        try:
            content = (directory / MANIFEST).read_bytes()
            digest = (directory / _DIGEST).read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise NotFound(f"{directory}: has no plan of `wsrm-mq pipeline replay plan`: {why}.") from error
        self.digest = hashlib.sha256(content).hexdigest()
        if digest != self.digest:
            raise NotAllowed(f"{directory}: its {MANIFEST} was changed since the plan was made. Make a new plan.")
        try:
            self.manifest = _manifest(content)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise NotAllowed(f"{directory}: has a plan of another version: {error}. Make the plan again.") from error
        self.manifest.check_format(f"{directory}:")

    def journals(self, part: int) -> Path:
        """The directory of the journals of a part, which goes by its place in the manifest."""
        return self.directory / JOURNALS / f"{part:05}"

    def states(self) -> list[State]:
        """The state of each part, as its journals say."""
        return [state_of(self.journals(part)) for part in range(len(self.manifest.parts))]

    def standing(self) -> Standing:
        """The progress of the plan. Reads all journals, and each part with a sequence that stands still. Raises
        ``NotAllowed`` for a changed part."""
        states = self.states()
        stopped = (one for part, state in enumerate(states) if state.stopped for one in self._stopped(part, state))
        return Standing(self.manifest.messages, sum(state.delivered for state in states), tuple(stopped))

    def _stopped(self, part: int, state: State) -> Iterator[Stopped]:
        errors = {record.line: record.error or "" for record in state.stopped.values()}
        for number, line in self.lines(part):
            if number in errors:
                yield Stopped(line.store, line.sequence, line.number, line.position, errors[number])

    def lines(self, part: int) -> Iterator[tuple[int, PartLine]]:
        """The lines of a part with their numbers, from 1. Raises ``NotAllowed`` where the part was changed."""
        file = self.directory / PARTS / self.manifest.parts[part].file
        try:
            opened = file.open("rb")
        except OSError as error:
            raise NotAllowed(f"{file}: {error.strerror}. Executors need the plan at the same path.") from error
        with opened:
            if hashlib.file_digest(opened, "sha256").hexdigest() != self.manifest.parts[part].sha256:
                raise NotAllowed(f"{file}: was changed since the plan was made. Make a new plan.")
            opened.seek(0)
            for number, text in enumerate(opened, 1):
                yield number, _line(text)


# journals


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
        """The number of messages that were delivered."""
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
    """The records of a journal. A last line that was not written to its end is left out."""
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
        self._add(Record(line, group, wall_clock()))

    def stopped(self, line: int, group: int, error: str) -> None:
        self._add(Record(line, group, wall_clock(), error, self._run))

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
    """Begin the next journal, which no other attempt has; answers its file, open, and the path of the one behind it."""
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


# The run of one part of a divided plan: its messages are sent in the order of its lines, the next when the last is
# answered.
#
# So the first arrivals of a sequence's messages are in their order, however often an attempt ends and the part is
# begun again; a target that knows messages by their keys has each once.

GIVES_UP: Final = 10
"""After so many failures without a success between them nothing more is sent: it is the target that fails."""


class Content(NamedTuple):
    """The content with which a line is sent, as it was read."""

    line: int
    envelope: bytes | None
    replayable: bool
    """Whether the envelope is as it was received."""
    request: str | None
    """Address and headers of its request, as JSON."""


class Tally(NamedTuple):
    """The count of an attempt: messages that were delivered, and groups that met an error."""

    delivered: int = 0
    stopped: int = 0
    gave_up: bool = False
    superseded: bool = False
    """A newer attempt has taken the part."""


def run_part(
    journal: Rehearsal,
    lines: Iterator[tuple[int, PartLine]],
    contents: Iterator[Content],
    call: Call = lambda _delivery: Outcome(),
    *,
    pace: Pace | None = None,
    replay_id: str = "",
) -> Tally:
    """Send the messages of ``lines`` that ``journal`` does not have yet by ``call``. ``contents`` are in the order of
    the lines; where a line has several the best is first. ``replay_id`` is empty, unless the messages pass for new
    ones."""
    delivered = stopped = failures = 0
    for number, line, content in _matched(lines, contents):
        if journal.is_over(number, line.group):
            continue
        if pace is not None:
            pace.wait()
        if journal.is_superseded():
            return Tally(delivered, stopped, superseded=True)
        why = _why_not(content)
        error = why or call(_delivery(line, content, replay_id)).error
        if error is None:
            journal.delivered(number, line.group)
            delivered, failures = delivered + 1, 0
            continue
        journal.stopped(number, line.group, error)
        stopped, failures = stopped + 1, failures + (not why)
        if failures == GIVES_UP:
            return Tally(delivered, stopped, gave_up=True)
    return Tally(delivered, stopped)


def _matched(
    lines: Iterator[tuple[int, PartLine]], contents: Iterator[Content]
) -> Iterator[tuple[int, PartLine, Content | None]]:
    """Each line with the first content that it has."""
    content = next(contents, None)
    for number, line in lines:
        while content is not None and content.line < number:
            content = next(contents, None)
        yield number, line, content if content is not None and content.line == number else None


def _why_not(content: Content | None) -> str:
    """Why a message cannot be sent; empty: it can."""
    if content is None or content.envelope is None:
        return "its envelope is not there: retention has freed it, or it is in none of the sources"
    return "" if content.replayable else "not replayable: its wsse:Security was taken out (--with-security keeps it)"


def _delivery(line: PartLine, content: Content | None, replay_id: str) -> Delivery:
    assert content is not None
    assert line.sequence is not None
    assert line.number is not None
    return Delivery(
        position=line.position,
        number=line.number,
        identifier=line.sequence,
        partner=None,
        rm="",
        soap="",
        addressing="",
        action=line.action,
        message_id=line.message_id,
        environ=content.request or "{}",
        principal=None,
        connection=None,
        body=Body(content.envelope),
        wants_reply=False,
        redelivery=DUPLICATE in line.flags,
        is_replay=True,
        source=Key(line.sequence, line.number, replay_id),
    )
