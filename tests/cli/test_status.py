"""`status`: one screen, the same for people and for programs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Service
from tests.support.commands import Wsrm, document
from wsrm_mq.node import connect
from wsrm_mq.queue.ending import expire_due
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.sequence.elements import CloseSequence, TerminateSequence
from wsrm_mq.server import tokens


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
    assert set(found["rates"]) == {"accepted", "held", "put", "delivered", "replayed", "failed"}
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
    assert rates(before, after, 2.0) == {
        "accepted": 3.0,
        "held": 0,
        "put": 0,
        "delivered": 0,
        "replayed": 0,
        "failed": 0,
    }


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


def end_with_a_gap(service: Service, how: str) -> str:
    """Of 1, 2 and 3 the second never came, and the sequence does not wait for it any more."""
    life = 60_000 if how == "expired" else 86_400_000
    sequence = service.sequence(1, 3, policy=QueuePolicy(max_expires=life))
    identifier = sequence.terms.identifier
    if how == "expired":
        service.clock.advance(61_000)
        service.instance.run(lambda tx: expire_due(tx, 10))
    else:
        service.instance.end({"terminated": TerminateSequence, "closed": CloseSequence}[how](identifier, 3))
    service.deliver(sequence, 1, 3)
    return identifier


@pytest.mark.parametrize("how", ["expired", "terminated", "closed"])
def test_what_never_came_and_is_not_waited_for_is_told_with_what_to_write_to_the_partner(
    service: Service, wsrm: Wsrm, how: str
) -> None:
    identifier = end_with_a_gap(service, how)
    (found,) = [one for one in document(wsrm("status", "--json"))["attention"] if one["kind"] == "incomplete"]
    assert (found["severity"], found["sequence"]) == ("warning", identifier)
    assert "Number 2 never came, and that is not waited for any more." in found["sentence"]
    command = f"wsrm-mq sequence explain {identifier} --for-partner"
    assert found["next_steps"][0]["command"] == command
    assert f"next: {command}" in wsrm("status").stdout
    assert "2" in wsrm(*command.split()[1:]).stdout
    checked = wsrm("check")
    assert (checked.exit_code, "incomplete=1" in checked.stdout) == (1, True), checked.stdout


def test_an_end_with_a_gap_is_told_for_a_day_and_not_where_an_operator_wanted_it(service: Service, wsrm: Wsrm) -> None:
    identifier = end_with_a_gap(service, "terminated")
    service.instance.db.execute("UPDATE lane SET ended_at = ended_at - 90000000")
    assert "incomplete=0" in wsrm("check").stdout
    service.deliver(service.sequence(1, 3), 1)
    other = document(wsrm("sequence", "list", "state:created", "--json"))["sequences"][0]["identifier"]
    assert other != identifier
    assert wsrm("sequence", "terminate", other, "--drain", "--yes", "--reason", "given up").exit_code == 0
    assert "incomplete=0" in wsrm("check").stdout


def test_what_an_adopted_store_gave_up_is_one_finding_until_it_is_confirmed(service: Service, wsrm: Wsrm) -> None:
    service.sequence(1, 3)
    service.presence.abandon()
    assert wsrm("store", "backup", "copy.db").exit_code == 0
    at = ("--store", "copy.db")
    assert wsrm("store", "adopt", "--yes", "--reason", "it is good", *at).exit_code == 0

    def kinds() -> list[str]:
        return [one["kind"] for one in document(wsrm("status", "--json", *at))["attention"]]

    assert kinds() == ["instances", "dead_letters"]
    assert wsrm("dead-letter", "confirm", "--all", "--yes", "--reason", "known", *at).exit_code == 0
    assert kinds() == ["instances", "incomplete"], "number 2 never came"


def test_tokens_are_counted_and_those_that_have_expired_are_named(path: Path, wsrm: Wsrm) -> None:
    with connect(path) as node:
        node.call(lambda tx: tokens.add(tx, "shop", (), secret="1"))
        node.call(lambda tx: tokens.add(tx, "packer", (), secret="2", expires_at=1))
    told = document(wsrm("status", "--json"))
    assert (told["tokens"], told["tokens_expired"]) == (["shop"], ["packer"])
    assert "1 valid, and expired: packer" in wsrm("status").stdout
