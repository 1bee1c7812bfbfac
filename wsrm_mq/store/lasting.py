"""A thread that lasts: an error thrown into it is told, and its work begins anew.

One that could not be started, or has ended all the same, is missing: its users look after it, which starts it. An error
that stays is told whole when it comes, and in short once a minute while it is the same (``Repeated``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from wsrm_mq.events.telling import Events

_PAUSE_SECONDS: Final = 0.05
AGAIN_SECONDS: Final = 60.0


class Repeated:
    """The trouble that one thread told of last, and the time at which it tells of it again."""

    def __init__(self) -> None:
        self.is_on = False
        """The error that was told last still stays."""
        self._text: str | None = None
        self._again_at = 0.0

    def tell(self, events: Events, event: str, error: BaseException) -> None:
        """Tell ``event``, whose field is ``error``, unless that was told less than a minute ago."""
        text, now = str(error), time.monotonic()
        if text == self._text and now < self._again_at:
            return
        events.tell(event, error=text if text != self._text else f"still: {text.partition('. ')[0]}")
        self.is_on, self._text, self._again_at = True, text, now + AGAIN_SECONDS

    def over(self) -> None:
        """The trouble is over: the same error is news again."""
        self.is_on, self._text = False, None


class Lasting:
    """Runs ``work`` until that returns. ``broke`` is told, in the thread, of an error that came out of it, and raises
    nothing."""

    def __init__(
        self, name: str, work: Callable[[], None], broke: Callable[[BaseException], None], events: Events
    ) -> None:
        self._name = name
        self._work = work
        self._broke = broke
        self._events = events
        self._trouble = Repeated()
        self._thread: threading.Thread | None = None
        self.is_missing = False
        """It should run, and does not."""

    @property
    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Raises nothing: where no thread can be started it is missing."""
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self.is_missing = False
        try:
            self._thread.start()
        except RuntimeError as error:
            self._thread, self.is_missing = None, True
            self._trouble.tell(self._events, "thread.missing", RuntimeError(f"{self._name}: {error}"))
        else:
            self._trouble.over()

    def look_after(self) -> None:
        """Start it again where it is missing. Cheap to ask for."""
        if self.is_missing:
            self.start()

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end, which it was told to, ``timeout`` seconds at most; does nothing in the thread itself."""
        thread, self._thread, self.is_missing = self._thread, None, False
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def _run(self) -> None:
        has_ended = False
        try:
            while not has_ended:
                try:
                    self._work()
                    has_ended = True
                except BaseException as error:
                    self._broke(error)
                    time.sleep(_PAUSE_SECONDS)
        finally:
            self.is_missing = not has_ended
