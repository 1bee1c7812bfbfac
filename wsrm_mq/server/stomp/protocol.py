"""STOMP 1.1 and 1.2 as a server speaks them, without I/O, clock or threads: bytes → events, frames → bytes.

``Conversation.receive`` takes the bytes that came, ``Conversation.next_event`` gives one event after the other and
raises ``ProtocolError`` where the client has broken the protocol or a limit; ``Conversation.send`` makes bytes of a
frame. What a conversation holds of a frame that is not complete is bounded by ``Limits``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from wsrm_mq.errors import WSRMError

Version = Literal["1.1", "1.2"]
VERSIONS: Final[tuple[Version, ...]] = ("1.1", "1.2")
ACK_MODES: Final = ("auto", "client", "client-individual")
HEART_BEAT: Final = b"\n"
LONGEST_BEAT: Final = 86_400_000
"""ms; a heart-beat that is announced as rarer counts as so often."""


class Limits(NamedTuple):
    """The bounds of one conversation; sizes in bytes. ``line``: of a command or a header. ``transactions``: that are
    open at a time, which have ``frames`` and ``bytes`` between them."""

    headers: int = 100
    line: int = 8_192
    body: int = 16 * 1024 * 1024
    subscriptions: int = 256
    transactions: int = 16
    frames: int = 1_000
    bytes: int = 32 * 1024 * 1024


class Frame(NamedTuple):
    """One frame. Of headers that were repeated, ``headers`` has the first."""

    command: str
    headers: Mapping[str, str] = {}
    body: bytes = b""

    @property
    def size(self) -> int:
        return len(self.body) + sum(len(name) + len(value) for name, value in self.headers.items())


class Event(NamedTuple):
    """A frame of the client. ``is_buffered``: it waits for the end of its transaction. ``frames``: of a COMMIT, what
    its transaction has buffered."""

    frame: Frame
    is_buffered: bool = False
    frames: tuple[Frame, ...] = ()


class HeartBeats(NamedTuple):
    """ms between the heart-beats of a party: those that it can send, and those that it wants to get; 0: none."""

    sends: int = 0
    wants: int = 0

    def agreed(self, other: HeartBeats) -> HeartBeats:
        """How often this party sends, and how often it hears of the other one, by what both have said."""

        def every(can: int, wanted: int) -> int:
            return max(can, wanted) if can and wanted else 0

        return HeartBeats(every(self.sends, other.wants), every(other.sends, self.wants))


class ProtocolError(WSRMError):
    """The client has broken the protocol or a limit: it gets ``frame``, and the connection is closed."""

    def __init__(self, message: str, headers: Mapping[str, str] | None = None, receipt: str | None = None) -> None:
        super().__init__(message)
        self.frame = error_frame(message, receipt, headers)


def error_frame(message: str, receipt: str | None = None, headers: Mapping[str, str] | None = None) -> Frame:
    """The ERROR frame that says ``message``; ``receipt``: the one that the frame had asked for."""
    said = {"message": " ".join(message.split())[:400], "content-type": "text/plain", **(headers or {})}
    if receipt is not None:
        said["receipt-id"] = receipt
    return Frame("ERROR", said, message.encode())


class Command(NamedTuple):
    """A command of the client: the headers that it has to have, by version, and whether it may have a body, and be part
    of a transaction."""

    needs: Mapping[Version, tuple[str, ...]]
    has_body: bool = False
    is_transacted: bool = False


def _same(*names: str) -> Mapping[Version, tuple[str, ...]]:
    return dict.fromkeys(VERSIONS, names)


_ACK: Final = Command({"1.1": ("message-id", "subscription"), "1.2": ("id",)}, is_transacted=True)
_TRANSACTION: Final = Command(_same("transaction"))
COMMANDS: Final = {
    "SEND": Command(_same("destination"), has_body=True, is_transacted=True),
    "SUBSCRIBE": Command(_same("destination", "id")),
    "UNSUBSCRIBE": Command(_same("id")),
    "ACK": _ACK,
    "NACK": _ACK,
    "BEGIN": _TRANSACTION,
    "COMMIT": _TRANSACTION,
    "ABORT": _TRANSACTION,
    "DISCONNECT": Command(_same()),
}
CONNECTS: Final = ("CONNECT", "STOMP")

_ESCAPES: Final[Mapping[Version, Mapping[str, str]]] = {
    "1.1": {"\\": "\\\\", "\n": "\\n", ":": "\\c"},
    "1.2": {"\\": "\\\\", "\n": "\\n", ":": "\\c", "\r": "\\r"},
}
_ESCAPING: Final = {version: str.maketrans(dict(escapes)) for version, escapes in _ESCAPES.items()}
_UNESCAPES: Final = {version: {v: k for k, v in escapes.items()} for version, escapes in _ESCAPES.items()}
_ESCAPED: Final = re.compile(r"\\.?", re.DOTALL)
_BEATS: Final = re.compile(r"([0-9]{1,15}),([0-9]{1,15})")
_COUNT: Final = re.compile(r"[0-9]{1,15}")


def encode(frame: Frame, version: Version) -> bytes:
    """The bytes of a frame. A header that has a NUL, which no escape can say, is left out."""
    is_plain = frame.command in ("CONNECT", "CONNECTED")
    table = {} if is_plain else _ESCAPING[version]
    lines = [frame.command]
    for name, value in frame.headers.items():
        line = f"{name.translate(table)}:{value.translate(table)}"
        if "\0" not in line:
            lines.append(line)
    if frame.body:
        lines.append(f"content-length:{len(frame.body)}")
    return b"".join(("\n".join(lines).encode(errors="replace"), b"\n\n", frame.body, b"\0"))


class _Reader:
    """Cuts bytes into frames. It looks at each byte once, however few come together."""

    def __init__(self, limits: Limits) -> None:
        self.version: Version | None = None
        """Until it is agreed on, nothing is unescaped."""
        self._limits = limits
        self._buffer = bytearray()
        self._looked = 0
        """Bytes of the buffer in which the end was not found."""
        self._command = ""
        self._headers: dict[str, str] = {}
        self._count = 0
        self._is_in_body = False
        self._length: int | None = None
        """The length that the frame has given for its body."""

    @property
    def is_within_frame(self) -> bool:
        return bool(self._command or self._buffer)

    @property
    def receipt(self) -> str | None:
        return self._headers.get("receipt")

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next_frame(self) -> Frame | None:
        """The next frame that is whole. Raises ``ProtocolError``."""
        while not self._is_in_body:
            line = self._line()
            if line is None:
                return None
            if not self._command:
                self._begin(line)
            elif line:
                self._add_header(line)
            else:
                self._begin_body()
        body = self._body()
        if body is None:
            return None
        frame = Frame(self._command, self._headers, body)
        self._command, self._headers, self._count, self._is_in_body = "", {}, 0, False
        return frame

    def _line(self) -> str | None:
        end = self._buffer.find(b"\n", self._looked)
        if (len(self._buffer) if end < 0 else end) > self._limits.line:
            raise self._wrong(f"A line has more than {self._limits.line} bytes.")
        if end < 0:
            self._looked = len(self._buffer)
            return None
        line = self._take(end, 1)
        if line.endswith(b"\r") and (self.version != "1.1" or (line == b"\r" and not self._command)):
            line = line[:-1]
        if b"\0" in line:
            raise self._wrong("A NUL stands in a command or a header.")
        try:
            return line.decode()
        except UnicodeDecodeError:
            raise self._wrong("A command or a header is not in UTF-8.") from None

    def _begin(self, line: str) -> None:
        """A frame begins; an empty line between frames is a heart-beat."""
        if line and line not in COMMANDS and line not in CONNECTS:
            raise self._wrong("A frame begins with what is no command of a client.")
        self._command = line

    def _add_header(self, line: str) -> None:
        self._count += 1
        if self._count > self._limits.headers:
            raise self._wrong(f"A frame has more than {self._limits.headers} headers.")
        name, colon, value = line.partition(":")
        if not name or not colon:
            raise self._wrong(f"Header {self._count} of the frame has no name, or no colon behind it.")
        if self.version == "1.2" and "\r" in line:
            raise self._wrong("A carriage return in a header is not escaped.")
        self._headers.setdefault(self._unescaped(name), self._unescaped(value))

    def _unescaped(self, text: str) -> str:
        if self.version is None or "\\" not in text:
            return text
        meant = _UNESCAPES[self.version]
        wrong = next((one for one in _ESCAPED.findall(text) if one not in meant), None)
        if wrong is not None:
            raise self._wrong(f"{wrong!r} is no escape sequence of STOMP {self.version}.")
        return _ESCAPED.sub(lambda found: meant[found[0]], text)

    def _begin_body(self) -> None:
        said = self._headers.get("content-length")
        if said is not None and not _COUNT.fullmatch(said):
            raise self._wrong(f"`content-length` is {said[:40]!r}; it is the number of bytes of the body.")
        self._length = None if said is None else int(said)
        if self._length is not None and self._length > self._limits.body:
            raise self._too_long()
        self._is_in_body = True

    def _body(self) -> bytes | None:
        end = self._buffer.find(b"\0", self._looked) if self._length is None else self._length
        if end < 0 or end >= len(self._buffer):
            self._looked = len(self._buffer)
            if self._length is None and self._looked > self._limits.body:
                raise self._too_long()
            return None
        if end > self._limits.body:
            raise self._too_long()
        if self._buffer[end]:
            raise self._wrong(f"No NUL ends the frame behind the {end} bytes that its `content-length` says.")
        return self._take(end, 1)

    def _take(self, length: int, and_skip: int) -> bytes:
        with memoryview(self._buffer) as seen:
            taken = bytes(seen[:length])
        del self._buffer[: length + and_skip]
        self._looked = 0
        return taken

    def _too_long(self) -> ProtocolError:
        return self._wrong(f"A body has more than {self._limits.body} bytes.")

    def _wrong(self, message: str) -> ProtocolError:
        return ProtocolError(message, receipt=self.receipt)


class Conversation:
    """One connection. It begins with CONNECT or STOMP; ``version`` is what was agreed on then."""

    def __init__(self, limits: Limits | None = None, beats: HeartBeats | None = None) -> None:
        """``beats``: those that this server can send, and wants to get."""
        self._limits = limits or Limits()
        self._reader = _Reader(self._limits)
        self._beats = beats or HeartBeats()
        self.version: Version | None = None
        self.beats = HeartBeats()
        """The heart-beats that were agreed on."""
        self.is_ended = False
        """Nothing that comes is read any more: the client has disconnected, or has broken the protocol."""
        self._subscriptions: set[str] = set()
        self._transactions: dict[str, list[Frame]] = {}
        self._buffered = 0
        """The number of bytes in open transactions."""

    @property
    def is_within_frame(self) -> bool:
        """Whether a frame has begun and its end has not come."""
        return not self.is_ended and self._reader.is_within_frame

    def receive(self, data: bytes) -> None:
        """Take bytes that came."""
        if not self.is_ended:
            self._reader.feed(data)

    def next_event(self) -> Event | None:
        """The next event; ``None``: more bytes have to come. Raises ``ProtocolError``."""
        if self.is_ended:
            return None
        try:
            frame = self._reader.next_frame()
            return None if frame is None else self._taken(frame)
        except ProtocolError:
            self.is_ended = True
            raise

    def send(self, frame: Frame) -> bytes:
        """The bytes of a frame of the server."""
        return encode(frame, self.version or VERSIONS[0])

    def connected(self, session: str, server: str) -> Frame:
        """The answer to the client's CONNECT. ``session``: its identifier."""
        headers = {"version": self.version or "", "session": session, "server": server}
        return Frame("CONNECTED", {**headers, "heart-beat": f"{self._beats.sends},{self._beats.wants}"})

    def _taken(self, frame: Frame) -> Event:
        if frame.command in CONNECTS:
            self._connect(frame)
            return Event(frame)
        if self.version is None:
            raise _wrong(frame, f"The first frame is CONNECT, not {frame.command}.")
        command = COMMANDS[frame.command]
        missing = [name for name in command.needs[self.version] if name not in frame.headers]
        if missing:
            raise _wrong(frame, f"{frame.command} has no header `{missing[0]}`.")
        if frame.body and not command.has_body:
            raise _wrong(frame, f"{frame.command} has a body; only SEND may have one.")
        if command.is_transacted and "transaction" in frame.headers:
            return self._buffer(frame)
        match frame.command:
            case "SUBSCRIBE":
                self._subscribe(frame)
            case "UNSUBSCRIBE":
                self._known(self._subscriptions, frame, "subscription", frame.headers["id"])
                self._subscriptions.discard(frame.headers["id"])
            case "BEGIN":
                self._begin(frame)
            case "COMMIT":
                return Event(frame, frames=self._end(frame))
            case "ABORT":
                self._end(frame)
            case "DISCONNECT":
                self.is_ended = True
        return Event(frame)

    def _connect(self, frame: Frame) -> None:
        if self.version is not None:
            raise _wrong(frame, "This connection is connected already: a second one needs a connection of its own.")
        if frame.body:
            raise _wrong(frame, f"{frame.command} has a body; only SEND may have one.")
        accepted = frame.headers.get("accept-version", "1.0").split(",")
        common = [version for version in VERSIONS if version in accepted]
        if not common:
            raise ProtocolError(
                f"Supported protocol versions are {' '.join(VERSIONS)}: name one of them in `accept-version`.",
                {"version": ",".join(VERSIONS)},
            )
        said = frame.headers.get("heart-beat", "0,0")
        found = _BEATS.fullmatch(said)
        if found is None:
            raise _wrong(frame, f"`heart-beat` is {said[:40]!r}; it is two numbers of milliseconds, as 10000,10000.")
        theirs = HeartBeats(*(min(int(one), LONGEST_BEAT) for one in found.groups()))
        self.beats = self._beats.agreed(theirs)
        self.version = self._reader.version = common[-1]

    def _subscribe(self, frame: Frame) -> None:
        id, mode = frame.headers["id"], frame.headers.get("ack", "auto")
        if mode not in ACK_MODES:
            raise _wrong(frame, f"`ack` is {mode[:40]!r}; it is one of {', '.join(ACK_MODES)}.")
        if id in self._subscriptions:
            raise _wrong(frame, f"The subscription {id[:40]!r} is there already: give each an `id` of its own.")
        if len(self._subscriptions) >= self._limits.subscriptions:
            raise _wrong(frame, f"A connection may have {self._limits.subscriptions} subscriptions.")
        self._subscriptions.add(id)

    def _begin(self, frame: Frame) -> None:
        name = frame.headers["transaction"]
        if name in self._transactions:
            raise _wrong(frame, f"The transaction {name[:40]!r} is open already: give each a name of its own.")
        if len(self._transactions) >= self._limits.transactions:
            raise _wrong(frame, f"A connection may have {self._limits.transactions} open transactions.")
        self._transactions[name] = []

    def _buffer(self, frame: Frame) -> Event:
        name = frame.headers["transaction"]
        self._known(self._transactions, frame, "transaction", name)
        self._buffered += frame.size
        count = sum(map(len, self._transactions.values()))
        if count >= self._limits.frames or self._buffered > self._limits.bytes:
            raise _wrong(
                frame,
                f"Open transactions may have {self._limits.frames} frames of {self._limits.bytes} bytes together: "
                "commit smaller ones.",
            )
        self._transactions[name].append(frame)
        return Event(frame, is_buffered=True)

    def _end(self, frame: Frame) -> tuple[Frame, ...]:
        name = frame.headers["transaction"]
        self._known(self._transactions, frame, "transaction", name)
        frames = self._transactions.pop(name)
        self._buffered -= sum(one.size for one in frames)
        return tuple(frames)

    def _known(self, known: set[str] | dict[str, list[Frame]], frame: Frame, what: str, name: str) -> None:
        if name not in known:
            raise _wrong(frame, f"There is no {what} {name[:40]!r} on this connection.")


def _wrong(frame: Frame, message: str) -> ProtocolError:
    return ProtocolError(message, receipt=frame.headers.get("receipt"))
