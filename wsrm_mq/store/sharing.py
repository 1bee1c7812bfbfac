"""Sessions of this process's temporary database for other processes of the same user, through a socket beside the
store. Each connection has a thread and a session.

A peer is believed to be a program of this package only when it has greeted. One that says what is not understood, or
keeps a transaction open for too long, is told of in an event and cut off: what it had begun is rolled back.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from wsrm_mq.errors import StoreBusy, StoreUnavailable
from wsrm_mq.events.telling import Events
from wsrm_mq.store import frames
from wsrm_mq.store.driver import Temporary, beside
from wsrm_mq.store.frames import GREETING, Answer, Begin, Give, Malformed, Run
from wsrm_mq.store.lasting import Lasting
from wsrm_mq.store.port import Connection

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
            with frames.address(store, name) as address:
                self._place.unlink(missing_ok=True)
                self._listener.bind(address)
                self._place.chmod(0o600)
            self._listener.listen(64)
        except OSError as error:
            self._listener.close()
            raise StoreUnavailable(f"{self._place}: {error.strerror}.") from error
        self._thread = Lasting("wsrm-mq-express", self._accept, self._broke, events)
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

    def _broke(self, error: BaseException) -> None:
        self._events.tell("watch.failed", error=error)

    def _cut_off(self, peer: socket.socket, error: BaseException) -> None:
        self._events.tell("express.cut_off", error=error)

    def _serve(self, peer: socket.socket) -> None:
        try:
            with closing(peer), closing(self._database.session()) as session:
                peer.settimeout(GREETING_SECONDS)
                if frames.exactly(peer, len(GREETING)) != GREETING:
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
            content = frames.receive(peer, left)
            if content is None:
                return
            frames.send(peer, self._answer(session, frames.request_of(content)))
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
