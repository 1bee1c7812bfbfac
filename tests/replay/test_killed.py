"""A run is killed half-way, and run again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.replay.build import House, read
from tests.support.in_process import until
from wsrm_mq.queue.ownership import RUN_AHEAD
from wsrm_mq.store.applications import served
from wsrm_mq.store.invariants import all_findings
from wsrm_mq.store.sqlite.connection import connect_reader
from wsrm_mq.views.rows import outcomes

APPLICATION = """
import os

def app(environ, start_response):
    line = f"{environ['wsrm.sequence_id']} {environ['wsrm.message_number']} {environ['wsrm.redelivery']}\\n"
    os.write(CALLS, line.encode())
    start_response("202 Accepted", [("Content-Length", "0")])
    return []

CALLS = os.open("calls", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
"""


def wsrm(directory: Path, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "wsrm_mq", *arguments, "--store", "store.db"]
    return subprocess.Popen(command, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


SEQUENCES, EACH = 4, 120


def planned(house: House, target: str) -> Path:
    """A plan of all, for ``killed_app``."""
    for _ in range(SEQUENCES):
        house.sequence(*range(1, EACH + 1))
    (house.directory / "killed_app.py").write_text(APPLICATION)
    return house.plan("queue:/orders", target=target, as_new=True)


def wait_for_calls(house: House, calls: int) -> None:
    file = house.directory / "calls"
    assert until(lambda: file.exists() and file.read_bytes().count(b"\n") > calls, 30)


def killed(process: subprocess.Popen[bytes]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()


def ends_well(process: subprocess.Popen[bytes]) -> None:
    _out, said = process.communicate(timeout=60)
    assert process.returncode == 0, said


def judged(house: House, file: Path) -> None:
    """Every message was called, in order; twice at most those ahead of the last settlement that was committed, and they
    are marked."""
    called: Counter[tuple[str, str]] = Counter()
    last: dict[str, int] = {}
    for line in (house.directory / "calls").read_text().splitlines():
        identifier, number, redelivery = line.split()
        assert redelivery == "True" or not called[identifier, number]
        assert int(number) <= last.get(identifier, 0) + 1
        called[identifier, number] += 1
        last[identifier] = int(number)
    assert len(called) == SEQUENCES * EACH
    assert max(called.values()) <= 2
    assert sum(count == 2 for count in called.values()) <= SEQUENCES * (RUN_AHEAD + 1)
    with connect_reader(house.path) as db:
        assert outcomes(db, read(file)[0].id) == {"delivered": SEQUENCES * EACH}
        assert list(all_findings(db)) == []


def test_a_run_that_is_killed_goes_on_where_it_was(house: House) -> None:
    file = planned(house, "killed_app:app")
    run = wsrm(house.directory, "replay", "run", str(file), "--yes")
    wait_for_calls(house, 80)
    killed(run)
    assert house.state_of(file) == "running"
    ends_well(wsrm(house.directory, "replay", "run", str(file), "--yes"))
    judged(house, file)


@pytest.mark.parametrize("is_the_service", [False, True], ids=["the run", "the service"])
def test_the_run_or_the_service_that_delivers_is_killed(house: House, is_the_service: bool) -> None:
    file = planned(house, "app")
    house.close()
    service = wsrm(house.directory, "serve", "killed_app:app", "--port", "0", "--log-level", "error")
    try:
        with connect_reader(house.path) as db:
            assert until(lambda: bool(served(db)), 30)
        run = wsrm(house.directory, "replay", "run", str(file), "--yes")
        wait_for_calls(house, 80)
        if is_the_service:
            killed(service)
            service = wsrm(house.directory, "serve", "killed_app:app", "--port", "0", "--log-level", "error")
            _out, said = run.communicate(timeout=60)
            assert run.returncode == 0 or b"Start it, and run the plan again" in said, said  # it was long in starting
            with connect_reader(house.path) as db:
                assert until(lambda: any(not serving.is_run for serving in served(db)), 30)
        else:
            killed(run)
        if run.returncode != 0:
            run = wsrm(house.directory, "replay", "run", str(file), "--yes")
            ends_well(run)
        judged(house, file)
    finally:
        killed(service)


def test_what_a_killed_run_has_left_goes_to_no_other_target_and_can_be_cancelled(house: House) -> None:
    """Also where no service lives that would free what the killed one ran."""
    directory, each = house.directory, 100
    house.sequence(*range(1, each + 1))
    house.rm.middleware.close(5)
    slow = APPLICATION.replace("    os.write", "    time.sleep(0.02)\n    os.write")
    (directory / "slow_app.py").write_text("import time\n" + slow)
    (directory / "other_app.py").write_text(APPLICATION.replace('"calls"', '"others"'))
    file = house.plan("queue:/orders", target="slow_app:app")
    run = wsrm(directory, "replay", "run", str(file), "--yes")
    wait_for_calls(house, 5)
    killed(run)
    status = subprocess.run([sys.executable, "-m", "wsrm_mq", "status", "--store", house.path], capture_output=True)
    assert b"No process of the service lives: start" in status.stdout, "what the run has left does not wait for it"
    other = wsrm(directory, "replay", "run", str(file), "--yes", "--to", "other_app:app")
    _out, said = other.communicate(timeout=60)
    assert other.returncode == 4
    assert b"go on with that" in said
    assert not (directory / "others").read_bytes()
    cancelled = wsrm(directory, "replay", "cancel", str(file), "--yes", "--reason", "wrong day")
    _out, said = cancelled.communicate(timeout=60)
    assert cancelled.returncode == 0, said
    assert house.rm.rows("SELECT id FROM entry WHERE outcome IS NULL") == []
    with connect_reader(house.path) as db:
        assert list(all_findings(db)) == []


def test_what_comes_for_a_sequence_waits_for_the_plan_whose_run_was_killed(house: House) -> None:
    last = 60
    house.service.refused = {1}
    identifier = house.sequence(*range(1, last + 1))
    slow = APPLICATION.replace("    os.write", "    time.sleep(0.01)\n    os.write")
    (house.directory / "slow_app.py").write_text("import time\n" + slow)
    file = house.plan("queue:/orders", target="slow_app:app")
    run = wsrm(house.directory, "replay", "run", str(file), "--yes")
    wait_for_calls(house, 5)
    killed(run)
    house.rm.put(identifier, last + 1)
    assert house.rm.rows("SELECT delivery FROM sequences WHERE sequence = ?", identifier) == [("held",)]
    ends_well(wsrm(house.directory, "replay", "run", str(file), "--yes"))
    assert until(lambda: house.service.numbers == [1, last + 1])
    called = [int(line.split()[1]) for line in (house.directory / "calls").read_text().splitlines()]
    assert sorted(set(called)) == list(range(1, last + 1))


def test_who_stops_a_run_to_the_service_is_told_what_that_still_delivers_and_what_stops_it(house: House) -> None:
    for _ in range(2):
        house.sequence(*range(1, 201))
    file = house.plan("queue:/orders", target="app")
    house.service.calls.clear()
    house.service.seconds = 0.5
    run = wsrm(house.directory, "replay", "run", str(file), "--yes")
    assert until(lambda: len(house.service.calls) > 5, 30)
    run.send_signal(signal.SIGINT)
    said = run.communicate(timeout=60)[1].decode()
    assert run.returncode == 130
    told = re.search(r"The service still delivers (\d+) messages that it entered before", said)
    assert told is not None, said
    command = re.search(r"`wsrm-mq (replay cancel \S+)", said)
    assert command is not None, said
    cancel = wsrm(house.directory, *command[1].split(), "--yes", "--reason", "wrong day")
    said = cancel.communicate(timeout=60)[1].decode()
    assert cancel.returncode == 0, said
    assert len(house.service.calls) < 300
    with connect_reader(house.path) as db:
        found = outcomes(db, read(file)[0].id)
    assert found == {"delivered": len(house.service.calls), "discarded": 400 - found["delivered"]}
    assert 0 < int(told[1]) <= 400
