"""The other instances of a store, as one of them sees them over time."""

from __future__ import annotations

import time
from typing import Final

from wsrm_mq.store.port import Instances

MISSING_SECONDS: Final = 5.0
"""So long a lock file has to be missing before that is taken for a death: several polls of a watch."""


class Neighbours:
    """Remembers since when it is not known whether one lives."""

    def __init__(self, instances: Instances) -> None:
        self._instances = instances
        self._missing_since: dict[str, float] = {}

    def is_dead(self, name: str) -> bool:
        lives = self._instances.lives(name)
        if lives is not None:
            self._missing_since.pop(name, None)
            return not lives
        since = self._missing_since.setdefault(name, time.monotonic())
        return time.monotonic() - since > MISSING_SECONDS
