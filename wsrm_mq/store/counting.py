"""Counts of what happens, in the store: right whichever process is asked, whatever retention takes, whoever ends.

A verb counts with ``Transaction.count``, which is a number in memory. What a committed transaction has counted waits
in its process, and is written with a later transaction: at most ten times a second while there are any, by the watch
within a second when there are none. What has a row in the ledger is rare, and is written with that very row. So a
``kill -9`` loses at most the last second of what is frequent, and nothing else; no count ever falls.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from wsrm_mq.store.tables import counter
from wsrm_mq.store.together import Inserts

__all__ = ["COUNTERS", "Key", "Tally"]

Key = tuple[str, int, str]
"""What is counted, the key of its queue (0 where there is none), and a label."""

EVERY_SECONDS: Final = 0.1

COUNTERS: Final = Inserts(
    counter,
    conflict=lambda plain: plain.on_conflict_do_update(
        index_elements=["name", "queue", "label"], set_={"value": counter.c.value + plain.excluded.value}
    ),
)


class Tally:
    """What one process has committed and not yet counted in the store. Its writer alone uses it."""

    def __init__(self) -> None:
        self._waiting: dict[Key, int] = {}
        self._written_at = float("-inf")

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def is_due(self) -> bool:
        return time.monotonic() - self._written_at >= EVERY_SECONDS

    def with_waiting(self, counts: Mapping[Key, int]) -> list[tuple[str, int, str, int]]:
        """Rows for ``COUNTERS``: what waits, and ``counts``."""
        return [(*key, value) for key, value in _sum(self._waiting, counts).items()]

    def wait(self, counts: Mapping[Key, int]) -> None:
        """These were committed, and not written."""
        if counts:
            self._waiting = _sum(self._waiting, counts)

    def written(self) -> None:
        self._waiting = {}
        self._written_at = time.monotonic()


def _sum(waiting: dict[Key, int], counts: Mapping[Key, int]) -> dict[Key, int]:
    total = dict(waiting)
    for key, value in counts.items():
        total[key] = total.get(key, 0) + value
    return total
