"""`sequence list|show|resume|skip`: finding a sequence and repairing it."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Service, Shell
from tests.support.commands import Wsrm, document
from wsrm_mq.errors import FenceLost
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.sequence.elements import CloseSequence, TerminateSequence
from wsrm_mq.sequence.inbound import InboundSequence

WHY = ("--reason", "the disk is back", "--actor", "ada")


def stopped(service: Service) -> InboundSequence:
    """A sequence that its second message stopped; the third waits."""
    sequence = service.sequence(1, 2, 3)
    service.deliver(sequence, 1)
    service.fail(sequence, 2, "no disk")
    return sequence


def events(service: Service) -> list[tuple[str, str | None, str | None]]:
    return [(row["event"], row["reason"], row["actor"]) for row in service.instance.ledger("resumed", "skipped")]


# list and show


def test_the_list_is_newest_first_with_a_verdict_each(wsrm: Wsrm, service: Service) -> None:
    blocked = stopped(service)
    waiting = service.sequence(2)
    header, *rows = [line.split("\t") for line in wsrm("sequence", "list").stdout.splitlines()]
    assert header[:4] == ["sequence", "queue", "state", "verdict"]
    assert [(row[0], row[3]) for row in rows] == [
        (waiting.terms.identifier, "waiting"),
        (blocked.terms.identifier, "blocked"),
    ]


def test_the_list_can_be_narrowed(wsrm: Wsrm, service: Service) -> None:
    blocked = stopped(service)
    closed = service.sequence()
    service.instance.end(CloseSequence(closed.terms.identifier))

    def listed(*options: str) -> list[str]:
        return [one["identifier"] for one in document(wsrm("sequence", "list", "--json", *options))["sequences"]]

    assert listed("--verdict", "blocked") == [blocked.terms.identifier]
    assert listed("--state", "closed") == [closed.terms.identifier]
    assert listed("--queue", "/orders", "--limit", "1") == [closed.terms.identifier]
    other = wsrm("sequence", "list", "--queue", "/other")
    assert (other.exit_code, other.stderr) == (2, "wsrm-mq: queue: nothing came into /other (did you mean /orders?).\n")


def test_a_list_longer_than_a_piece_is_whole(wsrm: Wsrm, service: Service) -> None:
    made = [service.sequence().terms.identifier for _ in range(230)]
    found = document(wsrm("sequence", "list", "--json", "--limit", "1000"))["sequences"]
    assert [one["identifier"] for one in found] == made[::-1]


def test_an_unknown_verdict_is_a_usage_error_that_names_the_words(wsrm: Wsrm, service: Service) -> None:
    result = wsrm("sequence", "list", "--verdict", "stuck")
    assert result.exit_code == 2
    assert "ok, running, waiting, blocked, held, faulted, incomplete, silent, expiring, ended" in result.stderr


def test_show_tells_ranges_verdict_and_the_events_of_its_life(wsrm: Wsrm, service: Service) -> None:
    sequence = stopped(service)
    told = document(wsrm("sequence", "show", "--json", sequence.terms.identifier))
    assert told["sequence"]["received"] == [[1, 3]]
    assert told["sequence"]["verdict"] == "blocked"
    assert [event["event"] for event in told["ledger"]] == ["created", "failed", "blocked"]
    text = wsrm("sequence", "show", sequence.terms.identifier).stdout
    assert "received          1-3\n" in text
    assert "no disk" in text


# names


@pytest.mark.parametrize("part", [slice(None), slice(-6, None), slice(0, 20), slice(9, 17)])
def test_a_sequence_answers_to_its_identifier_an_end_a_beginning_and_that_of_its_uuid(
    wsrm: Wsrm, service: Service, part: slice
) -> None:
    sequence, _other = service.sequence(), service.sequence()
    told = document(wsrm("sequence", "explain", "--json", sequence.terms.identifier[part]))
    assert told["sequence"] == sequence.terms.identifier


def test_a_part_that_fits_several_names_them(wsrm: Wsrm, service: Service) -> None:
    first, second = service.sequence(), service.sequence()
    result = wsrm("sequence", "show", "urn:uuid:")
    assert result.exit_code == 3
    assert first.terms.identifier in result.stderr
    assert second.terms.identifier in result.stderr
    assert result.stderr.endswith("Write more of it.\n")


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ("urn:uuid:none", "There is no sequence urn:uuid:none."),
        ("abcde", "needs 6 characters"),
        ("%%%%%%", "There is no sequence %%%%%%."),
    ],
)
def test_what_fits_nothing_is_not_found(wsrm: Wsrm, service: Service, part: str, text: str) -> None:
    service.sequence()
    result = wsrm("sequence", "show", part)
    assert result.exit_code == 3
    assert text in result.stderr
    assert result.stdout == ""


# resume


def test_resume_tries_the_number_again_and_writes_down_who_and_why(wsrm: Wsrm, service: Service) -> None:
    sequence = stopped(service)
    result = wsrm("sequence", "resume", sequence.terms.identifier, "--yes", "--json", *WHY)
    assert document(result) == {"sequence": sequence.terms.identifier, "number": 2, "dry_run": False}
    assert service.instance.record(sequence.terms.identifier).blocked is None
    assert service.instance.entry(service.key(sequence), 2)["failures"] == 0
    assert events(service) == [("resumed", "the disk is back", "ada")]
    assert [held.lane for held in service.instance.runnable()] == [service.key(sequence)]


def test_a_rehearsal_says_what_would_happen_and_changes_nothing(wsrm: Wsrm, service: Service) -> None:
    sequence = stopped(service)
    before = list(service.instance.db.iterdump())
    for command in (("resume", sequence.terms.identifier), ("skip", sequence.terms.identifier, "2")):
        result = wsrm("sequence", *command, "--dry-run")
        assert result.exit_code == 0, result.output
        assert "This would " in result.stderr
        assert "Nothing was changed." in result.stderr
        assert "dry_run   yes" in result.stdout
    assert list(service.instance.db.iterdump()) == before


@pytest.mark.parametrize("reason", [(), ("--reason", ""), ("--reason", "  ")])
def test_a_repair_without_a_reason_is_refused(wsrm: Wsrm, service: Service, reason: tuple[str, ...]) -> None:
    sequence = stopped(service)
    result = wsrm("sequence", "resume", sequence.terms.identifier, "--yes", *reason)
    assert result.exit_code == 4
    assert "--reason" in result.stderr
    assert events(service) == []


def test_without_a_terminal_yes_has_to_be_said(wsrm: Wsrm, service: Service) -> None:
    sequence = stopped(service)
    result = wsrm("sequence", "resume", sequence.terms.identifier, *WHY, input="y\n")
    assert result.exit_code == 4
    assert "--yes" in result.stderr
    assert events(service) == []


def test_a_sequence_that_nothing_stopped_is_not_resumed(wsrm: Wsrm, service: Service) -> None:
    sequence = service.sequence(1)
    service.fail(sequence, 1, "no disk", retry=(1000,))
    service.clock.advance(5000)
    running = service.sequence(1)
    settled = service.sequence()
    for identifier in (running.terms.identifier, settled.terms.identifier):
        result = wsrm("sequence", "resume", identifier, "--yes", *WHY)
        assert result.exit_code == 4, result.output
    assert events(service) == []


def test_the_actor_is_the_login_name_if_none_is_given(
    wsrm: Wsrm, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "grace")
    sequence = stopped(service)
    wsrm("sequence", "resume", sequence.terms.identifier, "--yes", "--reason", "repaired")
    assert events(service) == [("resumed", "repaired", "grace")]


# skip


@pytest.mark.scenario("Q-079")
def test_skip_moves_the_message_to_the_dead_letters_and_lets_the_sequence_go_on(wsrm: Wsrm, service: Service) -> None:
    sequence = stopped(service)
    result = wsrm("sequence", "skip", sequence.terms.identifier, 2, "--yes", "--json", *WHY)
    assert document(result)["position"] == 2
    assert service.instance.outcomes(service.key(sequence)) == {1: "delivered", 2: "dead", 3: None}
    assert events(service) == [("skipped", "the disk is back", "ada")]
    (held,) = service.instance.runnable()
    assert service.instance.to_run(held) == [3]


@pytest.mark.parametrize(("number", "text"), [(3, "that is number 2"), (9, "never received")])
def test_only_what_stops_the_sequence_is_skipped(wsrm: Wsrm, service: Service, number: int, text: str) -> None:
    sequence = stopped(service)
    result = wsrm("sequence", "skip", sequence.terms.identifier, number, "--yes", *WHY)
    assert result.exit_code == 4
    assert text in result.stderr
    assert service.instance.outcomes(service.key(sequence)) == {1: "delivered", 2: None, 3: None}


def test_a_repair_in_an_own_process_has_its_status(shell: Shell, service: Service) -> None:
    sequence = stopped(service)
    assert shell("sequence", "skip", sequence.terms.identifier, 2).returncode == 4
    assert shell("sequence", "skip", "urn:uuid:nobody", 2, "--yes", *WHY).returncode == 3
    assert shell("sequence", "skip", sequence.terms.identifier, "two", *WHY).returncode == 2
    assert shell("sequence", "skip", sequence.terms.identifier, 2, "--yes", *WHY).returncode == 0


def test_a_store_that_another_process_writes_to_is_told_as_locked(
    wsrm: Wsrm, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("sqlite.connection", "driver"):
        monkeypatch.setattr(f"wsrm_mq.store.{module}.BUSY_TIMEOUT_MS", 50)
    sequence = stopped(service)
    service.instance.db.execute("BEGIN IMMEDIATE")
    result = wsrm("sequence", "resume", sequence.terms.identifier, "--yes", *WHY)
    service.instance.db.execute("ROLLBACK")
    assert result.exit_code == 5
    assert "Another process holds the write lock" in result.stderr


def test_an_ended_sequence_can_still_be_skipped_on(wsrm: Wsrm, service: Service) -> None:
    sequence = service.sequence(1, 2, policy=QueuePolicy())
    service.fail(sequence, 1, "no disk")
    service.instance.end(TerminateSequence(sequence.terms.identifier))
    assert wsrm("sequence", "skip", sequence.terms.identifier, 1, "--yes", *WHY).exit_code == 0
    assert service.instance.outcomes(service.key(sequence)) == {1: "dead", 2: None}


@pytest.mark.parametrize("command", ["skip", "resume"])
def test_what_a_dead_process_ran_is_repaired_though_no_other_lives(wsrm: Wsrm, service: Service, command: str) -> None:
    sequence = service.sequence(1, 2)
    held = service.claim(sequence)
    arguments = ("sequence", command, sequence.terms.identifier, *(["1"] if command == "skip" else []), "--yes", *WHY)
    assert "is being run; wait until it stops" in wsrm(*arguments).stderr
    service.presence.abandon()  # the system frees the lock of one that dies
    result = wsrm(*arguments)
    assert result.exit_code == 0, result.output
    assert "when the service starts" in result.stderr
    assert wsrm("store", "verify").exit_code == 0
    with pytest.raises(FenceLost):
        service.instance.settle(held, 1)
    (row,) = service.instance.ledger("holder_died")
    assert row["number"] == 1
    (again,) = service.instance.runnable()
    assert service.instance.to_run(again) == ([2] if command == "skip" else [1, 2])
    assert service.instance.record(sequence.terms.identifier).redelivery_below == 3


def test_a_death_that_nothing_proves_is_left_to_a_process_that_lives(wsrm: Wsrm, service: Service) -> None:
    sequence = service.sequence(1)
    service.presence.close()  # its lock file is gone
    result = wsrm("sequence", "skip", sequence.terms.identifier, 1, "--yes", *WHY)
    assert result.exit_code == 4
    assert "lock file is missing" in result.stderr
    assert "Start the service" in result.stderr


def test_show_has_the_next_step_of_explain(wsrm: Wsrm, service: Service) -> None:
    sequence = stopped(service)
    name = sequence.terms.identifier
    assert f"next: wsrm-mq sequence resume {name} --reason TEXT" in wsrm("sequence", "show", name).stdout
