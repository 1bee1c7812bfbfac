"""The part that all connections to temporary databases share, be that of this process or of another one."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import BinaryIO, Final

from wsrm_mq.store.port import Parameters, Rows

_WRITE_BODY: Final = "UPDATE message SET body = ? WHERE id = ?"
_BODY: Final = "SELECT body FROM message WHERE id = ?"


class Fleeting:
    """A connection of the port to what is gone with its process: nothing of it is synced, and one session at a time
    has the whole database."""

    in_transaction = False

    def execute(self, statement: str, parameters: Parameters = (), /) -> Rows:
        raise NotImplementedError("what runs a statement is the class of each")

    def for_writing(self) -> None:
        """It writes in transactions, and nowhere else."""

    def sync_commits(self, wanted: bool) -> None:
        """No commit is synced."""

    def reserve_positions(self, wanted: int) -> range:
        raise NotImplementedError("positions of express messages are reserved in the store")

    def lock_lanes(self, keys: Iterable[int]) -> None:
        """Nothing is to be done: the session that writes has the whole database."""

    def write_body(self, message: int, size: int, body: BinaryIO) -> None:
        self.execute(_WRITE_BODY, (body.read(size), message))

    def open_body(self, message: int) -> BinaryIO:
        return io.BytesIO(self.execute(_BODY, (message,)).fetchone()[0])

    def checkpoint(self) -> None:
        """There is no log."""
