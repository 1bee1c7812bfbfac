"""The other instances of a store, as one of them sees them over time."""

from __future__ import annotations

import time
from typing import Final

from wsrm_mq.store.port import Instances

MAY_BE_READY: Final = "queue"
"""The word of a doorbell for consumers: something may be ready for them."""
MISSING_SECONDS: Final = 5.0
"""A lock file that is missing for so long is taken for a death: several polls of a watch."""


class Neighbours:
    """The other instances. For each whose lock file is missing it remembers since when."""

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
