"""``wsrm-mq dead-letter``, and the acts of ``wsrm-mq message``."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.conftest import Service
from tests.support.commands import Wsrm, document
from wsrm_mq.queue.operate import skip
from wsrm_mq.sequence.inbound import InboundSequence
from wsrm_mq.store.invariants import all_findings

WHY = ("--yes", "--reason", "looked at it", "--actor", "alice")


def skipped(service: Service, *numbers: int, behind: int | None = None) -> InboundSequence:
    """A sequence that has failed at each of ``numbers``, which an operator has skipped."""
    last = () if behind is None else (behind,)
    sequence = service.sequence(*numbers, *last)
    identifier = sequence.terms.identifier
    for number in numbers:
        service.fail(sequence, number, "ValueError: no such customer")
        service.instance.run(lambda tx, number=number: skip(tx, identifier, number, actor="bob", reason="spoiled"))
        service.instance.runnable()
    return sequence


def letters(wsrm: Wsrm, *query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = document(wsrm("dead-letter", "list", *query, "--json"))["dead_letters"]
    return found


def outcomes(service: Service) -> dict[int, tuple[str | None, str | None]]:
    rows = service.instance.rows("SELECT id, outcome, reason FROM entry ORDER BY id")
    assert list(all_findings(service.instance.db)) == []
    return {row["id"]: (row["outcome"], row["reason"]) for row in rows}


def test_a_list_shows_where_dead_letters_come_from_and_why_they_are_dead(service: Service, wsrm: Wsrm) -> None:
    sequence = skipped(service, 1, 2)
    first, second = letters(wsrm)
    assert (first["sequence"], first["number"], first["queue"]) == (sequence.terms.identifier, 1, "/orders")
    assert (first["reason"], first["last_error"], first["failures"], first["has_body"]) == (
        "skipped",
        "ValueError: no such customer",
        1,
        True,
    )
    assert [one["position"] for one in letters(wsrm, "queue:/orders", "msg:2", "reason:skipped")] == [
        second["position"]
    ]
    assert letters(wsrm, "queue:/orders", "age:9w") == []
    shown = wsrm("dead-letter", "list").stdout.splitlines()
    assert shown[0].split("\t")[:3] == ["position", "sequence", "number"]
    assert len(shown) == 3


def test_one_is_shown_with_all_that_can_be_done(service: Service, wsrm: Wsrm) -> None:
    skipped(service, 1)
    shown = wsrm("dead-letter", "show", "1").stdout
    for text in ("skipped", "no such customer", "wsrm-mq dead-letter redrive 1", "wsrm-mq message body 1"):
        assert text in shown
    found = document(wsrm("dead-letter", "show", "1", "--json"))
    assert [event["event"] for event in found["ledger"]] == ["failed", "blocked", "dead", "skipped"]
    service.sequence(1)
    missing = wsrm("dead-letter", "show", "2")
    assert (missing.exit_code, missing.stderr) == (
        3,
        "wsrm-mq: There is no dead letter at position 2: `wsrm-mq message show 2` says more.\n",
    )


def test_a_query_redrives_all_that_fit_in_the_order_of_their_sequences(service: Service, wsrm: Wsrm) -> None:
    sequence = service.sequence(2, 1)  # positions 1 and 2
    identifier = sequence.terms.identifier
    for number in (1, 2):
        service.fail(sequence, number, "no")
        service.instance.run(lambda tx, number=number: skip(tx, identifier, number, actor="bob", reason="spoiled"))
        service.instance.runnable()
    skipped(service, 1)
    dry = wsrm("dead-letter", "redrive", "queue:/orders", "reason:skipped", "--dry-run", "--json")
    assert document(dry)["done"] == 3
    assert "This would deliver 3 dead letters again now. Nothing was changed." in dry.stderr
    assert len(letters(wsrm)) == 3
    done = document(wsrm("dead-letter", "redrive", "queue:/orders", "reason:skipped", *WHY, "--json"))
    assert (done["messages"], done["done"], done["refused"]) == (3, 3, [])
    assert letters(wsrm) == []
    replays = service.instance.rows("SELECT replay_of FROM entry WHERE replay_of IS NOT NULL ORDER BY lane, number")
    assert [row["replay_of"] for row in replays] == [2, 1, 3]
    assert [row["actor"] for row in service.instance.ledger("redriven")] == ["alice"] * 3
    again = wsrm("dead-letter", "redrive", "queue:/orders", *WHY)
    assert (again.exit_code, again.stderr.splitlines()[0]) == (0, "No dead letter fits.")


def test_what_is_confirmed_or_discarded_is_told_apart_and_comes_back(service: Service, wsrm: Wsrm) -> None:
    skipped(service, 1, 2)
    assert wsrm("dead-letter", "confirm", 1, *WHY).exit_code == 0
    assert [one["position"] for one in letters(wsrm, "confirmed:no")] == [2]
    assert wsrm("dead-letter", "discard", 2, *WHY).exit_code == 0
    assert outcomes(service) == {1: ("dead", "skipped"), 2: ("discarded", "by_operator")}
    assert wsrm("message", "restore", "--all", *WHY).exit_code == 0
    assert outcomes(service) == {1: ("dead", "skipped"), 2: ("dead", "skipped")}
    assert document(wsrm("message", "confirm", "--all", *WHY, "--json"))["done"] == 1


def test_acts_on_dead_letters_leave_other_messages_alone(service: Service, wsrm: Wsrm) -> None:
    skipped(service, 1)
    service.sequence(2)
    assert wsrm("dead-letter", "discard", 2, *WHY).exit_code == 3
    assert document(wsrm("dead-letter", "discard", "--all", *WHY, "--json"))["messages"] == 1
    assert document(wsrm("message", "discard", "queue:/orders", *WHY, "--json"))["messages"] == 1
    assert {outcome for outcome, _ in outcomes(service).values()} == {"discarded"}


def test_what_waits_for_a_retry_is_tried_now(service: Service, wsrm: Wsrm) -> None:
    sequence = service.sequence(1, 2)
    service.fail(sequence, 1, "no", retry=(3_600_000_000,))
    assert document(wsrm("message", "retry", "--all", *WHY, "--json"))["done"] == 1
    assert service.instance.record(sequence.terms.identifier).retry_at is None


def test_what_is_refused_is_reported_and_the_others_are_done(service: Service, wsrm: Wsrm) -> None:
    skipped(service, 1, 2)
    wsrm("dead-letter", "redrive", 1, *WHY)
    result = wsrm("dead-letter", "redrive", 1, 2, *WHY)
    assert result.exit_code == 4
    assert "refused: 1 of 2 messages." in result.stderr
    assert "refused 1" in result.stdout
    assert outcomes(service)[2] == ("discarded", "replayed")
    single = wsrm("dead-letter", "redrive", 2, *WHY)
    assert (single.exit_code, single.stdout) == (4, "")
    assert "is discarded" in single.stderr


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        ((), 4, "say which messages"),
        (("--all", "queue:/orders"), 4, "say which messages"),
        (("colour:red",), 2, "There is no key colour"),
        (("99",), 3, "There is no message at position 99"),
        (("99999999999999999999",), 2, "not in the range"),
    ],
)
def test_what_is_not_said_rightly_is_told_in_a_line(
    service: Service, wsrm: Wsrm, words: tuple[str, ...], code: int, why: str
) -> None:
    skipped(service, 1)
    result = wsrm("dead-letter", "redrive", *words, *WHY)
    assert (result.exit_code, why in result.stderr) == (code, True), result.stderr
    assert outcomes(service) == {1: ("dead", "skipped")}


def test_a_reason_and_an_answer_are_asked_for(service: Service, wsrm: Wsrm) -> None:
    skipped(service, 1)
    assert "a reason has to be given" in wsrm("dead-letter", "redrive", 1, "--yes").stderr
    assert "say --yes" in wsrm("dead-letter", "redrive", 1, "--reason", "x").stderr
    assert outcomes(service) == {1: ("dead", "skipped")}


def test_what_was_discarded_behind_a_gap_is_not_held_when_the_gap_before_it_closes(
    wsrm: Wsrm, service: Service
) -> None:
    made = service.sequence(1, 3, 5)
    name = made.terms.identifier
    service.deliver(made, 1)
    (held,) = [row["position"] for row in service.instance.rows("SELECT position FROM messages WHERE number = 5")]
    assert wsrm("message", "discard", held, *WHY).exit_code == 0
    service.instance.take(name, 2)
    service.deliver(made, 2, 3)
    shown = document(wsrm("sequence", "show", name, "--json"))["sequence"]
    assert (shown["held"], shown["verdict"]) == (0, "waiting"), "nothing is held, and number 4 never came"
    assert document(wsrm("status", "--json"))["held"] == 0
