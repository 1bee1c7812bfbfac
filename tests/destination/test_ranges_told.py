"""Fewer ranges than there are: what is told is true, and what matters most to a source is told."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wsrm_mq.destination.answers import within
from wsrm_mq.sequence.elements import SequenceAcknowledgement
from wsrm_mq.sequence.ranges import AckRanges

RANGES = st.sets(st.integers(1, 60)).map(lambda numbers: AckRanges.of(numbers).ranges)
ACKNOWLEDGEMENTS = st.lists(
    st.builds(SequenceAcknowledgement, st.text("ab", max_size=2), RANGES, final=st.booleans()),
    max_size=4,
    unique_by=lambda one: one.identifier,  # an answer has one of each sequence
)


def acknowledged(*ranges: tuple[int, int], final: bool = False) -> SequenceAcknowledgement:
    return SequenceAcknowledgement("urn:x", ranges, final=final)


@given(ACKNOWLEDGEMENTS, st.integers(1, 70), st.integers(1, 8))
def test_what_is_told_is_true_and_covers_the_message_that_came(
    there: list[SequenceAcknowledgement], number: int, most: int
) -> None:
    told = within(there, number, most)
    waiting = iter(there)
    for one in told:
        whole = next(
            each for each in waiting if each.identifier == one.identifier and set(one.ranges) <= set(each.ranges)
        )
        assert list(one.ranges) == sorted(one.ranges)
        assert one._replace(ranges=()) == whole._replace(ranges=())
        assert not one.final or one.ranges == whole.ranges
    if there:
        assert told
        holding = [one for one in there[0].ranges if one[0] <= number <= one[1]]
        assert set(holding) <= set(told[0].ranges)
    if not any(one.final for one in there):
        assert sum(len(one.ranges) for one in told) <= most


def test_the_lowest_are_told_and_the_range_of_the_message_itself() -> None:
    there = acknowledged((1, 1), (3, 3), (5, 5), (7, 7), (9, 12))
    assert within([there], 11, 3)[0].ranges == ((1, 1), (3, 3), (9, 12))
    assert within([there], 3, 3)[0].ranges == ((1, 1), (3, 3), (5, 5))
    assert within([there], None, 3)[0].ranges == ((1, 1), (3, 3), (5, 5))
    assert within([there], 11, 1)[0].ranges == ((9, 12),)
    assert within([there], 11, 5) == [there]


def test_a_final_one_is_told_whole_or_asked_for_again() -> None:
    final = acknowledged((1, 1), (3, 3), (5, 5), final=True)
    assert within([final, final], None, 2) == [final]
    assert within([acknowledged((1, 1)), final], None, 3) == [acknowledged((1, 1))]
    assert within([acknowledged((1, 1)), final], None, 4) == [acknowledged((1, 1)), final]
