"""Notices of requests: a program is told of each when it is stored, and when it is acknowledged or given up.

What has become of them is read from the store, a few times a second, so whatever process has sent them, and however
they ended, each is told of once. One thread tells, and holds up nothing.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import islice
from typing import Final, NamedTuple

from wsrm_mq.events.telling import Events
from wsrm_mq.store import calls
from wsrm_mq.store.lasting import Lasting, Repeated
from wsrm_mq.store.port import Database

LOOK_SECONDS: Final = 0.2
_MOST: Final = 2_000
"""The most requests that are looked at together: where many wait, they take turns."""


class Notice(NamedTuple):
    what: str
    """``stored``, ``acknowledged`` (or replied to), or ``given_up``."""
    message_id: str
    reason: str | None = None
    """Why it is given up."""


OnNotice = Callable[[Notice], None]


class Notices:
    """``reader`` opens the store to be read. They are told in the process that made this."""

    def __init__(
        self, on_notice: OnNotice, reader: Callable[[], AbstractContextManager[Database]], events: Events
    ) -> None:
        self._on_notice = on_notice
        self._reader = reader
        self._pid = os.getpid()
        self._events = events
        self._stored: deque[tuple[int, str]] = deque()
        with reader() as db:
            self._open: dict[int, str] = dict(db.execute(calls.WAIT).fetchall())
        """Position → MessageID; those that were looked at last are at the end."""
        self._is_news = threading.Event()
        self._is_stopping = self._is_over = False
        self._trouble = Repeated()
        self._thread = Lasting("wsrm-mq-notices", self._run, self._broke, events)
        self._thread.start()

    def stored(self, position: int, message_id: str) -> None:
        if os.getpid() == self._pid:
            self._stored.append((position, message_id))
            self._is_news.set()

    def stop(self, timeout: float) -> None:
        """Tell what there is to tell now, and no more."""
        self._is_stopping = True
        self._is_news.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        while not self._is_over:
            looks_at = time.monotonic() + LOOK_SECONDS
            self._is_over = self._is_stopping
            self._is_news.clear()
            while self._stored:
                position, message_id = self._stored.popleft()
                self._open[position] = message_id
                self._tell(Notice("stored", message_id))
            for position, outcome, reason in self._outcomes():
                what = "acknowledged" if outcome == "delivered" else "given_up"
                self._tell(Notice(what, self._open.pop(position), None if outcome == "delivered" else reason))
            self._trouble.over()
            while not (self._is_stopping or self._stored) and (left := looks_at - time.monotonic()) > 0:
                self._is_news.wait(left)

    def _outcomes(self) -> list[tuple[int, str, str | None]]:
        """Position, outcome and reason of those that do not wait any more, of some."""
        positions = list(islice(self._open, _MOST))
        if not positions:
            return []
        for position in positions:
            self._open[position] = self._open.pop(position)
        with self._reader() as db:
            return db.execute(calls.OUTCOMES, {"keys": json.dumps(positions)}).fetchall()

    def _tell(self, notice: Notice) -> None:
        try:
            self._on_notice(notice)
        except Exception as error:
            self._events.tell("on_event.failed", event=notice.what, trouble=error)

    def _broke(self, error: BaseException) -> None:
        self._trouble.tell(self._events, "watch.store_error", error)
        self._is_news.wait(LOOK_SECONDS)
