"""The bench of the RM Source: what its destination counts and loses, and one small run of each side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.source import bare, fixed, needless, ours, peer, sent


@pytest.mark.parametrize("side", [ours, bare])
def test_each_side_of_a_window_is_measured(tmp_path: Path, side: object) -> None:
    with peer() as there:
        assert side(there, tmp_path / "outbox.db", 2, 0.1) > 0  # type: ignore[operator]
        assert json.loads(there.asked("GET", "/"))["numbers"] > 0


@pytest.mark.parametrize(("side", "loss"), [(sent, 0.3), (fixed, 0.0)])
def test_over_a_line_that_loses_messages_all_arrive(tmp_path: Path, side: object, loss: float) -> None:
    with peer("--loss", loss) as there:
        assert side(there, tmp_path / "outbox.db", 6) > 0  # type: ignore[operator]
        assert json.loads(there.asked("GET", "/"))["numbers"] == 6


def test_a_host_that_loses_nothing_gets_nothing_again(tmp_path: Path) -> None:
    with peer("--rtt", 50) as there:
        assert needless(there, tmp_path / "outbox.db", 3) == 0
