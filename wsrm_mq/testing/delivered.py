"""The wait until a service has taken messages: an acknowledgement says only that they are stored."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from typing import Final

_PAUSE_SECONDS: Final = 0.02


class Undelivered(Exception):
    """A message was not delivered in time, or never will be; says why, as ``wsrm-mq sequence explain`` does."""


def wait_until_delivered(
    store: str | os.PathLike[str], sequence: str, numbers: Collection[int], *, seconds: float = 10
) -> None:
    """Wait until the service has taken these numbers of a sequence. Raises ``Undelivered`` after ``seconds``, and at
    once where one was put aside, was answered with a fault, or stops its sequence for good."""
    from wsrm_mq.store.store import store_path

    path, end = store_path(store), time.monotonic() + seconds
    while not _are_delivered(path, sequence, set(numbers), is_late=time.monotonic() > end):
        time.sleep(_PAUSE_SECONDS)


def _are_delivered(path: Path, identifier: str, wanted: set[int], *, is_late: bool) -> bool:
    from wsrm_mq.store.driver import connect_looker, snapshot
    from wsrm_mq.views.query import parse
    from wsrm_mq.views.reading import messages, sequence
    from wsrm_mq.views.sentences import explanation
    from wsrm_mq.views.verdict import Cause, judge

    with closing(connect_looker(path)) as db, snapshot(db):
        found = {one.number: one for one in messages(db, parse(f"seq:{identifier}")) if one.number in wanted}
        missing = [number for number in sorted(wanted) if number not in found or found[number].state != "delivered"]
        faulted = [number for number, one in found.items() if one.state == "delivered" and one.reason is not None]
        if not missing and not faulted:
            return True
        verdict = judge(db, sequence(db, identifier), time.time_ns() // 1_000_000)
    is_over = any(one.state != "delivered" and one.settled_at is not None for one in found.values())
    if is_late or is_over or faulted or verdict.cause is Cause.BLOCKED:
        told = [
            f"number {number}: {one.state}, {one.reason}, {one.last_error}"
            if (one := found.get(number))
            else f"number {number} never came"
            for number in (*missing, *faulted)
        ]
        raise Undelivered("\n".join((explanation(verdict).sentence, *told)))
    return False
