"""How long a destination takes to acknowledge, and when a message is taken for lost."""

from __future__ import annotations

import pytest

from wsrm_mq.sequence.outbound import LEAST, LONGEST, RoundTrips

STEP = 3_000


def test_where_nothing_was_acknowledged_yet_the_ladder_alone_counts() -> None:
    assert RoundTrips().wait(1, STEP, 1) == STEP


def test_the_first_time_out_is_three_times_the_first_round_trip() -> None:
    trips = RoundTrips()
    trips.took(1, 4_000)
    assert trips.wait(1, STEP, 1) == 12_000
    assert trips.wait(2, STEP, 1) == STEP


def test_round_trips_that_stay_alike_bring_the_time_out_near_them() -> None:
    trips = RoundTrips()
    for _ in range(100):
        trips.took(1, 4_000)
    assert 4_000 <= trips.wait(1, STEP, 1) < 4_100


def test_round_trips_that_vary_keep_it_further_away() -> None:
    trips = RoundTrips()
    for number in range(100):
        trips.took(1, 2_000 if number % 2 else 6_000)
    assert trips.wait(1, STEP, 1) > 10_000


@pytest.mark.parametrize(("attempt", "waits"), [(1, LEAST), (2, STEP)])
def test_a_quick_destination_has_its_first_wait_cut_and_no_later_one(attempt: int, waits: int) -> None:
    trips = RoundTrips()
    for _ in range(10):
        trips.took(1, 5)
    assert trips.wait(1, STEP, attempt) == waits


def test_a_ladder_that_is_quicker_still_is_left_as_it_is() -> None:
    trips = RoundTrips()
    trips.took(1, 5)
    assert trips.wait(1, 200, 1) == 200


def test_nothing_waits_longer_for_it_than_its_bound_says() -> None:
    trips = RoundTrips()
    trips.took(1, 10 * LONGEST)
    assert trips.wait(1, STEP, 1) == LONGEST
    assert trips.wait(1, 2 * LONGEST, 5) == 2 * LONGEST
