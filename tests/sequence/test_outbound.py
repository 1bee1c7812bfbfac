"""What an RM Source does with a sequence of its own: numbers, acknowledgements, ends."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sequence.build import IDENTIFIER, NOW, having, opened
from wsrm_mq.sequence.elements import CloseSequence, SequenceAcknowledgement, SequenceFault, TerminateSequence
from wsrm_mq.sequence.outbound import MOST_RANGES, NewMessage, OutboundSequence, OutboundStep, OutboundTerms, Own, take
from wsrm_mq.sequence.outbound_states import OutboundAct, OutboundState
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.versions import MAX_MESSAGE_NUMBER, WSA_2005, WSRM_1_0, WSRM_1_1, RMVersion, SOAPVersion

BOTH = pytest.mark.parametrize("rm", [WSRM_1_0, WSRM_1_1], ids=["rm10", "rm11"])


def sending(count: int = 0, rm: RMVersion = WSRM_1_1, expires_at: int | None = None) -> OutboundSequence:
    """A sequence that has given ``count`` numbers."""
    sequence = OutboundSequence(OutboundTerms(IDENTIFIER, rm, SOAPVersion.SOAP_1_1, WSA_2005, expires_at))
    for _ in range(count):
        sequence = take(sequence, NewMessage(), NOW).sequence
    return sequence


def acknowledge(
    sequence: OutboundSequence, *ranges: tuple[int, int], nacks: tuple[int, ...] = (), final: bool = False
) -> OutboundStep:
    return take(sequence, SequenceAcknowledgement(IDENTIFIER, ranges, nacks, final), NOW)


def fault(sequence: OutboundSequence, code: str) -> OutboundStep:
    return take(sequence, SequenceFault(code, IDENTIFIER), NOW)


# numbers


@BOTH
@pytest.mark.spec("S-SND-001", "S-SND-006")
def test_numbers_are_given_from_1_on_without_a_gap(rm: RMVersion) -> None:
    sequence, given_numbers = sending(rm=rm), []
    for _ in range(3):
        step = take(sequence, NewMessage(), NOW)
        assert step.header is not None
        assert step.header.identifier == IDENTIFIER
        given_numbers.append(step.header.number)
        sequence = step.sequence
    assert given_numbers == [1, 2, 3]
    assert sequence.unacknowledged.ranges == ((1, 3),)


@pytest.mark.spec("S-SND-008", versions=("1.0",))
def test_1_0_marks_the_last_message_and_gives_no_number_after_it() -> None:
    step = take(sending(1, WSRM_1_0), NewMessage(last=True), NOW)
    assert step.header == (IDENTIFIER, 2, True)
    assert take(step.sequence, NewMessage(), NOW).act is OutboundAct.REFUSE


def test_1_1_has_no_mark_for_the_last_message() -> None:
    step = take(sending(), NewMessage(last=True), NOW)
    assert step.header == (IDENTIFIER, 1, False)


@BOTH
@pytest.mark.spec("S-SND-005")
def test_after_the_largest_number_none_is_given(rm: RMVersion) -> None:
    sequence = sending(rm=rm)._replace(given=MAX_MESSAGE_NUMBER - 1)
    step = take(sequence, NewMessage(), NOW)
    assert step.header is not None
    assert step.header.number == MAX_MESSAGE_NUMBER
    assert take(step.sequence, NewMessage(), NOW).act is OutboundAct.REFUSE


@BOTH
def test_a_destination_that_takes_no_larger_number_gets_none(rm: RMVersion) -> None:
    step = fault(sending(2, rm), "MessageNumberRollover")
    assert step.act is OutboundAct.STOP
    assert step.sequence.state is OutboundState.CREATED
    assert take(step.sequence, NewMessage(), NOW).act is OutboundAct.REFUSE
    assert acknowledge(step.sequence, (1, 2)).sequence.is_acknowledged


# acknowledgements


@BOTH
@pytest.mark.spec("S-ACK-001", "S-ACK-007", "S-ACK-008")
def test_ranges_release_exactly_what_they_name_in_whatever_form(rm: RMVersion) -> None:
    step = acknowledge(sending(9, rm), (7, 8), (1, 2), (3, 4), (4, 5))
    assert step.released.ranges == ((1, 5), (7, 8))
    assert step.sequence.unacknowledged.ranges == ((6, 6), (9, 9))
    again = acknowledge(step.sequence, (5, 6))
    assert again.released.ranges == ((6, 6),)
    assert again.sequence.acknowledged.ranges == ((1, 8),)


@BOTH
@pytest.mark.spec("S-ACK-006")
def test_an_older_acknowledgement_takes_nothing_back(rm: RMVersion) -> None:
    known = acknowledge(sending(5, rm), (1, 4)).sequence
    late = acknowledge(known, (1, 2))
    assert (late.sequence, late.fault, late.released) == (known, None, AckRanges())


@BOTH
@pytest.mark.spec("S-ACK-002", "S-ACK-003", "S-ACK-004", "S-ACK-015")
@pytest.mark.parametrize("wrong", [(1, 4), (3, 2), (0, 2), (1, MAX_MESSAGE_NUMBER)])
def test_an_acknowledgement_that_cannot_be_true_is_answered_and_releases_nothing(
    rm: RMVersion, wrong: tuple[int, int]
) -> None:
    before = sending(3, rm)
    step = acknowledge(before, (1, 1), wrong)
    assert step.fault is not None
    assert step.fault.said == SequenceAcknowledgement(IDENTIFIER, ((1, 1), wrong))
    assert step.sequence == before


@BOTH
def test_who_acknowledges_every_second_number_does_not_grow_what_is_kept_without_end(rm: RMVersion) -> None:
    odd = AckRanges(tuple((number, number) for number in range(1, 2 * MOST_RANGES, 2)))
    sequence = sending(rm=rm)._replace(given=3 * MOST_RANGES, acknowledged=odd)
    assert acknowledge(sequence, (2 * MOST_RANGES + 1, 2 * MOST_RANGES + 1)).sequence == sequence
    assert acknowledge(sequence, (1, 3 * MOST_RANGES)).sequence.is_acknowledged


@BOTH
def test_what_an_acknowledgement_leaves_out_below_later_numbers_is_forgotten_if_it_was_acknowledged_before(
    rm: RMVersion,
) -> None:
    before = acknowledge(sending(9, rm), (1, 3), (5, 6)).sequence
    for ranges, forgotten in (
        (((1, 3), (5, 7)), ()),
        (((1, 2),), ()),  # an older one
        (((7, 7),), ((1, 3), (5, 6))),
        (((1, 1), (6, 8)), ((2, 3), (5, 5))),
        (((6, 8), (1, 2), (3, 5)), ()),
    ):
        assert acknowledge(before, *ranges).forgotten.ranges == forgotten


@BOTH
@pytest.mark.spec("S-ACK-005")
def test_an_acknowledgement_of_nothing_changes_nothing(rm: RMVersion) -> None:
    before = sending(2, rm)
    assert acknowledge(before) == OutboundStep(before, OutboundAct.TAKE)


@BOTH
@pytest.mark.spec("S-RET-005", "S-RET-006")
def test_a_nack_asks_for_what_is_not_acknowledged(rm: RMVersion) -> None:
    sequence = acknowledge(sending(4, rm), (1, 2)).sequence
    step = acknowledge(sequence, nacks=(2, 3))
    assert step.wanted.ranges == ((3, 3),)
    assert step.sequence == sequence
    assert acknowledge(sequence, nacks=(5,)).fault is not None


@pytest.mark.spec("S-ACK-011", "S-CLO-006", versions=("1.1",))
def test_a_final_acknowledgement_stops_new_numbers_and_leaves_the_rest_unacknowledged() -> None:
    step = acknowledge(sending(3), (1, 2), final=True)
    assert step.sequence.state is OutboundState.CLOSED
    assert step.sequence.unacknowledged.ranges == ((3, 3),)
    assert take(step.sequence, NewMessage(), NOW).act is OutboundAct.REFUSE


@pytest.mark.spec("S-ACK-012", versions=("1.1",))
def test_after_final_another_one_has_to_say_the_same_and_a_late_one_no_more() -> None:
    final = acknowledge(sending(3), (1, 2), final=True).sequence
    assert acknowledge(final, (1, 2), final=True).fault is None
    assert acknowledge(final, (1, 1)).fault is None
    assert acknowledge(final, (1, 3), final=True).fault is not None
    assert acknowledge(final, (1, 1), final=True).fault is not None
    assert acknowledge(final, (1, 3)).fault is not None


# ends


@pytest.mark.spec("S-TRM-003", versions=("1.1",))
def test_1_1_closes_and_terminates_and_waits_for_both_answers() -> None:
    closing = take(sending(1), Own.CLOSE, NOW)
    assert (closing.act, closing.sequence.state) == (OutboundAct.CLOSE, OutboundState.CLOSING)
    assert take(closing.sequence, NewMessage(), NOW).act is OutboundAct.REFUSE
    closed = take(closing.sequence, Own.CLOSE_CONFIRMED, NOW).sequence
    assert closed.state is OutboundState.CLOSED
    terminating = take(closed, Own.TERMINATE, NOW)
    assert (terminating.act, terminating.sequence.state) == (OutboundAct.TERMINATE, OutboundState.TERMINATING)
    ended = take(terminating.sequence, Own.TERMINATE_CONFIRMED, NOW)
    assert ended.sequence.state is OutboundState.TERMINATED
    assert ended.in_doubt.ranges == ((1, 1),)


@pytest.mark.spec("S-TRM-002", versions=("1.1",))
def test_a_sequence_that_is_gone_there_when_it_is_terminated_has_ended_well() -> None:
    done = acknowledge(sending(1), (1, 1)).sequence
    step = fault(take(done, Own.TERMINATE, NOW).sequence, "UnknownSequence")
    assert step.sequence.state is OutboundState.TERMINATED
    assert not step.in_doubt


@pytest.mark.spec("S-TRM-004", versions=("1.0",))
def test_1_0_terminates_only_what_has_a_last_message_and_is_acknowledged() -> None:
    assert take(sending(rm=WSRM_1_0), Own.TERMINATE, NOW).act is OutboundAct.IGNORE
    sequence = take(sending(1, WSRM_1_0), NewMessage(last=True), NOW).sequence
    assert take(sequence, Own.TERMINATE, NOW).act is OutboundAct.IGNORE
    step = take(acknowledge(sequence, (1, 2)).sequence, Own.TERMINATE, NOW)
    assert (step.act, step.sequence.state) == (OutboundAct.TERMINATE, OutboundState.TERMINATED)


@BOTH
@pytest.mark.spec("S-TRM-006")
def test_the_destination_may_end_the_sequence_and_what_is_unacknowledged_is_told(rm: RMVersion) -> None:
    step = take(acknowledge(sending(3, rm), (1, 1)).sequence, TerminateSequence(IDENTIFIER), NOW)
    assert (step.act, step.sequence.state) == (OutboundAct.CONFIRM, OutboundState.TERMINATED)
    assert step.in_doubt.ranges == ((2, 3),)
    assert take(step.sequence, TerminateSequence(IDENTIFIER), NOW) == OutboundStep(step.sequence, OutboundAct.CONFIRM)


@pytest.mark.spec("S-CLO-003", "S-RET-012", versions=("1.1",))
def test_the_destination_may_close_the_sequence() -> None:
    for step in (take(sending(1), CloseSequence(IDENTIFIER), NOW), fault(sending(1), "SequenceClosed")):
        assert step.sequence.state is OutboundState.CLOSED
        assert take(step.sequence, NewMessage(), NOW).act is OutboundAct.REFUSE
        assert acknowledge(step.sequence, (1, 1)).sequence.is_acknowledged


@BOTH
@pytest.mark.parametrize(
    ("code", "state"),
    [("SequenceTerminated", OutboundState.TERMINATED), ("UnknownSequence", OutboundState.FAILED)],
)
def test_a_sequence_that_the_destination_does_not_know_has_failed_and_one_that_it_has_ended_is_terminated(
    rm: RMVersion, code: str, state: OutboundState
) -> None:
    step = fault(sending(2, rm), code)
    assert (step.sequence.state, step.in_doubt.ranges) == (state, ((1, 2),))
    assert fault(sending(2, rm), "InvalidAcknowledgement").sequence == sending(2, rm)


@BOTH
def test_where_nothing_more_can_be_sent_the_sequence_stays_until_it_is_acknowledged(rm: RMVersion) -> None:
    closed = take(sending(2, rm), Own.CHANNEL_ENDED, NOW).sequence
    assert closed.state is OutboundState.CLOSED
    done = acknowledge(closed, (1, 2)).sequence
    assert take(done, Own.CHANNEL_ENDED, NOW).sequence.state is OutboundState.TERMINATED
    assert take(sending(rm=rm), Own.CHANNEL_ENDED, NOW).sequence.state is OutboundState.TERMINATED


@BOTH
@pytest.mark.spec("S-TRM-008")
def test_the_clock_ends_it_silently_and_the_event_meets_the_ended_one(rm: RMVersion) -> None:
    sequence = sending(2, rm, expires_at=NOW + 10)
    assert take(sequence, Own.TIME_PASSED, NOW + 9) == OutboundStep(sequence, OutboundAct.IGNORE)
    expired = take(sequence, Own.TIME_PASSED, NOW + 10)
    assert (expired.sequence.state, expired.in_doubt.ranges) == (OutboundState.EXPIRED, ((1, 2),))
    late = take(sequence, NewMessage(), NOW + 10)
    assert (late.act, late.header, late.in_doubt.ranges) == (OutboundAct.REFUSE, None, ((1, 2),))


# with a destination

NETWORK = st.lists(
    st.one_of(
        st.just(("new", 0)),
        st.tuples(st.just("send"), st.integers(0, 9)),
        st.tuples(st.just("send twice"), st.integers(0, 9)),
        st.just(("acknowledge", 0)),
        st.tuples(st.just("old acknowledgement"), st.integers(0, 9)),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([WSRM_1_0, WSRM_1_1]), NETWORK)
@pytest.mark.spec("S-RET-001", "S-RET-003", versions="all")
def test_any_mix_of_losses_duplicates_and_late_acknowledgements_ends_with_each_message_once_in_order(
    rm: RMVersion, history: list[tuple[str, int]]
) -> None:
    source, destination = sending(rm=rm), opened(rm)
    said = [destination.acknowledgement()]
    arrived: list[int] = []

    def transmit(number: int) -> None:
        nonlocal destination
        before = destination.limit
        destination = having(destination, [number])
        arrived.extend(range(before, destination.limit))
        said.append(destination.acknowledgement())

    def hear(acknowledgement: SequenceAcknowledgement) -> None:
        nonlocal source
        step = take(source, acknowledgement, NOW)
        assert step.fault is None, "no true acknowledgement is taken for a lie, however late"
        assert not source.acknowledged.without(step.sequence.acknowledged), "nothing acknowledged is sent again"
        source = step.sequence

    for what, choice in history:
        waiting = [n for low, high in source.unacknowledged for n in range(low, high + 1)]
        if what == "new":
            source = take(source, NewMessage(), NOW).sequence
        elif what == "acknowledge":
            hear(said[-1])
        elif what == "old acknowledgement":
            hear(said[choice % len(said)])
        elif waiting:
            for _ in range(2 if what == "send twice" else 1):
                transmit(waiting[choice % len(waiting)])
    while not source.is_acknowledged:
        transmit(source.acknowledged.expected)
        hear(said[-1])
    assert arrived == list(range(1, source.given + 1))


@BOTH
def test_what_is_no_event_of_a_sequence_is_a_mistake_here(rm: RMVersion) -> None:
    with pytest.raises(TypeError, match="is no input of a sequence"):
        take(sending(1, rm), "a message", NOW)  # type: ignore[arg-type]
