"""A checker that cannot fail proves nothing: it is shown each thing it has to find."""

from __future__ import annotations

import pytest

from tests.soak.checker import Evidence, judge, plant

CLEAN = [
    Evidence("urn:a", frozenset({1}), [1], [(1, False)]),
    Evidence("urn:b", frozenset({1, 2, 3}), [1, 2, 3], [(1, False), (2, False), (2, True), (3, False)]),
]


def test_a_clean_run_has_a_clean_line() -> None:
    verdict = judge(CLEAN)
    assert verdict.is_clean
    assert verdict.line(7) == "soak: 4 acknowledged, 7 kills, 0 lost, 0 repeated, 0 disordered, 0 orphaned"


@pytest.mark.parametrize(
    ("mistake", "counts"),
    [("loss", (1, 0, 0, 0)), ("repeat", (0, 1, 0, 0)), ("disorder", (0, 0, 1, 0)), ("orphan", (0, 0, 0, 1))],
)
def test_what_is_planted_is_found_and_counted(mistake: str, counts: tuple[int, int, int]) -> None:
    verdict = judge(plant(mistake, CLEAN))
    assert not verdict.is_clean
    assert (verdict.lost, verdict.repeated, verdict.disordered, verdict.orphaned) == counts
    assert all(problem.startswith("urn:b: ") for problem in verdict.found)


def test_a_call_repeated_without_its_mark_counts_as_repeated() -> None:
    verdict = judge([Evidence("urn:a", frozenset({1}), [1], [(1, False), (1, False)])])
    assert (verdict.repeated, verdict.is_clean) == (1, False)


def test_what_an_operator_gave_up_is_not_lost_and_the_rest_is() -> None:
    skipped = Evidence("urn:a", frozenset({1, 2, 3}), [1, 3], [(1, False), (3, False)], frozenset({2}))
    assert judge([skipped]).is_clean
    assert judge([Evidence("urn:a", frozenset({1, 2, 3}), [1, 3], skipped.calls)]).lost == 1


def test_an_effect_without_an_acknowledgement_is_no_problem() -> None:
    """The answer was lost, or never came: the message was taken all the same."""
    assert judge([Evidence("urn:a", frozenset({1}), [1, 2], [(1, False), (2, False)])]).is_clean
