"""The soak, short: each fault at least possible, what is planted found; and a minute in which something dies at every
fifth of a second."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.soak.checker import judge, plant
from tests.soak.faults import Faults
from tests.soak.queues import soak_queues
from tests.soak.routes import overtaken, soak_routes
from tests.soak.run import FRONTS, Soak, soak
from tests.support.programs import ROOT

SEED = 20261121
KILL_EVERY_SECONDS = 0.2
KILLING_SECONDS = 60


pytestmark = pytest.mark.long


@pytest.fixture(scope="module", params=FRONTS)
def short(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Soak:
    return soak(tmp_path_factory.mktemp("soak"), 20, SEED, front=request.param)


@pytest.mark.timeout(400)
@pytest.mark.invariant("I6", "I7", "I12")
def test_twenty_seconds_of_clients_and_faults_lose_repeat_and_swap_nothing(short: Soak) -> None:
    verdict = judge(short.evidence)
    assert (verdict.found, short.trouble) == ((), [])
    assert verdict.acknowledged > 100
    assert short.kills > 0


@pytest.mark.timed
@pytest.mark.timeout(400)
@pytest.mark.invariant("I4", "I6", "I7", "I11")
def test_programs_that_are_killed_beside_a_service_take_each_message_in_order_and_keep_none(tmp_path: Path) -> None:
    done = soak_queues(tmp_path, 20, SEED)
    verdict = judge(done.evidence)
    assert (verdict.found, done.trouble) == ((), [])
    figures = done.faults
    assert figures["killed_programs"] > 1
    assert figures["taken_by_soak"] >= figures["put_to_soak"] > 100  # one that was killed tells nothing of its last put
    assert figures["taken_by_fast"] == figures["taken_by_slow"] >= figures["put_to_soak/event"] > 100


@pytest.mark.timeout(600)
@pytest.mark.invariant("I13", "I14")
def test_nodes_that_are_killed_and_one_that_is_restored_hand_each_message_on_once_and_in_order(tmp_path: Path) -> None:
    done = soak_routes(tmp_path, 20, SEED)
    verdict = judge(done.evidence)
    assert (verdict.found, done.trouble) == ((), [])
    assert verdict.acknowledged > 300
    assert done.kills > 0
    for mistake in ("loss", "repeat", "disorder"):
        assert not judge(plant(mistake, done.evidence)).is_clean


def test_what_has_overtaken_another_one_on_the_same_way_through_the_ring_is_found() -> None:
    assert overtaken("a to c", [(1, "a b"), (3, "a e d"), (2, "a b"), (4, "a e d")]) == []
    assert overtaken("a to c", [(2, "a b"), (3, "a e d"), (1, "a b")]) == ["a to c: disordered: 1 came behind 2 by a b"]


@pytest.mark.timeout(400)
def test_a_soak_without_the_ladder_that_it_asked_for_is_not_clean(tmp_path: Path) -> None:
    """What is blocked at its first failure would be resumed or skipped by the operator, and nothing lost."""
    done = soak(tmp_path, 8, SEED, disturb=blocks, front="serve", retry=())
    assert any("is blocked after 1 of 3 tries" in problem for problem in done.trouble)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("mistake", ["loss", "repeat", "disorder", "orphan"])
def test_a_mistake_planted_in_what_it_saw_is_found(short: Soak, mistake: str) -> None:
    assert not judge(plant(mistake, short.evidence)).is_clean


@pytest.mark.timeout(300)
def test_the_command_fails_for_a_planted_mistake_and_says_what_it_is() -> None:
    command = ["make", "--no-print-directory", "soak", "DURATION=6", "SEED=4", "PLANT=loss"]
    command += [f"VENV={sys.prefix}", "ARGS="]  # those of a make that runs the tests are not meant
    command += ["-o", f"{sys.prefix}/.installed"]  # nor is an installation: of a copy it would be another's
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode != 0
    assert len(done.stdout.splitlines()) > 2, done.stderr
    *_, found, last = done.stdout.splitlines()
    assert "was acknowledged and has no effect" in found
    assert last.endswith("1 lost, 0 repeated, 0 disordered, 0 orphaned")


def blocks(faults: Faults, end: float) -> None:
    """No other harm than the failures that clients ask for."""
    while time.monotonic() < end:
        faults.repair()
        time.sleep(0.2)


def kills(faults: Faults, end: float) -> None:
    while time.monotonic() < end:
        faults.kill_any()
        time.sleep(KILL_EVERY_SECONDS)


@pytest.mark.timeout(600)
@pytest.mark.scenario("Q-108")
def test_a_minute_in_which_some_process_dies_every_200_ms_loses_repeats_and_swaps_nothing(tmp_path: Path) -> None:
    done = soak(tmp_path, KILLING_SECONDS, SEED, disturb=kills, preload=True)
    verdict = judge(done.evidence)
    assert (verdict.found, done.trouble) == ((), [])
    assert done.kills > KILLING_SECONDS / KILL_EVERY_SECONDS / 3, "the rest found no live process"
    assert verdict.acknowledged > done.kills, "under load"
