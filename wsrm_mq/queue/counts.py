"""What is counted of messages: the names in the table ``counter``, and what their labels are.

A verb counts; ``store.counting`` says when that is in the store.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from wsrm_mq.store import entries
from wsrm_mq.store.records import Lane
from wsrm_mq.store.transaction import Transaction

RECEIVED: Final = ("accepted", "held", "duplicate", "discarded", "no_room", "refused")
"""What is counted of a message with a Sequence header, by what became of it: deliverable at once, held, known already,
dropped as its sequence promises, sent away with 503, answered with a fault. The label is the version of RM."""

BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the durations that are counted together, in seconds."""

_TOOK: Final = tuple(f"{bound:g}" for bound in (*BOUNDS, float("inf")))


def delivered(tx: Transaction, queue: int, seconds: float | None, is_replay: bool) -> None:
    """A message was delivered; its operation took ``seconds``, ``None``: it is called only then. The
    label of the count is the bucket of the duration, which saves a number of its own."""
    if seconds is None:
        tx.counts["delivered", queue, ""] += 1
    else:
        tx.counts["delivered", queue, _TOOK[bisect_left(BOUNDS, seconds)]] += 1
        tx.counts["took_us", queue, ""] += int(seconds * 1e6)
    if is_replay:
        tx.counts["replayed", queue, ""] += 1


def failed(tx: Transaction, queue: int, kind: str, seconds: float | None = None) -> None:
    """An attempt failed with this ``kind`` of failure (``queue.diagnosis``); it took so many ``seconds``, where it
    ran."""
    tx.counts["failed", queue, kind] += 1
    if seconds is not None:
        took(tx, queue, seconds)


def took(tx: Transaction, queue: int, seconds: float) -> None:
    """An operation ran so long, which is not counted with a delivery: its bucket, and the sum in microseconds."""
    tx.counts["took", queue, _TOOK[bisect_left(BOUNDS, seconds)]] += 1
    tx.counts["took_us", queue, ""] += int(seconds * 1e6)


def count_unsettled_of(tx: Transaction, lane: Lane, position: int, more: int) -> None:
    """The message at ``position`` is settled (-1), or not any more (1): a declared queue counts those that are not."""
    if lane.is_consumed:
        (size,) = tx.execute(entries.SIZE, {"key": position}).fetchone()
        tx.add_unsettled(lane.queue, more, more * size)
