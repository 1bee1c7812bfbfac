"""`sequence explain`: one sentence and the next command, for every reason why a sequence does not move."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tests.cli.conftest import HOUR, MINUTE, Service
from tests.queue.build import arrival, sender
from tests.support.commands import Wsrm, document
from wsrm_mq.queue.broken_run import let_go
from wsrm_mq.queue.failure import Diagnosis
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.queue.unsequenced import accept_unsequenced
from wsrm_mq.sequence.elements import CloseSequence, IncompleteSequenceBehavior, TerminateSequence
from wsrm_mq.versions import UNSEQUENCED

FOLLOWING = IncompleteSequenceBehavior.DISCARD_FOLLOWING_FIRST_GAP
ENTIRE = IncompleteSequenceBehavior.DISCARD_ENTIRE_SEQUENCE


def explained(wsrm: Wsrm, identifier: str) -> tuple[str, str]:
    """What the command says for people: the sentence with its verdict, and the first of the next steps."""
    result = wsrm("sequence", "explain", identifier)
    assert result.exit_code == 0, result.output
    sentence, source, *rest = result.stdout.splitlines()
    assert source.startswith("source: ")
    assert [line.split()[0] for line in rest[::2]] == ["next:", *["or:"] * (len(rest) // 2 - 1)][: len(rest) // 2]
    return sentence, rest[0] if rest else ""


def test_a_gap_is_told_with_what_is_missing_and_how_much_waits_behind_it(wsrm: Wsrm, service: Service) -> None:
    sequence = service.sequence(1, 2, 4, 5, 8)
    service.deliver(sequence, 1, 2)
    sentence, next_step = explained(wsrm, sequence.terms.identifier)
    assert sentence.startswith("waiting: It waits for numbers 3, 6-7, which the source has to send again; ")
    assert re.search(
        r"3 messages are held behind them since [-0-9]+ [:0-9]+ UTC \(60 min\)\. Nothing has come .* 60 min\.$",
        sentence,
    )
    assert next_step == f"next: wsrm-mq sequence explain {sequence.terms.identifier} --for-partner"
    listed = wsrm("message", "list", "--sequence", sequence.terms.identifier, "--outcome", "live")
    assert listed.stdout.count("\theld\tgap\t") == 3


def test_a_blocked_sequence_names_number_tries_and_error_and_how_to_resume(wsrm: Wsrm, service: Service) -> None:
    sequence = service.sequence(1, 2, 3)
    service.deliver(sequence, 1)
    service.fail(sequence, 2, "OSError: the disk is away")
    sentence, next_step = explained(wsrm, sequence.terms.identifier)
    assert sentence == (
        "blocked: Number 2 stopped the sequence: it failed once, with 'OSError: the disk is away', "
        "and 1 message is held behind it."
    )
    assert next_step == f"next: wsrm-mq sequence resume {sequence.terms.identifier} --reason TEXT"


def test_a_blocked_sequence_with_nothing_behind_its_message_counts_nothing(wsrm: Wsrm, service: Service) -> None:
    sequence = service.sequence(1)
    service.fail(sequence, 1, "\n  no disk  \nTraceback")
    sentence, _ = explained(wsrm, sequence.terms.identifier)
    assert sentence == "blocked: Number 1 stopped the sequence: it failed once, with '  no disk  '."


def test_a_message_whose_run_broke_off_is_not_told_as_if_nothing_had_happened(wsrm: Wsrm, service: Service) -> None:
    sequence = service.sequence(1)
    claim, policy = service.claim(sequence), QueuePolicy()
    service.instance.run(lambda tx: let_go(tx, claim, lambda _partner: policy, "its run broke off: KeyError: 'n'"))
    sentence, _ = explained(wsrm, sequence.terms.identifier)
    assert sentence.startswith(
        "ok: Number 1 is ready and is run next; it was begun before, and what came of it is not k"
    )
    assert sentence.endswith("""not known: "its run broke off: KeyError: 'n'".""")


def test_a_sequence_that_waits_for_its_next_try_says_when_that_is(wsrm: Wsrm, service: Service) -> None:
    sequence = service.sequence(1, 2)
    service.fail(sequence, 1, "no answer", retry=(2 * HOUR,))
    sentence, next_step = explained(wsrm, sequence.terms.identifier)
    assert sentence.startswith("blocked: Number 1 stops the sequence for now: it failed once, with 'no answer'")
    assert re.search(r"and is tried again at [-0-9]+ [:0-9]+ UTC \(in (59|60) min\)\.$", sentence)
    assert "sequence resume" in next_step


def test_a_running_operation_is_told_with_its_start_attempt_and_instance(wsrm: Wsrm, service: Service) -> None:
    sequence = service.sequence(1, 2)
    sentence, next_step = explained(wsrm, sequence.terms.identifier)
    assert sentence.startswith("running: Number 1 (put) has been running since ")
    assert sentence.endswith(f"(60 min), attempt 1, in instance {service.presence.name} (process 1 on here).")
    assert next_step == "next: wsrm-mq message show 1"


def test_the_attempt_counts_the_tries_before(wsrm: Wsrm, service: Service) -> None:
    sequence = service.sequence(1)
    service.fail(sequence, 1, "no answer", retry=(1000,))
    service.clock.advance(MINUTE)
    assert service.instance.runnable()
    assert "attempt 2, in instance" in explained(wsrm, sequence.terms.identifier)[0]


def test_a_sequence_near_its_end_says_when_why_and_what_is_lost(wsrm: Wsrm, service: Service) -> None:
    policy = QueuePolicy(behavior=FOLLOWING, max_expires=HOUR + 5 * MINUTE)
    sequence = service.sequence(1, 3, 4, policy=policy)
    service.deliver(sequence, 1)
    sentence, next_step = explained(wsrm, sequence.terms.identifier)
    assert re.match(
        r"expiring: It ends in (5 min|4 min|299 s) \([-0-9]+ [:0-9]+ UTC\) because its Expires runs out; "
        r"it still lacks number 2, and what is held \(2 messages\) then goes to the dead letters\.$",
        sentence,
    )
    assert next_step.endswith("--for-partner")


def test_what_an_end_does_depends_on_the_behavior(wsrm: Wsrm, service: Service) -> None:
    near = {"max_expires": HOUR + MINUTE}
    across = service.sequence(1, 3, policy=QueuePolicy(**near))
    service.deliver(across, 1)
    whole = service.sequence(1, 3, policy=QueuePolicy(behavior=ENTIRE, **near))
    done = service.sequence(1, policy=QueuePolicy(**near))
    service.deliver(done, 1)
    assert "what is held (1 message) is then delivered across the gap" in explained(wsrm, across.terms.identifier)[0]
    assert (
        "and all that was received (2 messages) then goes to the dead letters"
        in explained(wsrm, whole.terms.identifier)[0]
    )
    assert "nothing is left to deliver" in explained(wsrm, done.terms.identifier)[0]


def test_a_quiet_sequence_near_its_inactivity_limit_says_since_when_it_is_quiet(wsrm: Wsrm, service: Service) -> None:
    sequence = service.sequence(1, policy=QueuePolicy(inactivity=HOUR + 2 * MINUTE))
    service.deliver(sequence, 1)
    sentence, _ = explained(wsrm, sequence.terms.identifier)
    assert sentence.startswith("expiring: It ends in ")
    assert "because nothing has arrived since " in sentence


def test_a_short_life_is_not_expiring_from_the_start(wsrm: Wsrm, service: Service) -> None:
    service.clock.advance(HOUR)
    sequence = service.sequence(policy=QueuePolicy(max_expires=MINUTE))
    assert explained(wsrm, sequence.terms.identifier)[0].startswith("ok: ")


def test_a_sequence_whose_time_is_over_waits_for_a_process_that_looks(wsrm: Wsrm, service: Service) -> None:
    sequence = service.sequence(policy=QueuePolicy(max_expires=MINUTE))
    sentence, step = explained(wsrm, sequence.terms.identifier)
    assert sentence.startswith("expiring: By this clock its time is over since ")
    assert "The service doubts the clock, which has jumped ahead, and ends it when it believes that" in sentence
    assert "wsrm-mq doctor" in step
    service.presence.close()
    sentence, step = explained(wsrm, sequence.terms.identifier)
    assert sentence.startswith("expiring: It ends as soon as a process of the service looks, and believes the clock (")
    assert "wsrm-mq doctor" not in step


def test_a_whole_sequence_waits_to_be_complete(wsrm: Wsrm, service: Service) -> None:
    sequence = service.sequence(1, 2, policy=QueuePolicy(behavior=ENTIRE))
    sentence, _ = explained(wsrm, sequence.terms.identifier)
    assert sentence.startswith("waiting: 2 messages are held since ")
    assert "until the source says that the sequence is complete (DiscardEntireSequence)." in sentence


def test_a_sequence_whose_process_died_without_another_asks_for_the_service(wsrm: Wsrm, service: Service) -> None:
    sequence = service.sequence(1)
    service.presence.close()
    sentence, next_step = explained(wsrm, sequence.terms.identifier)
    assert sentence == (
        f"blocked: The process that ran number 1 died (process 1 on here, instance {service.presence.name}) and no "
        "other lives: start the service, it goes on by itself."
    )
    assert next_step == "next: wsrm-mq doctor"


def test_a_gap_without_a_live_process_says_so(wsrm: Wsrm, service: Service) -> None:
    sequence = service.sequence(1, 3)
    service.deliver(sequence, 1)
    assert "start the service" not in explained(wsrm, sequence.terms.identifier)[0]
    service.presence.close()
    sentence = explained(wsrm, sequence.terms.identifier)[0]
    assert sentence.startswith("waiting: It waits for number 2")
    assert sentence.endswith("No process of the service lives to take it: start the service.")


def test_a_sequence_whose_process_died_is_taken_over_where_another_lives(wsrm: Wsrm, service: Service) -> None:
    sequence = service.sequence(1)
    service.presence.close()
    other = Service(service.path, service.clock.now)
    sentence, _ = explained(wsrm, sequence.terms.identifier)
    other.close()
    assert sentence.startswith("running: The process that ran number 1 died (process 1 on here, ")


def test_a_ready_message_without_a_process_asks_for_the_service(wsrm: Wsrm, service: Service) -> None:
    sequence = service.sequence(1)
    service.fail(sequence, 1, "no answer", retry=(1000,))
    assert explained(wsrm, sequence.terms.identifier)[0] == (
        "ok: Number 1 is ready and is run next; it failed once, with 'no answer'."
    )
    service.presence.close()
    sentence, _ = explained(wsrm, sequence.terms.identifier)
    assert sentence.startswith("blocked: Number 1 is ready, but no process of the service lives to run it")


def test_an_ended_sequence_says_how_and_when(wsrm: Wsrm, service: Service) -> None:
    sequence = service.sequence(1)
    service.deliver(sequence, 1)
    service.instance.end(TerminateSequence(sequence.terms.identifier))
    sentence, next_step = explained(wsrm, sequence.terms.identifier)
    assert re.match(r"ended: It ended at [-0-9]+ [:0-9]+ UTC, the source terminated it; nothing is left", sentence)
    assert not next_step


def test_an_ended_sequence_with_messages_to_run_is_not_called_ended(wsrm: Wsrm, service: Service) -> None:
    sequence = service.sequence(1, 2)
    service.instance.end(TerminateSequence(sequence.terms.identifier))
    assert explained(wsrm, sequence.terms.identifier)[0].startswith("running: Number 1 ")


def test_what_was_given_up_at_the_end_is_pointed_to(wsrm: Wsrm, service: Service) -> None:
    sequence = service.sequence(1, 3, policy=QueuePolicy(behavior=FOLLOWING))
    service.deliver(sequence, 1)
    service.instance.end(CloseSequence(sequence.terms.identifier))
    sentence, next_step = explained(wsrm, sequence.terms.identifier)
    assert sentence == (
        "incomplete: It is closed; what was undelivered from number 2 on is being moved to the dead letters "
        "(first_gap). Number 2 never came, and that is not waited for any more."
    )
    assert next_step.endswith(f"dead-letter list seq:{sequence.terms.identifier}")


@pytest.mark.parametrize(("numbers", "text"), [((), "nothing has arrived yet"), ((1, 2), "number 3 is expected next")])
def test_a_sequence_that_moves_has_nothing_to_do(
    wsrm: Wsrm, service: Service, numbers: tuple[int, ...], text: str
) -> None:
    sequence = service.sequence(*numbers)
    service.deliver(sequence, *numbers)
    sentence, next_step = explained(wsrm, sequence.terms.identifier)
    assert sentence.startswith("ok: ")
    assert text in sentence
    assert not next_step


def test_without_order_the_message_that_stopped_it_is_named_not_the_next_one(wsrm: Wsrm, service: Service) -> None:
    sequence = service.sequence(1, 2, 3, policy=QueuePolicy(ordered=False))
    service.fail(sequence, 1, "later", retry=(10**9,))
    service.fail(sequence, 2, "no disk")
    sentence, _ = explained(wsrm, sequence.terms.identifier)
    assert sentence.startswith("blocked: Number 2 stopped the sequence: it failed once, with 'no disk'")
    assert sentence.endswith("nothing of it is delivered until then.")


def test_many_gaps_are_cut_short(wsrm: Wsrm, service: Service) -> None:
    sequence = service.sequence(*range(2, 42, 2))
    assert "numbers 1, 3, 5, 7, 9 and more (20 gaps), which" in explained(wsrm, sequence.terms.identifier)[0]


@pytest.mark.peer("P-25")
def test_the_numbers_that_a_sequence_was_forced_past_are_told_and_those_that_came_late(
    wsrm: Wsrm, service: Service
) -> None:
    sequence = service.sequence(1, 4, 6)
    name = sequence.terms.identifier
    service.deliver(sequence, 1)
    assert wsrm("sequence", "force", name, "--to", 5, "--late", "refuse", "--yes", "--reason", "lost").exit_code == 0
    service.instance.runnable()
    assert (
        " An operator has forced it past numbers 2-3, 5; what of that comes late goes to the dead letters."
        in (explained(wsrm, name)[0])
    )
    told = report(wsrm, name)
    assert "\nMissing, not waited for:     2-3, 5\n" in told
    assert "The missing numbers are not waited for any more. If they come they are not\nprocessed" in told
    service.instance.take(name, 3)
    assert "past numbers 2, 5; " in explained(wsrm, name)[0]
    assert explained(wsrm, name)[0].endswith(
        " Came late: number 3. Not delivered, and confirmed by nobody: number 3 (late_refused)."
    )
    facts = document(wsrm("sequence", "explain", name, "--json"))["facts"]
    assert (facts["given_up"], facts["late"]) == ([[2, 2], [5, 5]], [[3, 3]])


def test_what_runs_is_told_and_not_a_lower_number_that_came_late_meanwhile(wsrm: Wsrm, service: Service) -> None:
    sequence = service.sequence(1, 101)
    name = sequence.terms.identifier
    service.deliver(sequence, 1)
    service.clock.now += 1
    assert wsrm("sequence", "force", name, "--past", 2, "--yes", "--reason", "lost").exit_code == 0
    service.instance.runnable()
    service.clock.now += 1
    service.instance.take(name, 2)
    assert explained(wsrm, name)[0].startswith("running: Number 101 ")


def test_the_facts_come_as_numbers_under_keys_that_are_always_there(wsrm: Wsrm, service: Service) -> None:
    service.clock.now = time.time_ns() // 1_000_000
    waiting = service.sequence(1, 3)
    service.deliver(waiting, 1)
    running = service.sequence(1)
    told = document(wsrm("sequence", "explain", "--json", waiting.terms.identifier))
    other = document(wsrm("sequence", "explain", "--json", running.terms.identifier))
    assert told["verdict"] == "waiting"
    assert told["facts"]["missing"] == [[2, 2]]
    assert told["facts"]["received"] == [[1, 1], [3, 3]]
    assert told["facts"]["held"] == 1
    assert told["facts"]["held_since"] == service.clock.now
    assert told["facts"].keys() == other["facts"].keys()
    assert other["facts"]["owner"]["name"] == service.presence.name
    assert other["facts"]["owner"]["lives"] is True


def test_who_holds_a_sequence_now_is_told_and_not_who_held_it_before(wsrm: Wsrm, service: Service) -> None:
    name = service.sequence(1).terms.identifier
    for actor, reason in (("ann", "the backend moves"), ("bob", "the backend is away")):
        told = ("--yes", "--actor", actor, "--reason", reason)
        assert wsrm("sequence", "hold", name, *told).exit_code == 0
        assert explained(wsrm, name)[0].startswith(f"held: {actor} holds it since ")
        assert f": {reason}. " in explained(wsrm, name)[0]
        assert wsrm("sequence", "resume", name, *told).exit_code == 0


def test_what_stops_a_sequence_is_told_before_what_was_answered_with_a_fault(service: Service, wsrm: Wsrm) -> None:
    """Nothing waits behind it; the fault is told when the sequence goes on."""
    made = service.sequence(1, 2)
    name = made.terms.identifier
    service.instance.settle(service.claim(made), 1, remark="Client.x: no such article")
    service.fail(made, 2, "OSError: the disk is away")
    assert explained(wsrm, name)[0].startswith("blocked: Number 2 stopped the sequence: it failed once, with ")
    assert wsrm("sequence", "skip", name, 2, "--yes", "--reason", "spoiled").exit_code == 0
    assert explained(wsrm, name)[0].startswith("faulted: ")


def test_the_next_command_names_the_store_that_was_named(wsrm: Wsrm, service: Service) -> None:
    sequence = service.sequence(1)
    result = wsrm("sequence", "explain", sequence.terms.identifier, "--store", "./wsrm.db")
    assert "\nnext: wsrm-mq message show 1 --store ./wsrm.db\n" in result.stdout


def test_what_was_answered_with_a_fault_is_no_success(service: Service, wsrm: Wsrm) -> None:
    """The sequence is complete and settled; two of its messages the service did not like."""
    made = service.sequence(1, 2, 3)
    for number, remark in ((1, None), (2, "Client.x: no such article\nmore of it"), (3, "Client.y: too late")):
        service.instance.settle(service.claim(made), number, release=True, remark=remark)
    other = service.sequence(1)
    service.deliver(other, 1)
    identifier = made.terms.identifier
    lines = wsrm("sequence", "explain", identifier).stdout.splitlines()
    assert lines[0].startswith("faulted: Of 3 received messages the service took 2 and answered with a fault")
    assert lines[0].endswith("'Client.y: too late'.")
    assert lines[2] == f"next: wsrm-mq failure show seq:{identifier} event:answered_with_fault confirmed:no"
    for arguments in (("--sequence", identifier), ()):
        found = document(wsrm("message", "list", *arguments, "--reason", "answered_with_fault", "--json"))
        assert [one["number"] for one in found["messages"]] == [2, 3]
    listed = document(wsrm("sequence", "list", "--verdict", "faulted", "--json"))
    assert [one["identifier"] for one in listed["sequences"]] == [identifier]
    seen = document(wsrm("status", "--json"))
    assert seen["verdicts"] == {"faulted": 1, "ok": 1}
    assert (sum(seen["faulted"].values()), seen["faulted_in_all"]) == (2, 2)
    assert "2 in all: wsrm-mq message list --reason answered_with_fault" in wsrm("status").stdout


def test_what_waits_is_told_before_what_was_answered_with_a_fault(service: Service, wsrm: Wsrm) -> None:
    made = service.sequence(1, 3)
    service.instance.settle(service.claim(made), 1, release=True, remark="Client.x: no such article")
    assert wsrm("sequence", "explain", made.terms.identifier).stdout.startswith("waiting: ")


def test_faults_that_are_confirmed_are_no_verdict(service: Service, wsrm: Wsrm) -> None:
    made = service.sequence(1)
    service.instance.settle(service.claim(made), 1, release=True, remark="Client.x: no such article")
    shown = wsrm("sequence", "explain", made.terms.identifier).stdout
    (command,) = (line[6:] for line in shown.splitlines() if "message confirm" in line)
    assert wsrm(*command.replace("TEXT", "seen").split()[1:], "--yes").exit_code == 0
    assert explained(wsrm, made.terms.identifier)[0].startswith("ok: ")
    assert "OK        Nothing needs attention." in wsrm("status").stdout


# who sends it


def test_the_partner_and_its_contact_are_named(wsrm: Wsrm, service: Service, somewhere: Path) -> None:
    sequence = service.sequence(1, 3, partner="acme")
    service.deliver(sequence, 1)
    source = wsrm("sequence", "explain", sequence.terms.identifier).stdout.splitlines()[1]
    assert source == "source: acme, 192.0.2.1", "its section may be gone"
    (somewhere / "wsrm-mq.toml").write_text(
        '[partner.acme]\nprincipal = "CN=acme"\ncontact = "+49 30 1234"\ndescription = "Acme Ltd"\n'
    )
    source = wsrm("sequence", "explain", sequence.terms.identifier).stdout.splitlines()[1]
    assert source == "source: acme (Acme Ltd), 192.0.2.1; contact: +49 30 1234"
    told = document(wsrm("sequence", "explain", sequence.terms.identifier, "--json"))
    assert told["source"]["contact"] == "+49 30 1234"
    assert [one["command"].split()[2] for one in told["next_steps"]] == ["explain", "list", "force", "terminate"]


def test_a_source_that_left_a_gap_two_hours_ago_is_silent(wsrm: Wsrm, service: Service) -> None:
    service.clock.advance(-HOUR - MINUTE)
    sequence = service.sequence(1, 3)
    service.deliver(sequence, 1)
    sentence, next_step = explained(wsrm, sequence.terms.identifier)
    assert re.match(r"silent: Nothing has come from its source since .* \(2 h\)\. It waits for number 2, ", sentence)
    assert next_step.endswith("--for-partner")


def test_a_source_that_left_its_sequence_open_a_day_ago_is_silent(wsrm: Wsrm, service: Service) -> None:
    service.clock.advance(-22 * HOUR)
    quiet = service.sequence(1)
    service.deliver(quiet, 1)
    assert explained(wsrm, quiet.terms.identifier)[0].startswith("ok: ")
    service.clock.advance(-2 * HOUR)
    silent = service.sequence(1)
    service.deliver(silent, 1)
    sentence, _next_step = explained(wsrm, silent.terms.identifier)
    assert sentence.startswith("silent: Nothing has come from its source since ")
    assert sentence.endswith(
        "and the sequence is still open; all 1 received messages are settled; number 2 is expected next."
    )


# what to send to the partner


def report(wsrm: Wsrm, identifier: str) -> str:
    """What is written for the partner."""
    result = wsrm("sequence", "explain", identifier, "--for-partner")
    assert result.exit_code == 0, result.output
    assert max(map(len, result.stdout.splitlines())) <= 80
    return result.stdout


def test_a_report_to_the_partner_has_what_the_partner_needs(wsrm: Wsrm, service: Service) -> None:
    sequence = service.sequence(1, 2, 4, 5, 8)
    service.deliver(sequence, 1)
    lines = report(wsrm, sequence.terms.identifier).splitlines()
    facts = dict(re.split(r": +", line, maxsplit=1) for line in lines if ": " in line)
    assert facts["Sequence"] == sequence.terms.identifier
    assert facts["Endpoint"] == "/orders"
    assert facts["Numbers received"] == "1-2, 4-5, 8"
    assert facts["Numbers missing"] == "3, 6-7"
    assert facts["Received, not processed yet"] == "4"
    assert all(facts[name].endswith(" UTC") for name in ("Created", "Last message received", "Ends"))


def test_a_report_to_the_partner_has_nothing_internal(wsrm: Wsrm, service: Service) -> None:
    """No error, path, process, host or address of this side, whatever is wrong."""
    sequence = service.sequence(1, 2)
    service.fail(sequence, 1, "OSError: /srv/orders/private.db is away")
    text = report(wsrm, sequence.terms.identifier)
    for secret in ("OSError", "private", service.presence.name, "wsrm.db", "wsrm-mq", "process 1"):
        assert secret not in text
    assert "delayed" in text
    told = document(wsrm("sequence", "explain", sequence.terms.identifier, "--for-partner", "--json"))
    assert told["text"].split("\n", 1)[1] in text


def test_each_verdict_has_its_request(wsrm: Wsrm, service: Service) -> None:
    done = service.sequence(1)
    service.deliver(done, 1)
    refused = service.sequence(1)
    service.instance.settle(service.claim(refused), 1, release=True, remark="Client.x: no such article")
    over = service.sequence(1)
    service.deliver(over, 1)
    service.instance.end(TerminateSequence(over.terms.identifier))
    whole = service.sequence(1, policy=QueuePolicy(behavior=ENTIRE))
    assert "no action is needed" in report(wsrm, done.terms.identifier)
    assert "the service refused as wrong: 1, the last of them number 1" in report(wsrm, refused.terms.identifier)
    assert "no such article" not in report(wsrm, refused.terms.identifier)
    assert "in a new one" in report(wsrm, over.terms.identifier)
    assert "close or terminate it" in report(wsrm, whole.terms.identifier)


def test_what_is_numbered_on_this_side_is_no_affair_of_a_partner(wsrm: Wsrm, service: Service) -> None:
    """What came without WS-RM, and what an operator has delivered again."""
    arrived = arrival("", 1, rm=UNSEQUENCED, sender=sender(UNSEQUENCED), connection="a:1")
    service.instance.run(lambda tx: accept_unsequenced(tx, arrived))
    created = service.sequence(1)
    service.fail(created, 1, "no such customer")
    skipped = wsrm("sequence", "skip", created.terms.identifier, 1, "--yes", "--reason", "spoiled")
    redriven = wsrm("dead-letter", "redrive", "--all", "--yes", "--reason", "repaired")
    assert (skipped.exit_code, redriven.exit_code) == (0, 0)
    listed = document(wsrm("sequence", "list", "--json"))["sequences"]
    assert {one["kind"] for one in listed} == {"connection", "rm", "replay"}
    for own in (one for one in listed if one["kind"] != "rm"):
        result = wsrm("sequence", "explain", own["identifier"], "--for-partner")
        assert result.exit_code == 4
        assert "no partner knows of it" in result.stderr


# many


def test_many_are_told_by_verdict_with_one_command_for_all_of_them(wsrm: Wsrm, service: Service) -> None:
    stopped = []
    for partner in ("acme", "acme", "beta"):
        made = service.sequence(1, partner=partner)
        service.fail(made, 1, "the database is away")
        stopped.append(made)
    waits = service.sequence(2, partner="acme")
    text = wsrm("sequence", "explain", "partner:acme").stdout
    assert "blocked: 2 sequences: " in text
    assert "the database is away" in text
    assert "next: wsrm-mq sequence resume partner:acme verdict:blocked --reason TEXT\n" in text
    told = document(wsrm("sequence", "explain", "partner:acme", "--json"))
    blocked, waiting = told["verdicts"]
    assert (blocked["verdict"], blocked["sequences"], blocked["held"]) == ("blocked", 2, 0)
    assert blocked["examples"] == [one.terms.identifier for one in (stopped[1], stopped[0])]
    assert (waiting["verdict"], waiting["held"], waiting["examples"]) == ("waiting", 1, [waits.terms.identifier])
    assert told["all_looked_at"] is True
    resume = blocked["next_steps"][0]["command"]
    done = document(wsrm(*resume.replace("TEXT", "repaired").split()[1:], "--yes", "--json"))
    assert len(done["done"]) == 2
    assert [one["verdict"] for one in document(wsrm("sequence", "explain", "partner:beta", "--json"))["verdicts"]] == [
        "blocked"
    ], "of which was not asked"


def test_status_leads_from_many_that_are_blocked_to_one_command_for_all(wsrm: Wsrm, service: Service) -> None:
    for number in range(5):
        service.fail(service.sequence(1), 1, f"the database of {number} is away")
    (all_,) = re.findall(r"and 2 more: wsrm-mq (.*)", wsrm("status").stdout)
    assert "resume verdict:blocked --reason TEXT" in wsrm(*all_.split()).stdout


def test_what_one_dead_database_has_stopped_is_one_finding_with_one_command(wsrm: Wsrm, service: Service) -> None:
    away = Diagnosis("soap_fault", "Server", "psycopg.errors.OperationalError", "orders.py:41 Orders.put")
    for number in range(3):
        made = service.sequence(1, partner=f"partner{number}")
        service.instance.fail(service.claim(made), 1, QueuePolicy(retry=()), f"no route to {number}", away)
    service.fail(service.sequence(1), 1, "something else")
    shown = wsrm("status").stdout
    assert shown.count("WARNING") == 2
    said = "3 sequences are stopped by the same cause, of partner0, partner1, partner2 in /orders: 'no route to 0'."
    assert said in " ".join(shown.split())
    (command,) = re.findall(r"next: wsrm-mq (sequence resume verdict:blocked .*)", shown)
    done = document(wsrm(*command.replace("TEXT", "repaired").split(), "--yes", "--json"))
    assert len(done["done"]) == 3, "and not what something else has stopped"


def test_a_backlog_that_drains_says_how_long_that_takes(wsrm: Wsrm, service: Service) -> None:
    service.clock.now = time.time_ns() // 1_000_000 - 5_000
    made = service.sequence(*range(1, 1_201))
    for number in range(1, 101):
        service.clock.now += 20
        service.instance.settle(service.claim(made), number)
    sentence = explained(wsrm, made.terms.identifier)[0]
    assert sentence.endswith(" 1100 messages are ready; 50 a second are delivered, which takes 22 s.")
    assert "1100 messages are ready" in wsrm("status").stdout


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("partner:nobody",), 2, "partner: nothing came from nobody."),
        (("principal:nobody",), 3, "No sequence fits principal:nobody."),
        (("partner:acme", "--for-partner"), 2, "--for-partner is about one sequence: name it."),
        (("nowhere",), 3, "There is no sequence nowhere."),
        (("colour:red",), 2, "There is no key colour"),
    ],
)
def test_what_fits_none_is_told(wsrm: Wsrm, service: Service, words: tuple[str, ...], status: int, said: str) -> None:
    service.sequence(1)
    ended = wsrm("sequence", "explain", *words)
    assert (ended.exit_code, said in ended.stderr) == (status, True), ended.stderr


def test_an_identifier_that_looks_like_a_query_is_an_identifier(wsrm: Wsrm, service: Service) -> None:
    made = service.sequence(2)
    service.instance.db.execute("UPDATE lane SET identifier = 'seq:4' WHERE identifier = ?", (made.terms.identifier,))
    assert document(wsrm("sequence", "explain", "seq:4", "--json"))["verdict"] == "waiting"
    assert wsrm("sequence", "note", "seq:4", "--yes", "--reason", "x").exit_code == 0


def test_who_has_terminated_it_is_told(wsrm: Wsrm, service: Service) -> None:
    name = service.sequence(2).terms.identifier
    done = wsrm("sequence", "terminate", name, "--now", "--yes", "--actor", "ann", "--reason", "all typed in")
    assert done.exit_code == 0
    sentence = document(wsrm("sequence", "explain", name, "--json"))["sentence"]
    assert "ann terminated it (all typed in); what was undelivered from number 1 on" in sentence


@pytest.mark.parametrize("stands", ["blocked", "held"])
def test_a_message_that_killed_processes_is_not_to_be_tried_again_where_it_stands(
    wsrm: Wsrm, service: Service, stands: str
) -> None:
    """``it failed 3 times``, and the first command that was offered ran it, and killed the next one."""
    sequence = service.sequence(1, 2)
    name = sequence.terms.identifier
    policy = QueuePolicy(retry=(1_000, 1_000))
    for _ in range(5):  # which count as failures from the third on
        claim = service.instance.claim(service.key(sequence)) or service.claim(sequence)
        service.instance.run(lambda tx, claim=claim: let_go(tx, claim, lambda _partner: policy, "killed"))
        service.clock.advance(2_000)
    assert explained(wsrm, name)[0].startswith("blocked: Number 1 stopped the sequence: ")
    if stands == "held":
        assert wsrm("sequence", "hold", name, "--yes", "--reason", "it kills").exit_code == 0
    shown = wsrm("sequence", "explain", name).stdout
    assert shown.startswith(f"{stands}: ")
    assert "Each of the last 5 processes that ran number 1 died while it ran: it may be what kills them." in shown
    assert "or hold the sequence" not in shown
    commands = re.findall(r"^(?:next|or): +wsrm-mq (\w+ \w+)", shown, re.MULTILINE)
    assert commands[:2] == ["sequence skip", "message show"]
    assert "sequence resume" in commands
    assert wsrm("sequence", "skip", name, 1, "--yes", "--reason", "it kills").exit_code == 0
    assert "died while it ran" not in wsrm("sequence", "explain", name).stdout


def test_a_gap_behind_which_nothing_is_held_is_not_to_be_forced(wsrm: Wsrm, service: Service) -> None:
    """The command was offered, and refused."""
    sequence = service.sequence(1, 3)
    name = sequence.terms.identifier
    service.deliver(sequence, 1)
    assert "sequence force" in wsrm("sequence", "explain", name).stdout
    position = service.instance.entry(service.key(sequence), 3)["id"]
    assert wsrm("message", "discard", position, "--yes", "--reason", "a copy").exit_code == 0
    shown = wsrm("sequence", "explain", name).stdout
    assert "waiting: It lacks number 2" in shown
    assert "sequence force" not in shown
    assert wsrm("sequence", "force", name, "--past", 2, "--yes", "--reason", "lost").exit_code == 4
    assert "\nReceived, not processed yet: 0\n" in report(wsrm, name)
    assert wsrm("sequence", "hold", name, "--yes", "--reason", "ticket").exit_code == 0
    assert ": ticket. 0 messages wait, and nothing is delivered" in explained(wsrm, name)[0]
