"""What becomes of accepted messages when a sequence closes or ends: behavior, way to end, what is missing."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from tests.sequence.build import ENTIRE, FOLLOWING, NO_DISCARD, NOW, close, deliverable, having, opened, terminate
from wsrm_mq.sequence.elements import IncompleteSequenceBehavior
from wsrm_mq.sequence.inbound import GaveUp, InboundSequence, Step, TimePassed, receive
from wsrm_mq.sequence.ranges import EMPTY, AckRanges
from wsrm_mq.sequence.states import State

EXPIRES = 60_000


def expire(sequence: InboundSequence, last_number: int | None) -> Step:
    return receive(sequence, TimePassed(), NOW + EXPIRES)


WAYS: dict[str, Callable[[InboundSequence, int | None], Step]] = {
    "close": close,
    "terminate": terminate,
    "expire": expire,
}
ARRIVED = {
    # name: (numbers, LastMsgNumber that close and terminate state)
    "complete": ((1, 2, 3), 3),
    "complete, last number unsaid": ((1, 2, 3), None),
    "gap": ((1, 2, 4, 5), 5),
    "gap, last number unsaid": ((1, 2, 4, 5), None),
    "first missing": ((2, 3), 3),
    "tail missing": ((1, 2), 3),
    "gap and tail missing": ((1, 3), 5),
    "nothing": ((), None),
}
# what is delivered in the end
DELIVERED = {
    (NO_DISCARD, "complete"): [1, 2, 3],
    (NO_DISCARD, "complete, last number unsaid"): [1, 2, 3],
    (NO_DISCARD, "gap"): [1, 2, 4, 5],
    (NO_DISCARD, "gap, last number unsaid"): [1, 2, 4, 5],
    (NO_DISCARD, "first missing"): [2, 3],
    (NO_DISCARD, "tail missing"): [1, 2],
    (NO_DISCARD, "gap and tail missing"): [1, 3],
    (NO_DISCARD, "nothing"): [],
    (FOLLOWING, "complete"): [1, 2, 3],
    (FOLLOWING, "complete, last number unsaid"): [1, 2, 3],
    (FOLLOWING, "gap"): [1, 2],
    (FOLLOWING, "gap, last number unsaid"): [1, 2],
    (FOLLOWING, "first missing"): [],
    (FOLLOWING, "tail missing"): [1, 2],
    (FOLLOWING, "gap and tail missing"): [1],
    (FOLLOWING, "nothing"): [],
    (ENTIRE, "complete"): [1, 2, 3],
    (ENTIRE, "complete, last number unsaid"): [1, 2, 3],
    (ENTIRE, "gap"): [],
    (ENTIRE, "gap, last number unsaid"): [],
    (ENTIRE, "first missing"): [],
    (ENTIRE, "tail missing"): [],
    (ENTIRE, "gap and tail missing"): [],
    (ENTIRE, "nothing"): [],
}


def expected(behavior: IncompleteSequenceBehavior, arrived: str, way: str) -> list[int]:
    if way == "expire" and arrived == "tail missing":
        arrived = "complete, last number unsaid"  # how many there are was never said
        return DELIVERED[behavior, arrived][:2]
    return DELIVERED[behavior, arrived]


def test_the_table_covers_every_case() -> None:
    assert set(DELIVERED) == set(itertools.product((NO_DISCARD, FOLLOWING, ENTIRE), ARRIVED))


@pytest.mark.spec("D-DEL-009", "D-DEL-011", "D-DEL-014", "D-DEL-016", "D-EXP-003", versions=("1.1",))
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("arrived", ARRIVED)
@pytest.mark.parametrize("behavior", [NO_DISCARD, FOLLOWING, ENTIRE])
def test_an_end_delivers_and_discards_what_the_behavior_says(
    behavior: IncompleteSequenceBehavior, arrived: str, way: str
) -> None:
    numbers, last_number = ARRIVED[arrived]
    sequence = having(opened(behavior=behavior, expires_at=NOW + EXPIRES), numbers)
    step = WAYS[way](sequence, last_number)
    assert deliverable(step.sequence) == expected(behavior, arrived, way)
    kept = set(deliverable(step.sequence))
    discarded = {n for n in numbers if step.sequence.discard_from is not None and n >= step.sequence.discard_from}
    assert kept | discarded == set(numbers), "every accepted message is delivered or given up with a reason"
    assert not kept & discarded
    assert (step.sequence.discard_reason is not None) == (step.sequence.discard_from is not None)


@pytest.mark.spec("D-DEL-017", "D-ACK-011", "D-CLO-002", versions=("1.1",))
@pytest.mark.parametrize("behavior", [NO_DISCARD, FOLLOWING, ENTIRE])
def test_the_final_acknowledgement_names_discarded_messages_too_and_never_changes(
    behavior: IncompleteSequenceBehavior,
) -> None:
    closed = close(having(opened(behavior=behavior), [1, 2, 4, 5])).sequence
    assert closed.acknowledgement().ranges == ((1, 2), (4, 5))
    assert closed.acknowledgement().final
    assert terminate(closed).sequence.acknowledgement() == closed.acknowledgement()


@pytest.mark.spec("D-DEL-013", versions=("1.1",))
@pytest.mark.parametrize("ordered", [True, False])
def test_a_behavior_that_discards_after_a_gap_delivers_nothing_behind_it_while_open(ordered: bool) -> None:
    sequence = having(opened(behavior=FOLLOWING, ordered=ordered), [1, 2, 4])
    assert deliverable(sequence) == [1, 2]
    assert deliverable(having(sequence, [3])) == [1, 2, 3, 4]


@pytest.mark.spec("D-DEL-015", versions=("1.1",))
@pytest.mark.parametrize("ordered", [True, False])
def test_discard_entire_sequence_delivers_nothing_before_the_sequence_is_known_complete(ordered: bool) -> None:
    sequence = having(opened(behavior=ENTIRE, ordered=ordered), [3, 1, 2])
    assert deliverable(sequence) == []
    assert deliverable(close(sequence, 3).sequence) == [1, 2, 3]


@pytest.mark.spec("D-DEL-010", versions=("1.1",))
def test_no_discard_says_which_numbers_delivery_passed_over() -> None:
    step = close(having(opened(), [2, 5]), 7)
    assert step.released_across == AckRanges.of([1, 3, 4])
    assert step.sequence.limit == 6


@pytest.mark.parametrize("way", ["terminate", "expire"])
def test_what_a_close_has_decided_is_not_decided_again(way: str) -> None:
    closed = close(having(opened(behavior=FOLLOWING, expires_at=NOW + EXPIRES), [1, 3])).sequence
    ended = WAYS[way](closed, None)
    assert ended.sequence.discard_from == closed.discard_from == 2
    assert ended.sequence.limit == closed.limit
    crossing = close(having(opened(expires_at=NOW + EXPIRES), [1, 3])).sequence
    assert WAYS[way](crossing, None).released_across == EMPTY, "it was told when it closed"


def test_a_contradicted_end_applies_the_behavior_too() -> None:
    step = terminate(having(opened(), [1, 3, 5]), last_number=2)
    assert step.sequence.state is State.REFUSED
    assert deliverable(step.sequence) == [1, 3, 5]
    assert step.released_across == AckRanges.of([2, 4])


def test_without_order_there_is_nothing_left_to_pass_over() -> None:
    step = close(having(opened(ordered=False), [1, 4]))
    assert step.released_across == EMPTY
    assert deliverable(step.sequence) == [1, 4]


@pytest.mark.parametrize("before", ["created", "closed", "terminated"])
def test_giving_up_gives_up_every_unsettled_message(before: str) -> None:
    sequence = having(opened(), [1, 2, 4])
    sequence = {"created": sequence, "closed": close(sequence).sequence, "terminated": terminate(sequence).sequence}[
        before
    ]
    step = receive(sequence, GaveUp(), NOW)
    assert deliverable(step.sequence) == []
    assert step.sequence.discard_from == 1
    assert step.sequence.state is (State.TERMINATED if before == "terminated" else State.FAILED)
    assert step.ended_now == (before != "terminated")


def test_the_reason_of_a_discarded_tail_is_the_one_agreed() -> None:
    sequence = having(opened(behavior=FOLLOWING, incomplete_reason="on_incomplete"), [1, 3])
    assert close(sequence).sequence.discard_reason == "on_incomplete"
    assert close(having(opened(behavior=ENTIRE), [1, 3])).sequence.discard_reason == "incomplete_sequence"
