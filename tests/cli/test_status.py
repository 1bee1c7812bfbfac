"""`status`: one screen, the same for people and for programs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Service, Wsrm, document
from wsrm_mq.cli import status


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "SAMPLE_SECONDS", 0.01)


def test_it_shows_what_there_is(service: Service, wsrm: Wsrm) -> None:
    service.deliver(service.sequence(1, 2), 1, 2)
    held = service.sequence(1, 3, 4)
    service.deliver(held, 1)
    blocked = service.sequence(1, 2)
    service.fail(blocked, 1, "no disk \x1b[2J")
    found = document(wsrm("status", "--json"))
    assert found["sequences"] == {"created": 3}
    assert found["verdicts"] == {"ok": 1, "waiting": 1, "blocked": 1}
    assert (found["held"], found["ready"]) == (2, 2)
    assert found["oldest_undelivered_ms"] >= 3_600_000
    assert [one["pid"] for one in found["instances"]] == [1]
    (stuck,) = found["blocked"]
    assert stuck["next_step"] == f"wsrm-mq sequence resume {blocked.terms.identifier} --reason TEXT"
    assert set(found["rates"]) == {"accepted", "held", "delivered", "replayed", "failed"}
    shown = wsrm("status").stdout
    assert "verdicts            1 blocked, 1 ok, 1 waiting" in shown
    assert f"next: wsrm-mq sequence resume {blocked.terms.identifier} --reason TEXT" in shown
    assert "\x1b" not in shown


def test_an_empty_store_without_processes_is_shown_at_once(path: Path, wsrm: Wsrm) -> None:
    shown = wsrm("status").stdout
    assert "processes           0 live: start the service" in shown
    assert "oldest undelivered  none" in shown
    assert "per second          nothing runs" in shown


def test_a_copy_is_shown_as_one_that_is_not_served(service: Service, wsrm: Wsrm) -> None:
    service.sequence(1)
    assert "Not served" not in wsrm("status").stdout
    assert wsrm("store", "backup", "copy.db").exit_code == 0
    shown = wsrm("status", "--store", "copy.db").stdout
    assert "CRITICAL  Not served: the store is a copy of" in shown
    assert "processes           0 live\n" in shown, (
        "a process that lived there when it was copied neither died here nor helps"
    )
    found = document(wsrm("status", "--store", "copy.db", "--json"))
    assert "`wsrm-mq store adopt --store copy.db`" in found["unconfirmed"]
    assert found["dead_instances"] == 0


def test_a_process_that_died_is_not_live(service: Service, wsrm: Wsrm) -> None:
    service.sequence(1)
    service.presence.abandon()
    found = document(wsrm("status", "--json"))
    assert (found["instances"], found["dead_instances"]) == ([], 1)
    assert found["verdicts"] == {"blocked": 1}


def test_rates_are_what_was_counted_between_two_looks() -> None:
    from wsrm_mq.views.overview import Counted, rates

    before = [Counted("accepted", "/a", "1.1", 5), Counted("delivered", "/a", "", 5)]
    after = [
        Counted("accepted", "/a", "1.1", 9),
        Counted("accepted", "/b", "1.1", 2),
        Counted("delivered", "/a", "", 5),
    ]
    assert rates(before, after, 2.0) == {"accepted": 3.0, "held": 0, "delivered": 0, "replayed": 0, "failed": 0}


def test_it_goes_on_until_it_is_interrupted(service: Service, somewhere: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "wsrm_mq", "status", "--watch", "--json", "--interval", "0.2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    lines = [json.loads(process.stdout.readline()) for _ in range(3)]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert lines[0]["at"] < lines[1]["at"] < lines[2]["at"]
