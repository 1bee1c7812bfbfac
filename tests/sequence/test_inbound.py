from __future__ import annotations

from typing import Any

import pytest

from tests.sequence.build import (
    AT_MOST_ONCE,
    ENTIRE,
    IDENTIFIER,
    NOW,
    VERSIONS,
    close,
    deliverable,
    having,
    message,
    opened,
    terminate,
)
from wsrm_mq.sequence import faults
from wsrm_mq.sequence.elements import AckRequested, CreateSequence, TerminateSequence
from wsrm_mq.sequence.inbound import Disposition, GaveUp, Lapsed, Outgrew, TimePassed, grant, receive
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.sequence.states import Act, State
from wsrm_mq.sequence.terms import Bounds
from wsrm_mq.versions import MAX_MESSAGE_NUMBER, WSRM_1_0, WSRM_1_1, RMVersion

BOTH = pytest.mark.parametrize("rm", VERSIONS, ids=["rm10", "rm11"])
ONLY_1_0 = pytest.mark.parametrize("rm", [WSRM_1_0], ids=["rm10"])
ONLY_1_1 = pytest.mark.parametrize("rm", [WSRM_1_1], ids=["rm11"])


# arrival


@BOTH
@pytest.mark.spec("D-SEQ-004", "D-ACK-001")
def test_numbers_in_order_are_one_range_and_deliverable_at_once(rm: RMVersion) -> None:
    sequence = opened(rm)
    for number in (1, 2, 3):
        step = message(sequence, number)
        sequence = step.sequence
        assert step.act is Act.ACCEPT
        assert sequence.limit == sequence.expected == number + 1
    assert sequence.acknowledgement().ranges == ((1, 3),)
    assert not sequence.acknowledgement().final


@BOTH
@pytest.mark.spec("D-SEQ-006", "D-DEL-004", "D-DEL-005")
def test_a_late_first_number_releases_the_run_behind_it(rm: RMVersion) -> None:
    held = having(opened(rm), [3, 1])
    assert deliverable(held) == [1]
    assert held.held == 1
    assert deliverable(having(held, [2])) == [1, 2, 3]


@BOTH
@pytest.mark.spec("D-SEQ-007", "D-SEQ-010")
def test_a_duplicate_is_repeated_and_changes_nothing_but_the_time(rm: RMVersion) -> None:
    sequence = having(opened(rm), [1, 2])
    step = message(sequence, 1, now=NOW + 5)
    assert step.act is Act.REPEAT
    assert step.sequence.active_at == NOW + 5
    assert (step.sequence.received, step.sequence.limit) == (sequence.received, sequence.limit)


@BOTH
def test_an_ack_request_changes_nothing_but_the_time(rm: RMVersion) -> None:
    sequence = having(opened(rm), [1])
    step = receive(sequence, AckRequested(IDENTIFIER), NOW + 5)
    assert step.act is Act.ACKNOWLEDGE
    assert step.sequence.received == sequence.received


# the largest number


@ONLY_1_1
@pytest.mark.spec("D-SEQ-016", "D-SEQ-017", "D-SEQ-019")
@pytest.mark.parametrize("number", [MAX_MESSAGE_NUMBER + 1, 2**64, 2**80])
def test_above_the_largest_number_1_1_answers_rollover_and_goes_on(rm: RMVersion, number: int) -> None:
    step = message(opened(rm), number)
    assert isinstance(step.fault, faults.MessageNumberRollover)
    assert step.fault.max_number <= MAX_MESSAGE_NUMBER
    assert not step.sequence.received
    assert message(step.sequence, 1).act is Act.ACCEPT


@ONLY_1_0
@pytest.mark.spec("D-SEQ-015", "D-SEQ-017", "D-SEQ-020")
@pytest.mark.parametrize("number", [MAX_MESSAGE_NUMBER + 1, 2**64])
def test_above_the_largest_number_a_1_0_sequence_ends(rm: RMVersion, number: int) -> None:
    step = message(opened(rm), number)
    assert isinstance(step.fault, faults.MessageNumberRollover)
    assert step.ended_now
    assert step.sequence.state is State.REFUSED


@BOTH
@pytest.mark.spec("D-SEQ-018")
@pytest.mark.parametrize("ordered", [True, False])
def test_the_largest_number_taken_leaves_every_integer_within_64_bits(rm: RMVersion, ordered: bool) -> None:
    """``limit`` is one more than the highest number delivered, and is stored as a signed 64-bit integer."""
    refused = message(opened(rm, ordered=ordered), MAX_MESSAGE_NUMBER)
    assert isinstance(refused.fault, faults.MessageNumberRollover)
    largest = refused.fault.max_number
    accepted = message(opened(rm, ordered=ordered), largest)
    assert accepted.act is Act.ACCEPT
    ended = terminate(accepted.sequence).sequence
    assert deliverable(ended) == [largest]
    assert ended.limit <= 2**63 - 1


# LastMessage


@ONLY_1_0
@pytest.mark.spec("D-LST-001", "D-LST-003", "D-LST-005")
def test_last_message_fixes_the_last_number_and_lower_ones_are_still_taken(rm: RMVersion) -> None:
    step = message(having(opened(rm), [1]), 3, last=True)
    assert step.act is Act.ACCEPT
    assert step.sequence.last_number == 3
    filled = message(step.sequence, 2)
    assert deliverable(filled.sequence) == [1, 2, 3]
    assert filled.sequence.is_complete


@ONLY_1_0
@pytest.mark.spec("D-LST-002")
def test_a_number_above_the_last_ends_the_sequence(rm: RMVersion) -> None:
    sequence = message(opened(rm), 1, last=True).sequence
    step = message(sequence, 2)
    assert isinstance(step.fault, faults.LastMessageNumberExceeded)
    assert step.sequence.state is State.REFUSED
    assert isinstance(message(step.sequence, 3).fault, faults.UnknownSequence)


@ONLY_1_0
@pytest.mark.spec("D-LST-006")
@pytest.mark.parametrize("number", [1, 2, 3], ids=["received before", "below the highest", "a second last one"])
def test_last_message_on_a_number_that_cannot_be_the_last_ends_the_sequence(rm: RMVersion, number: int) -> None:
    sequence = having(opened(rm), [1, 4])
    if number == 3:
        sequence = message(opened(rm), 5, last=True).sequence
    step = message(sequence, number, last=True)
    assert isinstance(step.fault, faults.SequenceTerminated)
    assert step.sequence.state is State.REFUSED


@ONLY_1_0
@pytest.mark.spec("D-LST-007")
def test_a_resend_of_the_last_message_is_a_duplicate(rm: RMVersion) -> None:
    sequence = message(opened(rm), 1, last=True).sequence
    assert message(sequence, 1, last=True).act is Act.REPEAT
    assert message(sequence, 1).act is Act.REPEAT


@ONLY_1_0
@pytest.mark.spec("D-LST-004")
def test_an_empty_last_message_is_acknowledged_and_settled_without_delivery(rm: RMVersion) -> None:
    step = message(opened(rm), 1, last=True, named=False, empty_last=True)
    assert step.disposition is Disposition.EMPTY_LAST_MESSAGE
    assert step.sequence.acknowledgement().ranges == ((1, 1),)


@ONLY_1_1
@pytest.mark.spec("D-SEQ-028")
def test_last_message_is_malformed_in_1_1(rm: RMVersion) -> None:
    step = message(opened(rm), 1, last=True)
    assert isinstance(step.fault, faults.MalformedMessage)
    assert not step.sequence.received
    assert step.sequence.state is State.CREATED


@ONLY_1_0
def test_discard_entire_sequence_delivers_when_last_message_makes_it_complete(rm: RMVersion) -> None:
    sequence = message(having(opened(rm, behavior=ENTIRE), [1]), 3, last=True).sequence
    assert deliverable(sequence) == []
    assert deliverable(having(sequence, [2])) == [1, 2, 3]


# close and terminate


@ONLY_1_1
@pytest.mark.spec("D-CLO-003", "D-CLO-004", "D-CLO-006", "D-CLO-007", "D-ACK-016")
def test_a_closed_sequence_knows_its_numbers_and_takes_no_other(rm: RMVersion) -> None:
    step = close(having(opened(rm), [1, 3]), 4)
    closed = step.sequence
    assert (step.act, step.closed_now, step.ended_now) == (Act.CLOSE, True, False)
    assert isinstance(message(closed, 2).fault, faults.SequenceClosed)
    assert message(closed, 3).act is Act.REPEAT
    assert close(closed, 4).act is Act.CONFIRM
    assert close(closed, 4).sequence.received == closed.received
    assert receive(closed, AckRequested(IDENTIFIER), NOW).sequence.acknowledgement().final


@ONLY_1_1
@pytest.mark.spec("D-CLO-009", "D-CLO-013", "D-CLO-014", "D-TRM-006")
@pytest.mark.parametrize("numbers", [(), (1, 2), (1, 3)])
def test_close_and_terminate_need_no_last_number(rm: RMVersion, numbers: tuple[int, ...]) -> None:
    sequence = having(opened(rm), numbers)
    closed = close(sequence).sequence
    assert closed.acknowledgement().final
    assert closed.acknowledgement().ranges == AckRanges.of(numbers).ranges
    for ended in (terminate(closed), terminate(sequence)):
        assert (ended.act, ended.ended_now) == (Act.TERMINATE, True)
        assert ended.sequence.state is State.TERMINATED


@ONLY_1_1
@pytest.mark.spec("D-CLO-010", "D-TRM-007")
def test_a_last_number_that_contradicts_ends_the_sequence_as_the_senders_mistake(rm: RMVersion) -> None:
    sequence = having(opened(rm), [1, 2, 3])
    for step in (close(sequence, 2), terminate(sequence, 2), terminate(close(sequence, 4).sequence, 5)):
        assert isinstance(step.fault, faults.SequenceTerminated)
        assert step.fault.blame is faults.FaultCode.SENDER
        assert step.ended_now
        assert step.sequence.state is State.REFUSED


@BOTH
@pytest.mark.spec("D-SEQ-003", "D-TRM-005")
def test_after_the_end_terminate_is_confirmed_and_everything_else_unknown(rm: RMVersion) -> None:
    ended = terminate(having(opened(rm), [1])).sequence
    again = terminate(ended)
    assert again.act is Act.CONFIRM
    assert not again.ended_now
    assert isinstance(message(ended, 1).fault, faults.UnknownSequence)
    assert isinstance(message(ended, 2).fault, faults.UnknownSequence)
    assert isinstance(receive(ended, AckRequested(IDENTIFIER), NOW).fault, faults.UnknownSequence)


@ONLY_1_0
@pytest.mark.spec("D-CLO-015")
def test_1_0_has_no_close(rm: RMVersion) -> None:
    step = close(having(opened(rm), [1]))
    assert isinstance(step.fault, faults.MalformedMessage)
    assert step.sequence.state is State.CREATED


@ONLY_1_0
def test_1_0_never_says_final(rm: RMVersion) -> None:
    assert not terminate(having(opened(rm), [1])).sequence.acknowledgement().final


@BOTH
def test_a_sequence_that_this_side_gave_up_says_so_and_that_it_is_to_blame(rm: RMVersion) -> None:
    given_up = receive(having(opened(rm), [1]), GaveUp(), NOW)
    assert given_up.sequence.state is State.FAILED
    fault = message(given_up.sequence, 2).fault
    assert isinstance(fault, faults.SequenceTerminated)
    assert fault.blame is faults.FaultCode.RECEIVER


@BOTH
@pytest.mark.spec("SEC-014")
def test_a_sequence_that_outgrew_its_room_ends_and_what_it_held_is_given_up(rm: RMVersion) -> None:
    step = receive(having(opened(rm), [1, 3]), Outgrew("too large"), NOW)
    assert (step.act, step.ended_now, step.sequence.state) == (None, True, State.FAILED)
    assert isinstance(step.fault, faults.SequenceTerminated)
    assert (step.fault.reason, step.fault.blame) == ("too large", faults.FaultCode.RECEIVER)
    assert (step.sequence.discard_from, step.sequence.discard_reason) == (1, "max_held_bytes")


# named and unnamed


@BOTH
@pytest.mark.spec("D-ACK-001", "D-ACK-002", "D-DEL-021")
def test_an_acknowledgement_leaves_out_what_may_not_be_named_yet(rm: RMVersion) -> None:
    sequence = message(having(opened(rm), [1]), 2, named=False).sequence
    sequence = having(sequence, [3])
    assert sequence.received.ranges == ((1, 3),)
    assert sequence.acknowledgement().ranges == ((1, 1), (3, 3))


@ONLY_1_1
@pytest.mark.spec("D-ACK-009", "D-ACK-010", "D-DEL-021")
@pytest.mark.parametrize("end", [close, terminate])
def test_final_names_every_accepted_number(rm: RMVersion, end: Any) -> None:
    sequence = message(having(opened(rm), [1]), 2, named=False).sequence
    assert not sequence.acknowledgement().final
    final = end(sequence).sequence.acknowledgement()
    assert final.final
    assert final.ranges == ((1, 2),)


# bounds


def test_a_window_of_one_refuses_what_comes_before_its_turn_and_says_whose_turn_it_is() -> None:
    step = message(opened(), 2, bounds=Bounds(window=1))
    assert step.no_room == "number 2 came before number 1, and none is held: window is 1"


def test_the_window_refuses_what_lies_beyond_it_and_leaves_no_trace() -> None:
    sequence = having(opened(), [1])
    step = message(sequence, 5, bounds=Bounds(window=3), now=NOW + 9)
    assert "window" in step.no_room
    assert step.act is None
    assert step.fault is None
    assert step.sequence.received == sequence.received
    assert message(sequence, 4, bounds=Bounds(window=3)).act is Act.ACCEPT


@pytest.mark.scenario("Q-051")
@pytest.mark.spec("D-SEQ-024", versions="all")
def test_max_held_bounds_what_waits_and_never_what_fills_the_gap() -> None:
    bounds = Bounds(max_held=2)
    sequence = having(opened(), [1, 3, 4])
    step = message(sequence, 5, bounds=bounds)
    assert "max_held" in step.no_room
    assert step.sequence.acknowledgement().ranges == ((1, 1), (3, 4))
    filled = message(sequence, 2, bounds=bounds)
    assert filled.act is Act.ACCEPT
    assert message(filled.sequence, 5, bounds=bounds).act is Act.ACCEPT, "there is room again"


def test_max_ranges_bounds_new_ranges_but_not_numbers_that_touch_one() -> None:
    bounds = Bounds(max_ranges=2)
    sequence = having(opened(), [3, 7])
    assert "max_ranges" in message(sequence, 5, bounds=bounds).no_room
    for number in (4, 6, 8, 2):
        assert message(sequence, number, bounds=bounds).act is Act.ACCEPT
    assert message(sequence, 1, bounds=bounds).act is Act.ACCEPT, "the first gap is always filled"


def test_max_held_does_not_bound_what_is_not_held() -> None:
    none_held = Bounds(max_held=0)
    assert message(opened(ordered=False), 7, bounds=none_held).act is Act.ACCEPT
    assert message(opened(assurance=AT_MOST_ONCE), 7, bounds=none_held).act is Act.ACCEPT
    assert message(opened(behavior=ENTIRE), 7, bounds=none_held).act is Act.ACCEPT
    assert message(opened(), 7, bounds=none_held).no_room
    assert message(opened(), 1, bounds=none_held).act is Act.ACCEPT


# at most once, and without order


@BOTH
@pytest.mark.spec("D-DEL-007")
def test_at_most_once_in_order_skips_a_gap_and_drops_what_arrives_late(rm: RMVersion) -> None:
    sequence = having(opened(rm, assurance=AT_MOST_ONCE), [1, 4])
    assert deliverable(sequence) == [1, 4]
    late = message(sequence, 2)
    assert late.act is Act.ACCEPT
    assert late.disposition is Disposition.LATE
    assert late.sequence.acknowledgement().ranges == ((1, 2), (4, 4))


@BOTH
def test_without_order_a_late_number_is_delivered(rm: RMVersion) -> None:
    sequence = having(opened(rm, assurance=AT_MOST_ONCE, ordered=False), [4])
    step = message(sequence, 2)
    assert step.disposition is None
    assert deliverable(step.sequence) == [2, 4]


# time


@pytest.mark.spec("D-EXP-007", versions="all")
@pytest.mark.parametrize(
    ("asked", "granted"),
    [(600_000, 300_000), (60_000, 60_000), (None, 300_000), (300_000, 300_000)],
    ids=["more than allowed", "less", "never", "as much"],
)
def test_expires_is_granted_as_a_finite_time_of_at_most_the_largest(asked: int | None, granted: int) -> None:
    sequence = grant(CreateSequence(None, expires=asked), opened().terms, NOW, 300_000)
    assert sequence.terms.expires_at == NOW + granted
    assert sequence.due_at == NOW + granted


@BOTH
@pytest.mark.spec("D-EXP-001", "D-EXP-002", "D-EXP-004")
def test_expires_counts_from_creation_whatever_the_traffic(rm: RMVersion) -> None:
    sequence = opened(rm, expires_at=NOW + 100)
    sequence = message(sequence, 1, now=NOW + 99).sequence
    assert receive(sequence, TimePassed(), NOW + 99).act is Act.IGNORE
    expired = receive(sequence, TimePassed(), NOW + 100)
    assert (expired.act, expired.fault, expired.ended_now) == (Act.END, None, True)
    assert expired.sequence.state is State.EXPIRED
    assert isinstance(message(expired.sequence, 2).fault, faults.UnknownSequence)
    assert expired.sequence.due_at is None


@BOTH
@pytest.mark.spec("D-EXP-002")
def test_an_event_meets_a_sequence_that_is_already_over(rm: RMVersion) -> None:
    sequence = having(opened(rm, expires_at=NOW + 100), [1, 3])
    step = message(sequence, 2, now=NOW + 100)
    assert isinstance(step.fault, faults.UnknownSequence)
    assert step.ended_now
    assert step.released_across == AckRanges.of([2])
    assert deliverable(step.sequence) == [1, 3]
    confirmed = receive(sequence, TerminateSequence(IDENTIFIER), NOW + 100)
    assert confirmed.act is Act.CONFIRM
    assert confirmed.ended_now


@ONLY_1_0
@pytest.mark.spec("D-EXP-005")
def test_any_message_restarts_the_inactivity_clock(rm: RMVersion) -> None:
    quiet = opened(rm, inactivity=100)
    assert receive(quiet, TimePassed(), NOW + 100).sequence.state is State.EXPIRED
    nearly = NOW + 99
    events = [
        message(quiet, 1, now=nearly),
        receive(quiet, AckRequested(IDENTIFIER), nearly),
        message(having(quiet, [1]), 1, now=nearly),
        message(quiet, 9, now=nearly, bounds=Bounds(window=3)),
        close(quiet, now=nearly),
    ]
    for step in events:
        assert step.sequence.due_at == nearly + 100, step


def test_the_sooner_of_expires_and_inactivity_is_due() -> None:
    assert opened(expires_at=NOW + 50, inactivity=100).due_at == NOW + 50
    assert opened(expires_at=NOW + 500, inactivity=100).due_at == NOW + 100
    assert opened().due_at is None


def test_an_input_that_the_machine_does_not_know_is_an_error_and_no_end() -> None:
    with pytest.raises(TypeError, match="no input of a sequence"):
        receive(opened(), object(), NOW)  # type: ignore[arg-type]


@BOTH
@pytest.mark.spec("D-EXP-001")
def test_what_was_never_used_may_be_ended_before_its_time(rm: RMVersion) -> None:
    step = receive(opened(rm, expires_at=NOW + 1_000), Lapsed(), NOW)
    assert (step.act, step.sequence.state, step.ended_now) == (Act.END, State.EXPIRED, True)
    assert receive(step.sequence, Lapsed(), NOW).act is Act.IGNORE
