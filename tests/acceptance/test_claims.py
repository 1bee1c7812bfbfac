"""What a test claims by its markers, and which claims are refused."""

from __future__ import annotations

import pytest

from .claims import Claims, claims
from .tables import Cell, project_tables


def claimed(*marks: pytest.MarkDecorator, rm: str | None = None) -> Claims:
    return claims([decorator.mark for decorator in marks], project_tables(), rm)


mark = pytest.mark


def test_a_test_in_rm_1_1_shows_the_row_for_1_2_too() -> None:
    cells = [Cell("D-SEQ-004", "destination", "1.1"), Cell("D-SEQ-004", "destination", "1.2")]
    assert claimed(mark.spec("D-SEQ-004"), rm="1.1") == Claims(tuple(cells), ())


def test_a_row_of_another_version_has_no_cell() -> None:
    assert claimed(mark.spec("D-SEQ-015"), rm="1.1") == Claims((), ())


def test_a_row_with_two_halves_means_the_destination_unless_said() -> None:
    assert claimed(mark.spec("NS-001"), rm="1.0").cells == (Cell("NS-001", "destination", "1.0"),)
    assert claimed(mark.spec("NS-001", half="source"), rm="1.0").cells == (Cell("NS-001", "source", "1.0"),)


def test_both_halves_of_a_row_may_be_shown_by_one_test() -> None:
    both = claimed(mark.spec("NS-001", half="source"), mark.spec("NS-001", half="destination"), rm="1.0")
    assert (len(both.cells), both.problems) == (2, ())


def test_a_row_of_one_half_needs_no_half() -> None:
    assert claimed(mark.spec("S-CRE-001"), rm="1.0").cells == (Cell("S-CRE-001", "source", "1.0"),)


def test_other_tables_have_neither_half_nor_version() -> None:
    cells = claimed(mark.scenario("Q-038"), mark.peer("P-22"), mark.invariant("I4")).cells
    assert cells == (Cell("I4"), Cell("P-22"), Cell("Q-038"))


def test_other_markers_are_left_alone() -> None:
    assert claimed(mark.timeout(5)) == Claims((), ())


@pytest.mark.parametrize(
    ("marker", "rm", "message"),
    [
        (mark.spec("D-SEQ-999"), "1.0", "'D-SEQ-999' is in no table (is D-SEQ-0"),
        (mark.spec("?"), "1.0", "'?' is in no table"),
        (mark.spec("D-SEQ-004"), None, "no version for D-SEQ-004: take rm, or say versions=(...)"),
        (mark.spec("D-SEQ-004", versions="1.0"), None, "versions='1.0' is neither \"all\" nor a tuple"),
        (mark.spec("D-SEQ-004", versions=("2",)), None, "versions=('2',) is neither \"all\" nor a tuple"),
        (mark.spec("D-SEQ-004", versions=()), None, 'versions=() is neither "all" nor a tuple'),
        (mark.spec("D-SEQ-004", versions="all"), "1.0", "versions= for D-SEQ-004 beside rm"),
        (mark.spec("D-SEQ-015", versions=("1.1",)), None, "D-SEQ-015 is about 1.0, none of which"),
        (mark.spec("D-SEQ-004", when="now"), "1.0", "the marker spec does not take when"),
        (mark.spec(), "1.0", "the marker spec names no id"),
        (mark.spec(["D-SEQ-004"]), "1.0", "['D-SEQ-004'] is no id"),
        (mark.spec("Q-038"), "1.0", "Q-038 is named with the marker scenario, not spec"),
        (mark.scenario("Q-038", versions="all"), None, "the marker scenario does not take versions"),
        (mark.invariant("I18"), None, "'I18' is no invariant: they are I1 to I17"),
        (mark.spec("D-SEQ-004", "D-SEQ-004"), "1.0", "D-SEQ-004 destination is named 2 times"),
        (mark.spec("SEC-006"), "1.1", "SEC-006 destination is listed as deviating"),
        (mark.spec("POL-009"), "1.1", "POL-009 destination is listed as deviating"),
        (mark.spec("D-SEQ-004", half="source"), "1.0", "D-SEQ-004 (role D) has no source half"),
        (mark.spec("NS-001", half="both"), "1.0", "half='both' is neither destination nor source"),
        (mark.spec("NS-001", "S-CRE-001"), "1.0", "NS-001 has two halves and the test is about the source"),
    ],
)
def test_a_marker_that_says_too_much_or_too_little_is_refused(
    marker: pytest.MarkDecorator, rm: str | None, message: str
) -> None:
    (problem,) = claimed(marker, rm=rm).problems
    assert problem.startswith(message)


def test_a_half_is_needed_beside_a_marker_for_the_source() -> None:
    (problem,) = claimed(mark.spec("NS-001"), mark.spec("NS-010", half="source"), rm="1.0").problems
    assert problem == "NS-001 has two halves and the test is about the source too: say half="


def test_five_ids_are_the_most_over_all_markers() -> None:
    five = [
        mark.spec("D-SEQ-004", "D-SEQ-005"),
        mark.scenario("Q-038"),
        mark.peer("P-22"),
        mark.invariant("I4"),
    ]
    assert claimed(*five, rm="1.0").problems == ()
    (problem,) = claimed(*five, mark.scenario("Q-039"), rm="1.0").problems
    assert problem.startswith("6 ids on one test, at most 5 may be: D-SEQ-004, D-SEQ-005, I4, ")
