"""What the bench of replays makes of the calls of an application."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.replay_killed import read


@pytest.mark.parametrize(
    ("calls", "found"),
    [
        ("a1 a2 b1 a3 b2", (5, 0, 0)),
        ("a1 a2 a3 a2! a3! a4", (4, 2, 0)),
        ("a1 a2 a2 a3", (3, 1, 1)),
        ("a1 a3", (2, 0, 1)),
        ("a1 a2 a1! a2! a1!", (2, 1, 1)),
        ("a1 b2", (2, 0, 1)),
    ],
)
def test_a_gap_a_third_call_and_an_unmarked_second_are_wrong(
    tmp_path: Path, calls: str, found: tuple[int, int, int]
) -> None:
    """``a2!``: number 2 of the sequence a, told that it comes again."""
    written = [f"{call[0]} {call[1]:0>9} {call.endswith('!'):d}\n" for call in calls.split()]
    (tmp_path / "calls").write_text("".join(written))
    assert tuple(read(tmp_path / "calls")) == found
