"""`check`: the statuses of Nagios, its own errors among them, and figures that its parsers read."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.cli.conftest import HOUR, MINUTE, Service, Shell
from tests.support.commands import Wsrm
from tests.support.stored import write_locked
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.sequence.inbound import InboundSequence
from wsrm_mq.store.bulk import REFUSALS
from wsrm_mq.store.counting import Refusal, Refusals
from wsrm_mq.store.sqlite.files import beside
from wsrm_mq.store.store import Store
from wsrm_mq.views.attention import MEASURES, Range
from wsrm_mq.views.words import moment

PAGE = Path(__file__).parents[2] / "docs" / "observability.md"
ROOM = ("-w", "disk_free=", "-c", "disk_free=")
"""Whatever the disk of this machine has."""
AS_ANOTHER_USER = """
import os, sys
from click.testing import CliRunner
from wsrm_mq.cli import program
check = ("check", "-w", "disk_free=", "-c", "disk_free=", "-c", "instances=", "--store", sys.argv[1])
status = ("status", "--store", sys.argv[1])
runner = CliRunner()
said = [runner.invoke(program, check).stdout]
runner.invoke(program, status)  # what it imports, this user may read
os.seteuid(65534)
said += [runner.invoke(program, one).stdout for one in (status, check)]
print("=====\\n".join(said), end="")
"""


def figures(line: str) -> dict[str, list[str]]:
    """As a parser of performance data reads them."""
    found: dict[str, list[str]] = {}
    for one in line.partition("\n")[0].partition(" | ")[2].split():
        name, _, rest = one.partition("=")
        value, *bounds = rest.split(";")
        assert re.fullmatch(r"-?[\d.]+(s|B)?", value)
        found[name] = [value, *bounds]
    return found


@pytest.mark.parametrize(
    ("text", "alarms", "quiet"),
    [
        ("10", (-1, 11), (0, 10)),
        ("10:", (9,), (10, 1e12)),
        ("~:10", (11,), (-100, 10)),
        ("10:20", (9, 21), (10, 20)),
        ("@10:20", (10, 20), (9, 21)),
        ("0", (1,), (0,)),
    ],
)
def test_a_threshold_alarms_as_the_guidelines_say(
    text: str, alarms: tuple[float, ...], quiet: tuple[float, ...]
) -> None:
    bounds = Range.parse(text)
    assert all(map(bounds.alarms, alarms))
    assert not any(map(bounds.alarms, quiet))


@pytest.mark.parametrize("text", ["@", "x", "1:2:3", "10-20"])
def test_what_is_no_threshold_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        Range.parse(text)


def test_a_service_that_is_well_is_ok(service: Service, wsrm: Wsrm) -> None:
    service.deliver(service.sequence(1, 2), 1, 2)
    result = wsrm("check", *ROOM)
    assert result.exit_code == 0
    assert result.stdout.startswith("WSRM OK - 1 live, nothing is stuck | ")
    assert set(figures(result.stdout)) == set(MEASURES)
    assert figures(result.stdout)["blocked"] == ["0", "0", "10", "0"]


def test_a_blocked_sequence_is_a_warning_and_may_be_critical(service: Service, wsrm: Wsrm) -> None:
    service.fail(service.sequence(1), 1, "no disk")
    result = wsrm("check", *ROOM, "-c", "oldest=")
    assert result.exit_code == 1
    assert "sequences stopped by a message: 1" in result.stdout
    assert wsrm("check", *ROOM, "-c", "oldest=", "--critical", "blocked=0").exit_code == 2


def test_an_old_message_is_critical_after_an_hour(service: Service, wsrm: Wsrm) -> None:
    service.clock.advance(-3_600_000)
    service.sequence(2)
    result = wsrm("check", *ROOM)
    assert result.exit_code == 2
    assert "age of the oldest undelivered message: 7" in result.stdout
    assert wsrm("check", *ROOM, "-w", "oldest=", "-c", "oldest=10000", "-w", "silent=").exit_code == 0


def test_dead_letters_are_a_warning_until_they_are_confirmed(service: Service, wsrm: Wsrm) -> None:
    from wsrm_mq.queue.policy import OnPoison

    sequence = service.sequence(1)
    policy = QueuePolicy(retry=(), on_poison=OnPoison.DEAD_LETTER)
    service.instance.fail(service.claim(sequence), 1, policy, "never")
    result = wsrm("check", *ROOM)
    assert result.exit_code == 1
    assert figures(result.stdout)["dead_letters"][0] == "1"
    assert wsrm("dead-letter", "confirm", "--all", "--reason", "ticket 17", "--yes").exit_code == 0
    assert wsrm("check", *ROOM).exit_code == 0


def test_no_live_process_is_critical_and_the_dead_one_is_counted(service: Service, wsrm: Wsrm) -> None:
    service.sequence(1)
    service.presence.abandon()
    result = wsrm("check", *ROOM, "-c", "oldest=")
    assert result.exit_code == 2
    assert figures(result.stdout)["dead_instances"][0] == "1"
    assert figures(result.stdout)["instances"][0] == "0"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--store", "none.db"),
        ("--no-such-option",),
        ("-w", "blokked=1"),
        ("-w", "blocked=x"),
        ("--config", "none.toml"),
    ],
)
def test_an_error_of_its_own_is_unknown_on_standard_output(shell: Shell, arguments: tuple[str, ...]) -> None:
    done = shell("check", *arguments)
    assert done.returncode == 3
    assert done.stdout.startswith(b"WSRM UNKNOWN - ")
    assert done.stdout.count(b"\n") == 1
    assert b"|" not in done.stdout


def test_a_store_that_is_none_is_unknown(somewhere: Path, wsrm: Wsrm) -> None:
    (somewhere / "wsrm.db").write_text("not a database, but long enough to be read as one\n" * 100)
    result = wsrm("check")
    assert (result.exit_code, result.stdout.split(" - ")[0]) == (3, "WSRM UNKNOWN")


def test_the_page_shows_what_is_measured_and_the_thresholds() -> None:
    rows = [
        [cell.strip(" `") for cell in line.split("|")[1:-1]]
        for line in PAGE.read_text().split("## A check for Nagios")[1].split("\n## ")[0].splitlines()
        if line.startswith("| `")
    ]
    assert rows == [[name, one.meaning, one.unit, one.warning, one.critical] for name, one in MEASURES.items()]


def answered_with_a_fault(service: Service, *numbers: int) -> InboundSequence:
    made = service.sequence(*numbers)
    for number in numbers:
        service.instance.settle(service.claim(made), number, release=True, remark="Client.x: no such article")
    return made


def test_messages_that_were_answered_with_a_fault_warn_for_a_day_from_a_threshold(service: Service, wsrm: Wsrm) -> None:
    answered_with_a_fault(service, 1, 2)
    result = wsrm("check", *ROOM)
    assert result.exit_code == 1
    assert "messages answered with a fault in 24 h, not confirmed: 2" in result.stdout
    assert figures(result.stdout)["faulted"] == ["2", "0", "", "0"]
    assert wsrm("check", *ROOM, "-w", "faulted=2").exit_code == 0
    assert wsrm("check", *ROOM, "-c", "faulted=1").exit_code == 2


def test_they_warn_no_longer_the_day_after(service: Service, wsrm: Wsrm) -> None:
    service.clock.advance(-24 * HOUR)
    answered_with_a_fault(service, 1)
    assert wsrm("check", *ROOM).exit_code == 0


def test_a_store_that_another_program_has_locked_is_critical(service: Service, wsrm: Wsrm, path: Path) -> None:
    service.deliver(service.sequence(1), 1)
    with write_locked(path):
        result = wsrm("check", *ROOM)
    assert result.exit_code == 2
    assert "another program holds the write lock, and did not give it back within 1 s" in result.stdout
    assert wsrm("check", *ROOM).exit_code == 0


def test_a_store_that_has_reached_max_store_is_critical(
    service: Service, wsrm: Wsrm, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.deliver(service.sequence(1), 1)
    monkeypatch.setenv("WSRM_MQ_MAX_STORE", "8192")
    result = wsrm("check", *ROOM)
    assert result.exit_code == 2
    assert "max_store is reached" in result.stdout


@pytest.mark.parametrize(
    ("reason", "status"),
    [("max_store", 2), ("disk_full", 2), ("overloaded", 2), ("max_held", 1), ("misconfigured", 1), ("http_413", 0)],
)
def test_what_processes_refused_in_the_last_minutes_is_no_success(
    service: Service, wsrm: Wsrm, path: Path, reason: str, status: int
) -> None:
    """Also what a process could not write into a store that is locked or full."""
    refusals = Refusals()
    refusals.open(path, service.presence.name)
    now = time.time_ns() // 1_000_000
    refusals.note(reason, None, now - 4 * MINUTE)
    assert wsrm("check", *ROOM).exit_code == status
    shown = wsrm("status").stdout
    assert f"1 {reason}, last 4 min ago" in shown
    assert ("refused, the last 4 min ago: " in shown) is (status > 0)


@pytest.mark.parametrize("reason", ["store_locked", "disk_full", "overloaded"])
def test_what_is_over_warns_and_says_when_the_last_message_was_refused(
    service: Service, wsrm: Wsrm, path: Path, reason: str
) -> None:
    at = time.time_ns() // 1_000_000 - 2 * MINUTE
    refusal = Refusal(reason, "", 3, at, "busy")
    service.instance.run(lambda tx: REFUSALS.write(tx.db.execute, [refusal]))
    service.clock.now = at + 1
    service.deliver(service.sequence(1), 1)
    result = wsrm("check", *ROOM)
    assert result.exit_code == 1
    assert result.stdout.startswith("WSRM WARNING - It is well now. The last message that was refused, as ")
    assert f", came at {moment(at)} (2 min ago; 3 times in all) | " in result.stdout, "it is told once"
    shown = wsrm("status").stdout
    assert "WARNING   It is well now. " in shown
    assert "CRITICAL" not in shown


def test_a_lock_that_lasts_is_one_finding(service: Service, wsrm: Wsrm, path: Path) -> None:
    service.deliver(service.sequence(1), 1)
    refusals = Refusals()
    refusals.open(path, service.presence.name)
    with write_locked(path):
        refusals.note("store_locked", None, time.time_ns() // 1_000_000)
        shown = wsrm("status").stdout
    assert shown.count("CRITICAL") == 1
    assert wsrm("check", *ROOM).exit_code == 2, "what nobody could write down yet is not known to be over"


def test_a_refusal_is_history_after_five_minutes(service: Service, wsrm: Wsrm, path: Path) -> None:
    refusals = Refusals()
    refusals.open(path, service.presence.name)
    refusals.note("max_store", None, time.time_ns() // 1_000_000 - 6 * MINUTE)
    assert wsrm("check", *ROOM).exit_code == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become a user who may only read")
def test_who_may_not_write_does_not_know_whether_a_service_can() -> None:
    """As a monitoring user may: the answer is UNKNOWN, not OK. In a process of its own: one that has the store open for
    writing shares that with each of its connections."""
    with tempfile.TemporaryDirectory(dir="/tmp") as there:
        os.chmod(there, 0o755)
        store = Store(Path(there) / "wsrm.db")
        store.open()
        beside(store.path).chmod(0o755)
        for part in ("", "-wal", "-shm"):
            Path(f"{store.path}{part}").chmod(0o644)
        asked = subprocess.run(
            [sys.executable, "-c", AS_ANOTHER_USER, str(store.path)],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            cwd=there,
        )
        store.close()
    mine, status, check = asked.stdout.split("=====\n")
    assert mine.startswith("WSRM OK"), "the owner's"
    assert "Not known: this user may not write to the store" in status
    assert check.startswith("WSRM UNKNOWN - this user may not write to the store")
