"""A clock that a test sets wrong while the server runs."""

from __future__ import annotations

from pathlib import Path

from wsrm_mq.store.clock import Clock, wall_clock


def shifted_clock(file: Path | None) -> Clock:
    """The time, shifted by as many seconds as ``file`` says while it is there."""
    if file is None:
        return wall_clock

    def clock() -> int:
        try:
            return wall_clock() + round(float(file.read_text()) * 1000)
        except FileNotFoundError:
            return wall_clock()

    return clock
