"""What the simulator finds, and that it would find it."""

from __future__ import annotations

import random

import pytest

from tests.simulator.faults import all_faults
from tests.simulator.run import Schedule, find_each, run_all, shortest
from tests.simulator.world import STEPS

SHARES = (
    "crashes before a commit",
    "crashes after a commit",
    "crashes between a commit",
    "takeovers of sequences",
    "sequences expired",
    "sequences terminated",
    "messages lost",
    "messages repeated",
    "answers lost",
    "wake-ups lost",
    "messages pulled",
    "subscriptions begun",
    "subscriptions opened again",
    "subscriptions ended",
    "transactions done",
    "transactions undone",
    "messages taken by subscribers",
    "crashes of a source",
    "requests lost",
    "requests late",
    "requests repeated",
    "requests done",
)
SOON = ("the cursor moves twice", "the cache outlives the commit of another process", "a wake-up of the writer is lost")
"""Mistakes that the first few hundred schedules find."""


@pytest.mark.invariant("I3", "I9", "I10", "I13", "I16")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(1, 2_001, 500))
def test_whatever_the_order_of_steps_what_is_acknowledged_is_delivered_once_and_in_order(first: int) -> None:
    counts, _checksum, _seconds, failure = run_all(range(first, first + 500), workers=1)
    assert failure is None, failure and failure.told
    assert counts["schedules"] == 500
    assert counts["steps"] >= 40 * counts["schedules"]
    assert [kind for kind in (*STEPS, *SHARES) if not counts[kind]] == []


@pytest.mark.timeout(300)
def test_a_schedule_is_the_same_each_time_it_is_run() -> None:
    once, again, other = (run_all(range(first, first + 20), workers=1) for first in (1, 1, 21))
    assert once[:2] == again[:2]
    assert once.checksum != other.checksum


def test_a_schedule_that_fails_is_cut_down_to_the_steps_that_it_takes() -> None:
    needed = random.Random(1).sample(range(60), 5)
    found = shortest(Schedule(1, tuple(range(60))), lambda fewer: set(needed) <= set(fewer.steps))
    assert sorted(found.steps) == sorted(needed)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SOON)
def test_a_planted_mistake_is_found_and_told_as_a_schedule_that_can_be_replayed(name: str) -> None:
    failure = run_all(range(1, 501), workers=1, fault=name).failure
    assert failure is not None
    assert len(failure.schedule.steps) < 40
    assert f"its shortest form has {len(failure.schedule.steps)} steps:" in failure.told
    assert f"make simulate SEED={failure.number} SCHEDULES=1" in failure.told
    again = run_all(range(failure.number, failure.number + 1), workers=1, fault=name).failure
    assert again is not None
    assert again.schedule == failure.schedule


@pytest.mark.timeout(300)
def test_a_planted_mistake_that_is_not_found_is_told_and_fails_the_search(capsys: pytest.CaptureFixture[str]) -> None:
    found, missed = "the cursor moves twice", "a message in memory outlives the claim"
    assert find_each([found], range(1, 11), workers=1) == 0
    assert find_each([found, missed], range(1, 11), workers=2) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [found, found, "NOT FOUND in 10 schedules"]


def test_every_planted_mistake_stands_in_the_code_once() -> None:
    assert len(all_faults()) >= 46
    for fault in all_faults().values():
        compile(fault.mutated(), fault.file, "exec")
