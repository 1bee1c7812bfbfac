"""How far a clock is believed that jumps, with a clock beside it that nobody sets."""

from __future__ import annotations

from pathlib import Path

from wsrm_mq.store.clock import GRACE, JUMP, Believed

HOUR = 3_600_000
START = 1_700_000_000_000


class Times:
    """A wall clock that is set, and the time that really passes."""

    def __init__(self) -> None:
        self.wall = START
        self.passed = 1_000.0
        self.believed = Believed(lambda: self.passed)

    def go_on(self, seconds: float) -> int:
        self.wall += round(seconds * 1000)
        self.passed += seconds
        return self.by()

    def by(self) -> int:
        return self.believed.by(self.wall) - START


def test_a_clock_that_goes_on_is_believed() -> None:
    times = Times()
    assert [times.by(), times.go_on(60), times.go_on(7 * 86_400)] == [0, 60_000, 604_860_000]
    assert (list(times.believed.jumps), times.believed.ahead) == ([], 0)


def test_a_jump_is_told_once_and_believed_after_a_grace() -> None:
    times = Times()
    times.by()
    times.wall += 40 * 24 * HOUR
    assert [times.by(), times.go_on(1), times.go_on(GRACE - 2)] == [0, 1_000, round((GRACE - 1) * 1000)]
    assert times.believed.ahead == 40 * 24 * HOUR
    assert times.go_on(1) == 40 * 24 * HOUR + round(GRACE * 1000)
    assert (list(times.believed.jumps), times.believed.ahead) == ([40 * 24 * HOUR], 0)


def test_a_jump_that_comes_back_has_changed_nothing() -> None:
    times = Times()
    times.by()
    times.wall += 40 * 24 * HOUR
    times.go_on(30)
    times.wall -= 40 * 24 * HOUR
    assert times.go_on(30) == 60_000
    assert times.believed.ahead == 0
    times.wall += HOUR
    assert times.by() == 60_000, "another one has its own grace"
    assert list(times.believed.jumps) == [40 * 24 * HOUR, HOUR]


def test_a_clock_that_goes_back_is_believed_at_once_and_told() -> None:
    times = Times()
    times.by()
    times.wall -= HOUR
    assert times.by() == -HOUR
    assert list(times.believed.jumps) == [-HOUR]


def test_what_is_slewed_is_no_jump() -> None:
    times = Times()
    times.by()
    times.wall += JUMP
    assert times.by() == JUMP
    assert list(times.believed.jumps) == []


def test_at_a_start_the_last_time_that_the_store_has_is_what_is_known() -> None:
    times = Times()
    times.believed.know(START - 40 * 24 * HOUR, times.wall)
    assert times.by() == -40 * 24 * HOUR
    assert times.go_on(GRACE) == round(GRACE * 1000)
    times.believed.know(START + 40 * 24 * HOUR, times.wall)
    assert times.by() == round(GRACE * 1000), "a time that it has from a clock that ran ahead is none"


def test_what_was_believed_last_is_known_to_the_next_process_whatever_the_store_has_by_then(tmp_path: Path) -> None:
    times, file = Times(), tmp_path / "clock"
    times.believed = Believed(lambda: times.passed, file)
    times.believed.know(START, times.wall)
    times.wall += 40 * 24 * HOUR
    times.go_on(60)
    times.believed.note(times.wall)
    times.believed = Believed(lambda: times.passed, file)
    times.believed.know(times.wall, times.wall)
    assert times.by() == 60_000
    assert times.go_on(GRACE) == 40 * 24 * HOUR + round((60 + GRACE) * 1000), "each has a grace of its own"
    file.write_text("no time")
    times.believed = Believed(lambda: times.passed, file)
    times.believed.know(None, times.wall)
    assert times.by() == times.wall - START
