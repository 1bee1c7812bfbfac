"""Gives mutated frames of STOMP to a conversation, and holds it to what must be:

- it answers with events, or raises ``ProtocolError`` and reads nothing more,
- that is the same however the bytes are cut,
- a frame that was read is read again as it was when it is written.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Final

from tests.fuzz.failed import Failed
from tests.fuzz.messages import Case
from wsrm_mq.server.stomp.protocol import (
    COMMANDS,
    VERSIONS,
    Conversation,
    Event,
    Frame,
    Limits,
    ProtocolError,
    Version,
    encode,
)

PLANTS: Final = ("raise", "cut", "written")
PLANTED_IN: Final = 50
"""From this case on the mistake is made that is planted."""
LIMITS: Final = Limits(headers=8, line=120, body=300, subscriptions=3, transactions=2, frames=4, bytes=600)
NAMES: Final = (
    "destination",
    "id",
    "ack",
    "transaction",
    "message-id",
    "subscription",
    "content-length",
    "receipt",
    "y",
)
VALUES: Final = ("/queue/a", "1", "2", "client", "auto", "", " a ", "a:b", "a\nb", "\\", "Größe", "5", "-1", "x" * 130)
PIECES: Final = (
    b"\0",
    b"\n",
    b"\r",
    b"\r\n",
    b":",
    b"\\",
    b"\\r",
    b"\\t",
    b"\xff",
    b"content-length:3\n",
    b"\n\n\0",
    b"x" * 301,
)


def good(rng: random.Random) -> bytes:
    """A frame that is mostly whole."""
    version = rng.choice(VERSIONS)
    if rng.random() < 0.15:
        beats = rng.choice(("", f"heart-beat:{rng.choice(('1,2', '0,0', 'a', '1'))}\n"))
        return f"{rng.choice(('CONNECT', 'STOMP'))}\naccept-version:{version}\n{beats}\n\0".encode()
    command = rng.choice((*COMMANDS, *COMMANDS, "NONE"))
    needed = COMMANDS[command].needs[version] if command in COMMANDS else ()
    headers = {name: rng.choice(VALUES[:4]) for name in needed}
    headers.update((rng.choice(NAMES), rng.choice(VALUES)) for _ in range(rng.randrange(3)))
    body = rng.choice((b"", b"", b"body", b"a\0b"))
    return encode(Frame(command, headers, body), version) + rng.choice((b"", b"\n", b"\r\n"))


def mutated(rng: random.Random) -> bytes:
    """Frames, some of them changed in a place or two."""
    data = bytearray(f"CONNECT\naccept-version:{rng.choice(VERSIONS)}\n\n\0".encode() if rng.random() < 0.9 else b"")
    for _ in range(rng.randrange(1, 6)):
        data += good(rng)
    for _ in range(rng.choice((0, 0, 1, 1, 2, 4))):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(4):
            case 0:
                data[at:at] = rng.choice(PIECES)
            case 1:
                del data[at : at + rng.randrange(1, 8)]
            case 2:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case _:
                end = min(len(data), at + rng.randrange(40))
                data[at:at] = data[at:end]
    return bytes(data)


def cuts(rng: random.Random, data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = rng.choice((1, 2, 3, 10, 100))
        yield data[at : at + size]
        at += size


def events(pieces: Iterator[bytes]) -> tuple[list[Event], str, Conversation]:
    """The events of these bytes, and the error that ended them."""
    conversation, found = Conversation(LIMITS), []
    for piece in pieces:
        conversation.receive(piece)
        try:
            while (event := conversation.next_event()) is not None:
                found.append(event)
        except ProtocolError as error:
            if not conversation.is_ended or conversation.next_event() is not None:
                raise Wrong("it goes on behind an error") from error
            return found, str(error), conversation
    return found, "", conversation


class Wrong(Exception):
    """A conversation is not what it has to be."""


def check(rng: random.Random, data: bytes, plant: str = "") -> None:
    """Raises ``Wrong``."""
    whole, error, conversation = events(iter([data]))
    if plant == "raise":
        raise RuntimeError("planted")
    in_parts = events(cuts(rng, data if plant != "cut" else data + b"NONE\n\n\0"))[:2]
    if in_parts != (whole, error) and not ("more than" in error or "more than" in in_parts[1]):
        raise Wrong(f"it is read otherwise in parts: {in_parts} and {(whole, error)}")
    if conversation.version is not None:
        for event in whole:
            check_written(event.frame, conversation.version, plant)


def check_written(frame: Frame, version: Version, plant: str) -> None:
    """See that a frame that was read, written and read again is the same. Raises ``Wrong``."""
    left_out = ("content-length", "transaction")
    said = {**{name: value for name, value in frame.headers.items() if name not in left_out}, "destination": "d"}
    again = Conversation(Limits())
    again.receive(f"CONNECT\naccept-version:{version}\n\n\0".encode())
    again.next_event()
    again.receive(encode(Frame("SEND", {**said, "x": "y"} if plant == "written" else said, frame.body), version))
    event = again.next_event()
    if event is None or event.frame.body != frame.body:
        raise Wrong(f"the body of {frame} is written as {event}")
    if {name: value for name, value in event.frame.headers.items() if name != "content-length"} != said:
        raise Wrong(f"the headers of {frame} are written as {event}")


def fuzz_stomp(seconds: float, seed: int, plant: str = "") -> int:
    """Run for ``seconds``; answers how many cases there were. Raises ``Failed``. ``plant``: a mistake is made."""
    rng = random.Random(seed)
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end or count <= PLANTED_IN:
        data = mutated(rng)
        count += 1
        planted = plant if count >= PLANTED_IN else ""
        try:
            check(rng, data, planted)
        except Exception as error:
            raise Failed(f"STOMP: {error!r}", Case(data, "application/octet-stream")) from error
    return count
