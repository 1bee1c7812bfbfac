"""A plan of many stores: a directory with a manifest, and a file of lines for each part.

Parts run beside each other, each in the order of its lines; the messages of a sequence are all in one. The manifest has
the digest of each part, and ``digest`` that of the manifest: the set that runs is the set that was shown, byte for
byte.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from wsrm_mq.errors import NotAllowed, NotFound
from wsrm_mq.files import replacing
from wsrm_mq.replay.journal import State, state_of
from wsrm_mq.replay.plan import FORMAT, About, Line

MANIFEST: Final = "plan.json"
PARTS: Final = "parts"
JOURNALS: Final = "journals"
_DIGEST: Final = "digest"
_PIECE: Final = 1024 * 1024


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
        if self.manifest.wsrm_mq_plan != FORMAT:
            raise NotAllowed(
                f"{directory}: has the format {self.manifest.wsrm_mq_plan} of plans, this version knows {FORMAT}. "
                "Make the plan again."
            )

    def journals(self, part: int) -> Path:
        """The directory of the journals of a part, which goes by its place in the manifest."""
        return self.directory / JOURNALS / f"{part:05}"

    def states(self) -> list[State]:
        """The state of each part, as its journals say."""
        return [state_of(self.journals(part)) for part in range(len(self.manifest.parts))]

    def standing(self) -> Standing:
        """Reads all journals, and each part with a sequence that stands still. Raises ``NotAllowed`` for a changed
        one."""
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
            digest = hashlib.sha256()
            while piece := opened.read(_PIECE):
                digest.update(piece)
            if digest.hexdigest() != self.manifest.parts[part].sha256:
                raise NotAllowed(f"{file}: was changed since the plan was made. Make a new plan.")
            opened.seek(0)
            for number, text in enumerate(opened, 1):
                yield number, _line(text)
