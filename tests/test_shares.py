"""What is scarce is shared so that nobody who asks for all of it leaves nothing to the next."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wsrm_mq.shares import Shares


def taken(shares: Shares, *names: str) -> int:
    """How many who asks for all gets."""
    count = 0
    while shares.has_one(*names):
        shares.lend(*names)
        count += 1
    return count


def test_who_asks_for_all_gets_half_and_the_next_a_half_of_the_rest() -> None:
    shares = Shares(64)
    assert [taken(shares, who) for who in "abcdefgh"] == [32, 16, 8, 4, 2, 1, 1, 0]


def test_each_name_that_it_is_for_has_to_have_a_share_left() -> None:
    shares = Shares(64)
    assert taken(shares, "host", "a") == 32
    assert not shares.has_one("host", "b"), "another one who asks, and the same host"
    assert taken(shares, "other host", "b") == 16


def test_what_is_about_to_be_lent_is_left_to_others_no_more() -> None:
    shares = Shares(8)
    shares.lend("a")
    shares.lend("a")
    assert shares.has_one("a", beside=3)
    assert not shares.has_one("a", beside=4)
    assert shares.has_one("b", beside=5)
    assert not shares.has_one("b", beside=6)


@given(st.lists(st.sampled_from("abcd")))
def test_what_was_taken_back_is_there_again(asking: list[str]) -> None:
    shares = Shares(16)
    lent = []
    for who in asking:
        if shares.has_one(who):
            shares.lend(who)
            lent.append(who)
    for who in lent:
        shares.take_back(who)
    assert taken(shares, "e") == 8
    assert shares._lent == {"e": 8}
