"""An error that stays: told whole when it comes, and in short once a minute while it is the same."""

from __future__ import annotations

import logging
import time
from typing import Final

__all__ = ["Repeated"]

AGAIN_SECONDS: Final = 60.0


class Repeated:
    """Of one thread: what it told last, and when it tells it again."""

    def __init__(self) -> None:
        self._text: str | None = None
        self._again_at = 0.0

    def tell(self, log: logging.Logger, event: str, error: BaseException) -> None:
        text, now = str(error), time.monotonic()
        if text == self._text and now < self._again_at:
            return
        log.error("%s %s", event, text if text != self._text else f"still: {text.partition('. ')[0]}")
        self._text, self._again_at = text, now + AGAIN_SECONDS

    @property
    def is_on(self) -> bool:
        """It has not gone well since."""
        return self._text is not None

    def over(self) -> None:
        """It went well: the same error is news again."""
        self._text = None
