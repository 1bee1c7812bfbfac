"""What the simulator finds, and that it would find it."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.simulator.faults import ROOT, all_faults
from tests.simulator.run import Schedule, run_many, run_one, shortest, temporary_home, told
from tests.simulator.world import STEPS, Place, World


@pytest.mark.invariant("I3", "I4", "I5", "I6", "I7")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(1, 2_000, 250))
def test_whatever_the_order_of_steps_what_is_acknowledged_is_delivered_once_and_in_order(first: int) -> None:
    counts, failure = run_many(range(first, first + 250))
    assert failure is None, told(failure)
    assert counts["steps"] >= 40 * counts["schedules"]
    assert set(STEPS) <= set(counts), "every kind of step has its share"


@pytest.mark.timeout(300)
def test_a_schedule_is_the_same_each_time_it_is_run() -> None:
    def lines(number: int) -> list[str]:
        schedule = Schedule.numbered(number)
        with temporary_home() as home:
            world = World(Place(Path(home)), schedule.start)
            found: list[str] = []
            world.tell = found.append
            world.run(schedule.steps)
            facts = world.place.reader.execute("SELECT sequence, number, outcome, deliveries FROM entry ORDER BY id")
            return [*found, *map(str, facts.fetchall())]

    assert [lines(number) for number in range(10)] == [lines(number) for number in range(10)]


def test_a_schedule_that_fails_is_cut_down_to_the_steps_that_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STEPS, "sweeps", lambda _world, _draw: 1 / 0)
    with temporary_home() as home:
        place, number = Place(Path(home)), 1
        while run_one(place, Schedule.numbered(number), Counter()) is None:
            number += 1
        assert len(shortest(place, Schedule.numbered(number)).steps) == 1


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["the cursor moves twice", "the cache outlives the commit of another process"])
def test_a_planted_mistake_is_found(name: str) -> None:
    assert name in all_faults()
    command = [sys.executable, "-m", "tests.simulator", "--plant", name, "--schedules", "250"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 1, found.stdout + found.stderr
    assert "its shortest form:" in found.stdout


def test_every_planted_mistake_stands_in_the_code_once() -> None:
    for fault in all_faults().values():
        compile(fault.mutated(), fault.file, "exec")
