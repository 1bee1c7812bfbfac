"""`sequence hold|resume|force|close|terminate|note`: what each says and does, to one sequence and to many."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Service
from tests.support.commands import Wsrm, document
from wsrm_mq import replay
from wsrm_mq.errors import NotAllowed, NotFound
from wsrm_mq.versions import WSRM_1_0

WHY = ("--yes", "--reason", "it is 3 am", "--actor", "ada")


def test_each_act_says_what_it_did_and_writes_down_who_and_why(wsrm: Wsrm, service: Service) -> None:
    name = service.sequence(1, 3, 4).terms.identifier

    def said(*command: str) -> str:
        result = wsrm("sequence", *command[:1], name, *command[1:], *WHY)
        assert result.exit_code == 0, result.output
        text: str = result.stderr
        return text

    assert said("hold") == (
        f"Done: deliver nothing more of {name} until it is resumed; number 1, which is being run, is let end.\n"
    )
    assert said("resume") == f"Done: let {name} go on with number 1 now.\n"
    assert said("force", "--past", "2") == (
        f"Done: deliver 2 held messages of {name} up to number 4 now, without number 2: what is missing and comes "
        "later is delivered at once, marked late.\n"
    )
    assert said("note") == f"Done: note it for {name}.\n"
    assert said("close") == (
        f"Done: close {name}, which lacks number 2: it takes no new message; 3 undelivered to be delivered now.\n"
    )
    assert said("terminate", "--now") == (
        f"Done: end {name}, which lacks number 2: it takes no new message; 3 undelivered to the dead letters.\n"
    )
    acts = [(row["event"], row["reason"], row["actor"]) for row in service.instance.ledger() if row["actor"] == "ada"]
    assert [event for event, _reason, _actor in acts] == [
        *("held", "resumed", "forced", "noted", "closed", "terminated", "ended")
    ]
    assert {reason for event, reason, _actor in acts if event != "ended"} == {"it is 3 am"}


def test_the_json_of_an_act_has_what_came_of_it(wsrm: Wsrm, service: Service) -> None:
    name = service.sequence(1, 3).terms.identifier
    done = document(wsrm("sequence", "force", name, "--past", "2", "--late", "refuse", "--json", *WHY))
    assert done == {
        "sequence": name,
        "to": 3,
        "released": 1,
        "missing": [[2, 2]],
        "late": "refuse",
        "dry_run": False,
    }
    done = document(wsrm("sequence", "terminate", name, "--drain", "--dry-run", "--json"))
    assert done == {"sequence": name, "missing": [[2, 2]], "delivers": 2, "gives_up": 0, "dry_run": True}


@pytest.mark.parametrize(
    "command",
    [("hold",), ("force", "--past", "2"), ("close",), ("terminate", "--now"), ("terminate", "--drain"), ("note",)],
)
def test_a_rehearsal_changes_nothing(wsrm: Wsrm, service: Service, command: tuple[str, ...]) -> None:
    name = service.sequence(1, 3).terms.identifier
    service.sequence(1, 3)
    before = list(service.instance.db.iterdump())
    for chosen in (name, "queue:/orders"):
        result = wsrm("sequence", *command, chosen, "--dry-run")
        assert result.exit_code == 0, result.output
        assert "This would " in result.stderr
        assert "Nothing was changed." in result.stderr
    assert list(service.instance.db.iterdump()) == before


def test_a_query_does_it_to_all_that_fit_and_names_those_that_it_does_not_fit(wsrm: Wsrm, service: Service) -> None:
    forced = [service.sequence(1, 3).terms.identifier for _ in range(60)]
    other = service.sequence(1).terms.identifier
    result = wsrm("sequence", "force", "queue:/orders", "--past", "2", "--json", *WHY)
    assert result.exit_code == 4
    assert "refused: 1 of 61 sequences." in result.stderr
    assert f'"sequence": "{other}"' in result.stdout
    assert len(service.instance.ledger("forced")) == 60
    assert {service.instance.record(name).value.limit for name in forced} == {4}


def test_many_are_counted_before_it_is_asked(wsrm: Wsrm, service: Service) -> None:
    for _ in range(6):
        service.sequence(2)
    result = wsrm("sequence", "hold", "verdict:waiting", "--dry-run")
    assert result.stderr.startswith("This would hold 6 sequences: urn:uuid:")
    assert result.stderr.endswith(", …. Nothing was changed.\n")
    refused = wsrm("sequence", "hold", "verdict:waiting", "--reason", "x")
    assert (refused.exit_code, "--yes" in refused.stderr) == (4, True)
    assert service.instance.ledger("held") == []


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (("hold", "verdict:blocked", *WHY), 3, "No sequence fits verdict:blocked."),
        (("hold", "verdict:stuck", *WHY), 2, "verdict: stuck is none of"),
        (("hold", *WHY), 2, "Missing argument"),
        (("terminate", "{}", *WHY), 2, "--drain or --now"),
        (("close", "{}", *WHY), 4, "1.0, which has no close; terminate it."),
        (("force", "{}", *WHY), 4, "past which gap? It waits for number 2: --past 2 gives that up."),
        (("force", "{}", "--past", "2", "--to", "3", *WHY), 2, "choose one"),
        (("force", "{}", "--to", "9", *WHY), 4, "lies from 2 to 3; number 9 does not"),
        (("skip", "queue:/orders", "1", *WHY), 4, "is being run"),
    ],
)
def test_what_cannot_be_done_is_one_clear_line(
    wsrm: Wsrm, service: Service, arguments: tuple[str, ...], status: int, text: str
) -> None:
    value = service.instance.create(rm=WSRM_1_0)
    for number in (1, 3):
        service.instance.take(value.terms.identifier, number, rm=WSRM_1_0)
    result = wsrm("sequence", *(one.format(value.terms.identifier) for one in arguments))
    assert result.exit_code == status, result.output
    assert text in result.stderr
    assert "Traceback" not in result.output


def test_what_is_given_up_while_no_process_lives_is_in_the_dead_letters_at_once(wsrm: Wsrm, service: Service) -> None:
    sequence = service.sequence(2, 3)
    service.presence.abandon()
    result = wsrm("sequence", "terminate", sequence.terms.identifier, "--now", *WHY)
    assert result.exit_code == 0, result.output
    assert service.instance.outcomes(service.key(sequence)) == {2: "dead", 3: "dead"}
    assert wsrm("store", "verify").exit_code == 0


def test_a_note_is_shown_with_its_sequence(wsrm: Wsrm, service: Service) -> None:
    name = service.sequence(1).terms.identifier
    wsrm("sequence", "note", name, "--yes", "--reason", "called ACME\x1b[31m", "--actor", "ada")
    shown = wsrm("sequence", "show", name).stdout
    assert "noted" in shown
    assert "called ACME\\x1b[31m" in shown


def test_the_same_acts_are_functions_of_python(service: Service) -> None:
    one, other = (service.sequence(1, 3).terms.identifier for _ in range(2))
    held = replay.hold(service.path, "queue:/orders", actor="ada", reason="")
    assert [(act.thing, act.result, act.refused) for act in held] == [(other, 1, ""), (one, 1, "")]
    again = replay.hold(service.path, [one, other], actor="ada", reason="")
    assert [act.refused for act in again] == [f"{one} is held already.", f"{other} is held already."]
    with pytest.raises(NotAllowed, match="held already"):
        replay.hold(service.path, one, actor="ada", reason="")
    with pytest.raises(NotFound):
        replay.note(service.path, "urn:uuid:unknown", actor="ada", reason="")
    with pytest.raises(NotAllowed, match="which sequences"):
        replay.note(service.path, "", actor="ada", reason="")
    (forced,) = replay.force(service.path, one, past=2, late="refuse", actor="ada", reason="", dry_run=True)
    assert (forced.result.to, forced.result.released) == (3, 1)
    assert service.instance.ledger("forced") == []
