"""A checker that cannot fail proves nothing: it is shown each thing it has to find."""

from __future__ import annotations

from tests.crash.checker import problems

CALLS = [(n, False) for n in (1, 2, 3)]


def test_a_clean_run_has_no_problems() -> None:
    assert problems({1, 2, 3}, [1, 2, 3], CALLS) == []


def test_a_call_repeated_with_its_mark_is_no_problem() -> None:
    assert problems({1, 2, 3}, [1, 2, 3], [*CALLS, (3, True)]) == []


def test_a_planted_loss_is_found() -> None:
    assert problems({1, 2, 3}, [1, 3], CALLS) == ["lost: 2 was acknowledged and has no effect"]


def test_a_planted_repeat_is_found() -> None:
    assert problems({1, 2}, [1, 2, 2], CALLS) == ["repeated: 2 has 2 effects"]


def test_a_planted_swap_is_found() -> None:
    assert problems({1, 2, 3}, [1, 3, 2], CALLS) == ["disordered: 2 came after 3"]


def test_a_call_repeated_without_its_mark_is_found() -> None:
    assert problems({1}, [1], [(1, False), (1, False)]) == ["unmarked: 1 was called again without a mark of redelivery"]
