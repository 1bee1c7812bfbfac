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
from tests.soak.run import Soak, soak
from tests.support.orders_server import ROOT

SEED = 20261121
KILL_EVERY_SECONDS = 0.2


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Soak:
    return soak(tmp_path_factory.mktemp("soak"), 20, SEED)


@pytest.mark.timeout(400)
@pytest.mark.xdist_group("soak")
@pytest.mark.invariant("I6", "I7", "I12")
def test_twenty_seconds_of_clients_and_faults_lose_repeat_and_swap_nothing(short: Soak) -> None:
    verdict = judge(short.evidence)
    assert (verdict.found, short.trouble) == ((), [])
    assert verdict.acknowledged > 100
    assert short.kills > 0


@pytest.mark.timeout(400)
@pytest.mark.xdist_group("soak")
@pytest.mark.parametrize("mistake", ["loss", "repeat", "disorder"])
def test_a_mistake_planted_in_what_it_saw_is_found(short: Soak, mistake: str) -> None:
    assert not judge(plant(mistake, short.evidence)).is_clean


@pytest.mark.timeout(300)
def test_the_command_fails_for_a_planted_mistake_and_says_what_it_is() -> None:
    command = ["make", "--no-print-directory", "soak", "DURATION=3", "SEED=4", "PLANT=loss"]
    command += [f"VENV={sys.prefix}", "ARGS="]  # those of a make that runs the tests are not meant
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode != 0
    assert len(done.stdout.splitlines()) > 2, done.stderr
    *_, found, last = done.stdout.splitlines()
    assert "was acknowledged and has no effect" in found
    assert last.endswith("1 lost, 0 repeated, 0 disordered")


def kills(faults: Faults, end: float) -> None:
    while time.monotonic() < end:
        faults.kill_any()
        time.sleep(KILL_EVERY_SECONDS)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.scenario("Q-108")
def test_a_minute_in_which_some_process_dies_every_200_ms_loses_repeats_and_swaps_nothing(tmp_path: Path) -> None:
    done = soak(tmp_path, 60, SEED, disturb=kills, preload=True)
    verdict = judge(done.evidence)
    assert (verdict.found, done.trouble) == ((), [])
    assert done.kills > 50
