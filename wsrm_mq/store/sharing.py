"""Express messages of one process for other processes of the same user, through a socket beside the store: the language
that both speak, the sessions that the one gives, and the connection of the other, which is one of the port.

Each connection has a thread and a session. A peer is believed to be a program of this package only when it has greeted.
One that says what is not understood, or keeps a transaction open for too long, is told of in an event and cut off: what
it had begun is rolled back.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from wsrm_mq.errors import KeeperGone, StoreBusy, StoreUnavailable, WSRMError
from wsrm_mq.events.telling import Events
from wsrm_mq.store.driver import Fetched, Fleeting, Temporary, beside
from wsrm_mq.store.lasting import Lasting
from wsrm_mq.store.port import Connection, Parameters, Rows

# the language: a line of greeting, then frames, each a length of four bytes and so many bytes of MessagePack; a request
# has one answer

T = TypeVar("T")
GREETING: Final = b"wsrm_mq express 1\n"
MOST: Final = 256 * 1024 * 1024
"""Bytes of a frame."""
FRAME_SECONDS: Final = 2.0
"""A frame that has begun is through after so long, or the connection ends."""
_LENGTH: Final = struct.Struct(">I")


class Malformed(WSRMError):
    """The bytes that came are no greeting, or no frame of this language."""


class Begin(msgspec.Struct, tag="begin", forbid_unknown_fields=True):
    """Begin a transaction."""

    wait: bool


class Run(msgspec.Struct, tag="run", forbid_unknown_fields=True):
    """Run a statement, in the transaction or outside of one."""

    statement: str
    values: list[Any] | dict[str, Any]


class Give(msgspec.Struct, tag="give", forbid_unknown_fields=True):
    """Give so many positions."""

    count: int


class Answer(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The answer to a request. ``number``: the version of the database, or the number of rows that were changed.
    ``error``: why nothing was done; ``is_busy``: it may be tried again."""

    rows: list[Any] = []
    number: int = 0
    in_transaction: bool = False
    error: str | None = None
    is_busy: bool = False


_ENCODE: Final = msgspec.msgpack.Encoder().encode
_REQUEST: Final[msgspec.msgpack.Decoder[Begin | Run | Give]] = msgspec.msgpack.Decoder(Begin | Run | Give)
_ANSWER: Final = msgspec.msgpack.Decoder(Answer)


def decoded(content: bytes, decoder: msgspec.msgpack.Decoder[T]) -> T:
    try:
        return decoder.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Malformed(f"a frame that is none of this language: {error}") from error


def send(peer: socket.socket, said: msgspec.Struct) -> None:
    content = _ENCODE(said)
    if len(content) > MOST:
        raise Malformed(f"a frame of {len(content)} bytes, and {MOST} are the most")
    peer.settimeout(FRAME_SECONDS)
    peer.sendall(_LENGTH.pack(len(content)) + content)


def receive(peer: socket.socket, seconds: float | None) -> bytes | None:
    """The content of the next frame, which begins within ``seconds``; ``None``: the peer has closed."""
    peer.settimeout(seconds)
    first = peer.recv(1)
    if not first:
        return None
    peer.settimeout(FRAME_SECONDS)
    (length,) = _LENGTH.unpack(first + exactly(peer, _LENGTH.size - 1))
    if length > MOST:
        raise Malformed(f"a frame of {length} bytes, and {MOST} are the most")
    return exactly(peer, length)


def exactly(peer: socket.socket, length: int) -> bytes:
    content = bytearray()
    while len(content) < length:
        piece = peer.recv(min(length - len(content), 1024 * 1024))
        if not piece:
            raise Malformed("the connection ended within a frame")
        content += piece
    return bytes(content)


@contextmanager
def address_of(store: Path, instance: str) -> Iterator[str]:
    """The address of the socket of an instance, beside the store, while this is open: a Unix path may have 107
    characters, a store's may have more."""
    directory = os.open(beside(store), os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{instance}.express"
    finally:
        os.close(directory)


# the sessions of this process's database

CONNECTIONS: Final = 256
GREETING_SECONDS: Final = 1.0
TURN_SECONDS: Final = 2.0
"""A transaction of another process is over after so long: all others wait for it."""
_PEER: Final = struct.Struct("iII")


class Sharing:
    """The socket of the instance ``name`` beside the store at ``store``."""

    def __init__(self, store: Path, name: str, database: Temporary, events: Events) -> None:
        self._place = beside(store) / f"{name}.express"
        self._database = database
        self._events = events
        self._peers: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._is_open = True
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with address_of(store, name) as address:
                self._place.unlink(missing_ok=True)
                self._listener.bind(address)
                self._place.chmod(0o600)
            self._listener.listen(64)
        except OSError as error:
            self._listener.close()
            raise StoreUnavailable(f"{self._place}: {error.strerror}.") from error
        self._thread = Lasting(
            "wsrm-mq-express", self._accept, lambda error: events.tell("watch.failed", error=error), events
        )
        self._thread.start()

    def close(self) -> None:
        """Cut off all peers, and take no other."""
        self._is_open = False
        self._place.unlink(missing_ok=True)
        with self._lock:
            for one in (self._listener, *self._peers):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def abandon(self) -> None:
        """After a fork the socket is the parent's: close it without ending what is said there."""
        for one in (self._listener, *self._peers):
            one.close()

    def _accept(self) -> None:
        while self._is_open:
            try:
                peer, _address = self._listener.accept()
            except OSError:
                if self._is_open:
                    raise
                return
            _pid, user, _group = _PEER.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
            with self._lock:
                is_taken = user in (os.getuid(), 0) and len(self._peers) < CONNECTIONS
                if is_taken:
                    self._peers.add(peer)
            if is_taken:
                threading.Thread(target=self._serve, args=(peer,), name="wsrm-mq-express-peer", daemon=True).start()
            else:
                self._cut_off(peer, Malformed(f"user {user}, or more than {CONNECTIONS} connections"))
                peer.close()

    def _cut_off(self, peer: socket.socket, error: BaseException) -> None:
        self._events.tell("express.cut_off", error=error)

    def _serve(self, peer: socket.socket) -> None:
        try:
            with closing(peer), closing(self._database.session()) as session:
                peer.settimeout(GREETING_SECONDS)
                if exactly(peer, len(GREETING)) != GREETING:
                    raise Malformed("a greeting that is none")
                peer.sendall(GREETING)
                self._converse(peer, session)
        except (OSError, Malformed) as error:
            if self._is_open:
                self._cut_off(peer, error)
        finally:
            with self._lock:
                self._peers.discard(peer)

    def _converse(self, peer: socket.socket, session: Connection) -> None:
        ends_at = None
        while True:
            left = None if ends_at is None else max(0.001, ends_at - time.monotonic())
            content = receive(peer, left)
            if content is None:
                return
            send(peer, self._answer(session, decoded(content, _REQUEST)))
            if not session.in_transaction:
                ends_at = None
            elif ends_at is None:
                ends_at = time.monotonic() + TURN_SECONDS

    def _answer(self, session: Connection, request: Begin | Run | Give) -> Answer:
        try:
            if isinstance(request, Begin):
                return Answer(number=session.begin(wait=request.wait), in_transaction=True)
            if isinstance(request, Give):
                given = [self._database.next_position() for _ in range(min(request.count, 1_000))]
                return Answer(given, in_transaction=session.in_transaction)
            found = session.execute(request.statement, request.values)
            return Answer(found.fetchall(), found.rowcount, session.in_transaction)
        except Exception as error:
            return Answer(error=str(error), is_busy=isinstance(error, StoreBusy), in_transaction=session.in_transaction)


# the connection to that of another process

ANSWER_SECONDS: Final = 10.0
"""An answer comes within so long, that of one who waits for its turn included."""
_MOST_GIVEN: Final = 64


class RemoteError(Exception):
    """The other process could not run a statement."""


class RemoteConnection(Fleeting):
    """A connection to what the instance ``keeper`` keeps, beside the store at ``store``. Where it was cut off, it
    connects anew for the next transaction. Raises ``KeeperGone`` where the process is gone."""

    Error = Exception

    def __init__(self, store: Path, keeper: str) -> None:
        self._store = store
        self._keeper = keeper
        self._socket: socket.socket | None = None

    def begin(self, *, wait: bool = True) -> int:
        return self._ask(Begin(wait)).number

    def execute(self, statement: str, parameters: Parameters = (), /) -> Rows:
        values = list(parameters) if isinstance(parameters, list | tuple) else dict(parameters)
        answer = self._ask(Run(statement, values))
        return Fetched([tuple(row) for row in answer.rows], answer.number)

    def positions(self) -> Iterator[int]:
        """More are asked for at a time the more there are."""
        for step in count():
            yield from self._ask(Give(min(2**step, _MOST_GIVEN))).rows

    def close(self) -> None:
        opened, self._socket, self.in_transaction = self._socket, None, False
        if opened is not None:
            opened.close()

    def _ask(self, request: Begin | Run | Give) -> Answer:
        try:
            peer = self._connected()
            send(peer, request)
            content = receive(peer, ANSWER_SECONDS)
            if content is None:
                raise Malformed("the connection was closed")
            answer = decoded(content, _ANSWER)
        except (OSError, Malformed) as error:
            self.close()
            raise KeeperGone(f"The process that keeps these express messages does not answer: {error}.") from error
        self.in_transaction = answer.in_transaction
        if answer.error is not None:
            raise StoreBusy(answer.error, "") if answer.is_busy else RemoteError(answer.error)
        return answer

    def _connected(self) -> socket.socket:
        if self._socket is None:
            opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                opened.settimeout(FRAME_SECONDS)
                with address_of(self._store, self._keeper) as address:
                    opened.connect(address)
                opened.sendall(GREETING)
                if exactly(opened, len(GREETING)) != GREETING:
                    raise Malformed("a greeting that is none")
            except BaseException:
                opened.close()
                raise
            self._socket = opened
        return self._socket
