"""A connection of the port to the temporary database of another process: see ``sharing``."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Final

from wsrm_mq.errors import KeeperGone, StoreBusy
from wsrm_mq.store import frames
from wsrm_mq.store.driver import Fetched
from wsrm_mq.store.fleeting import Fleeting
from wsrm_mq.store.frames import FRAME_SECONDS, GREETING, Answer, Begin, Give, Malformed, Run
from wsrm_mq.store.port import Parameters, Rows

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
            frames.send(peer, request)
            content = frames.receive(peer, ANSWER_SECONDS)
            if content is None:
                raise Malformed("the connection was closed")
            answer = frames.answer_of(content)
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
                with frames.address(self._store, self._keeper) as address:
                    opened.connect(address)
                opened.sendall(GREETING)
                if frames.exactly(opened, len(GREETING)) != GREETING:
                    raise Malformed("a greeting that is none")
            except BaseException:
                opened.close()
                raise
            self._socket = opened
        return self._socket
