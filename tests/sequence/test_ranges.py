from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wsrm_mq.sequence.ranges import EMPTY, AckRanges

NUMBERS = st.sets(st.integers(1, 40), max_size=25)
NUMBER = st.integers(1, 45)


def members(ranges: AckRanges) -> set[int]:
    return {n for low, high in ranges for n in range(low, high + 1)}


def never_touch(ranges: AckRanges) -> bool:
    ordered = all(low <= high for low, high in ranges)
    return ordered and all(a[1] + 1 < b[0] for a, b in zip(ranges.ranges, ranges.ranges[1:], strict=False))


@given(NUMBERS)
def test_ranges_of_a_set_hold_exactly_its_numbers_and_never_touch(numbers: set[int]) -> None:
    ranges = AckRanges.of(numbers)
    assert members(ranges) == numbers
    assert never_touch(ranges)
    assert all((n in ranges) == (n in numbers) for n in range(0, 50))
    assert bool(ranges) == bool(numbers)


@pytest.mark.peer("P-74")
@pytest.mark.spec("D-SEQ-005", "D-ACK-003", "D-ACK-004", versions="all")
@given(st.permutations(list(range(1, 9))), st.integers(0, 8))
def test_the_order_of_arrival_does_not_change_the_ranges(order: list[int], kept: int) -> None:
    arrived = EMPTY
    for number in order[:kept]:
        arrived = arrived.add(number)
        assert never_touch(arrived)
    assert arrived == AckRanges.of(order[:kept])


@pytest.mark.peer("P-74")
def test_numbers_that_arrive_downwards_end_in_one_range() -> None:
    ranges = EMPTY
    seen = []
    for number in (1, 5, 4, 3, 2):
        ranges = ranges.add(number)
        seen.append(str(ranges))
    assert seen == ["1", "1,5", "1,4-5", "1,3-5", "1-5"]


@given(NUMBERS, NUMBER)
def test_add_and_remove_agree_with_a_set(numbers: set[int], number: int) -> None:
    ranges = AckRanges.of(numbers)
    added, removed = ranges.add(number), ranges.remove(number)
    assert members(added) == numbers | {number}
    assert members(removed) == numbers - {number}
    assert never_touch(added)
    assert never_touch(removed)
    assert members(ranges) == numbers, "the value that was changed has to stay as it was"


@given(NUMBERS, NUMBERS)
def test_without_is_the_difference_of_sets(numbers: set[int], others: set[int]) -> None:
    left = AckRanges.of(numbers).without(AckRanges.of(others))
    assert members(left) == numbers - others
    assert never_touch(left)


@given(NUMBERS, NUMBER)
def test_gaps_are_what_is_missing_below_a_bound(numbers: set[int], until: int) -> None:
    ranges = AckRanges.of(numbers)
    assert members(ranges.gaps(until)) == set(range(1, until + 1)) - numbers
    assert members(ranges.gaps()) == set(range(1, max(numbers, default=0) + 1)) - numbers


@given(NUMBERS, NUMBER, NUMBER)
def test_first_from_finds_the_lowest_member_of_an_interval(numbers: set[int], start: int, end: int) -> None:
    expected = min((n for n in numbers if start <= n < end), default=end)
    assert AckRanges.of(numbers).first_from(start, end) == expected


@given(NUMBERS, st.integers(0, 45))
def test_count_counts_the_members_from_a_start(numbers: set[int], start: int) -> None:
    assert AckRanges.of(numbers).count(start) == sum(n >= start for n in numbers)


@given(NUMBERS, NUMBER)
def test_end_of_is_the_end_of_the_run_that_holds_a_number(numbers: set[int], number: int) -> None:
    end = number - 1
    while end + 1 in numbers and number in numbers:
        end += 1
    assert AckRanges.of(numbers).end_of(number) == end


@given(NUMBERS, NUMBER)
def test_opens_range_says_whether_adding_would_make_one_range_more(numbers: set[int], number: int) -> None:
    ranges = AckRanges.of(numbers)
    grows = len(ranges.add(number)) > len(ranges)
    assert ranges.opens_range(number) == grows


@given(NUMBERS)
def test_expected_and_highest_frame_the_ranges(numbers: set[int]) -> None:
    ranges = AckRanges.of(numbers)
    assert ranges.expected == next(n for n in range(1, 50) if n not in numbers)
    assert ranges.highest == max(numbers, default=0)


def test_a_huge_first_number_costs_one_range() -> None:
    ranges = EMPTY.add(2**62)
    assert ranges.ranges == ((2**62, 2**62),)
    assert ranges.gaps().ranges == ((1, 2**62 - 1),)
    assert ranges.gaps().count() == 2**62 - 1


def test_equal_ranges_are_equal_values() -> None:
    assert AckRanges.of([3, 1, 2]) == AckRanges(((1, 3),))
    assert hash(AckRanges.of([1])) == hash(EMPTY.add(1))
    assert AckRanges.of([1]) != ((1, 1),)
    assert repr(AckRanges.of([1, 2, 5])) == "AckRanges(1-2,5)"


@given(NUMBERS, NUMBERS)
def test_ranges_are_joined_compared_and_read_again_as_sets_are(one: set[int], other: set[int]) -> None:
    first, second = AckRanges.of(one), AckRanges.of(other)
    assert first.union(second) == AckRanges.of(one | other)
    assert first.within(second) == AckRanges.of(one & other)
    assert AckRanges.parse(str(first)) == first


@given(NUMBERS, NUMBER, NUMBER)
def test_the_first_number_from_a_start_is_found_before_the_end(numbers: set[int], start: int, length: int) -> None:
    end = start + length
    assert AckRanges.of(numbers).first_from(start, end) == min((n for n in numbers if start <= n < end), default=end)
