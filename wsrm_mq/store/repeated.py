"""An error that stays: told whole when it comes, and in short once a minute while it is the same."""

from __future__ import annotations

import time
from typing import Final

from wsrm_mq.events.telling import Events

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
