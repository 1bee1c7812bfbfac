"""A large body that is not in memory."""

from __future__ import annotations

import shutil
import tempfile
from typing import BinaryIO

from wsrm_mq.queue.arrival import Body
from wsrm_mq.store.bodies import open_body
from wsrm_mq.store.store import Store

__all__ = ["StoredBody"]


class StoredBody(Body):
    """A large body in the store, copied to a temporary file when the application reads it: no connection is lent
    while the application runs."""

    __slots__ = ("_message", "_store")

    def __init__(self, store: Store, message: int, size: int) -> None:
        super().__init__(None, None, size)
        self._store = store
        self._message = message

    def open(self) -> BinaryIO:
        file = tempfile.TemporaryFile()  # noqa: SIM115 - the reader closes it
        with self._store.reader() as db, open_body(db, self._message) as body:
            shutil.copyfileobj(body, file, 1024 * 1024)
        file.seek(0)
        return file
