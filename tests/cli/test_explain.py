"""`sequence explain`: one sentence and the next command, for every reason why a sequence does not move."""

from __future__ import annotations

import re
import time

import pytest

from tests.cli.conftest import HOUR, MINUTE, Service, Wsrm, document
from wsrm_mq.queue.broken_run import let_go
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.sequence.elements import CloseSequence, IncompleteSequenceBehavior, TerminateSequence

FOLLOWING = IncompleteSequenceBehavior.DISCARD_FOLLOWING_FIRST_GAP
ENTIRE = IncompleteSequenceBehavior.DISCARD_ENTIRE_SEQUENCE


def explained(wsrm: Wsrm, identifier: str) -> tuple[str, str]:
    """What the command says for people: the sentence with its verdict, and the next step."""
    result = wsrm("sequence", "explain", identifier)
    assert result.exit_code == 0, result.output
    sentence, _, rest = result.stdout.rstrip("\n").partition("\n")
    assert "\n" not in rest
    return sentence, rest


def test_a_gap_is_told_with_what_is_missing_and_how_much_waits_behind_it(wsrm: Wsrm, service: Service) -> None:
    sequence = service.sequence(1, 2, 4, 5, 8)
    service.deliver(sequence, 1, 2)
    sentence, next_step = explained(wsrm, sequence.terms.identifier)
    assert sentence.startswith("waiting: It waits for numbers 3, 6-7, which the source has to send again; ")
    assert re.search(r"3 messages are held behind them since [-0-9]+ [:0-9]+ UTC \(60 min\)\.$", sentence)
    assert next_step == f"next: wsrm-mq message list --sequence {sequence.terms.identifier} --outcome live"
    assert wsrm(*next_step.removeprefix("next: wsrm-mq ").split()).stdout.count("\theld\tgap\t") == 3


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
    assert sentence.startswith("running: Number 1 has been running since ")
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
    assert next_step.endswith("--outcome live")


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
    sentence, _ = explained(wsrm, sequence.terms.identifier)
    assert sentence.startswith("expiring: It ends as soon as a process of the service looks (")


def test_a_whole_sequence_waits_to_be_complete(wsrm: Wsrm, service: Service) -> None:
    sequence = service.sequence(1, 2, policy=QueuePolicy(behavior=ENTIRE))
    sentence, _ = explained(wsrm, sequence.terms.identifier)
    assert sentence.startswith("waiting: 2 messages are held since ")
    assert sentence.endswith("until the source says that the sequence is complete (DiscardEntireSequence).")


def test_a_sequence_whose_process_died_without_another_asks_for_the_service(wsrm: Wsrm, service: Service) -> None:
    sequence = service.sequence(1)
    service.presence.close()
    sentence, next_step = explained(wsrm, sequence.terms.identifier)
    assert sentence == (
        "blocked: The process that ran it died (process 1 on here) and no other lives: "
        "start the service, it goes on by itself."
    )
    assert next_step == "next: wsrm-mq store info"


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
    assert sentence.startswith("running: The process that ran it died (process 1 on here); another one takes it over")


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
        "ok: It is closed; what was undelivered from number 2 on is being moved to the dead letters (first_gap)."
    )
    assert next_step.endswith("--outcome dead")


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


def test_the_next_command_names_the_store_that_was_named(wsrm: Wsrm, service: Service) -> None:
    sequence = service.sequence(1)
    result = wsrm("sequence", "explain", sequence.terms.identifier, "--store", "./wsrm.db")
    assert result.stdout.endswith("next: wsrm-mq message show 1 --store ./wsrm.db\n")


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
    assert lines[1] == f"next: wsrm-mq message list --sequence {identifier} --reason answered_with_fault"
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
