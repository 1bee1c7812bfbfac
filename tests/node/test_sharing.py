"""How ready messages are shared among subscriptions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wsrm_mq.node.sharing import Load, shares

pytestmark = pytest.mark.local("tests a part of the local node by itself")

LOADS = st.lists(
    st.integers(1, 20).flatmap(lambda granted: st.builds(Load, st.integers(0, granted), st.just(granted))), min_size=1
)


@pytest.mark.scenario("Q-076")
def test_the_next_message_goes_to_the_one_with_the_smallest_part_of_its_backlog_in_use() -> None:
    assert shares("proportional", [Load(1, 2), Load(3, 4), Load(4, 10)], 1) == [0, 0, 1]


@pytest.mark.scenario("Q-076")
def test_more_messages_go_to_where_they_leave_all_equally_busy() -> None:
    assert shares("proportional", [Load(0, 2), Load(0, 4)], 3) == [1, 2]


def test_fast_is_the_first_that_has_room() -> None:
    assert shares("fast", [Load(2, 2), Load(1, 4), Load(0, 10)], 5) == [0, 3, 2]


def test_round_robin_is_one_after_the_other_from_where_it_was() -> None:
    assert shares("round_robin", [Load(0, 9), Load(2, 3), Load(0, 9)], 4, first=2) == [1, 1, 2]


@given(st.sampled_from(["proportional", "fast", "round_robin"]), LOADS, st.integers(0, 100), st.integers(0, 10))
def test_all_that_finds_room_is_given_and_none_gets_more_than_it_has_room_for(
    fairness: str, loads: list[Load], count: int, first: int
) -> None:
    given = shares(fairness, loads, count, first)
    assert sum(given) == min(count, sum(load.room for load in loads))
    assert all(0 <= part <= load.room for part, load in zip(given, loads, strict=True))
