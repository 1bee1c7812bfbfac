"""xs:duration, in milliseconds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wsrm_mq.envelope.lexical import MAX_DURATION, parse_duration, render_duration

DAY = 86_400_000


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT10M", 600_000),
        (" PT1S\n", 1_000),
        ("PT0.25S", 250),
        ("PT1.5S", 1_500),
        ("PT1.0009S", 1_000),
        ("P1D", DAY),
        ("P1M", 28 * DAY),
        ("P1Y", 365 * DAY),
        ("P1Y2M3DT4H5M6.7S", (365 + 56 + 3) * DAY + 4 * 3_600_000 + 5 * 60_000 + 6_700),
        ("PT36H", 36 * 3_600_000),
        ("P5000Y", MAX_DURATION),
        ("PT" + "9" * 100_000 + "S", MAX_DURATION),
        ("PT" + "0" * 100_000 + "7S", 7_000),
        ("PT0S", None),
        ("-PT0S", None),
        ("P0Y", None),
        ("P0DT0.000S", None),
    ],
)
def test_a_duration_is_read(text: str, milliseconds: int | None) -> None:
    assert parse_duration(text) == milliseconds


NONE = "|P|PT|P1DT|1D|P1|PT1|P1S|PT1D|P1H|PT1.S|PT.5S|P1.5D|PT1M2H|P１D|P 1D|+P1D|P-1D|PT1S PT1S|PT1e3S"


@pytest.mark.parametrize("text", NONE.split("|"))
def test_what_is_no_duration_is_not_read(text: str) -> None:
    with pytest.raises(ValueError, match="not an xs:duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["-PT5S", "-P1Y", "-PT0.001S", "-PT0.0001S", "-P" + "9" * 50 + "D"])
def test_a_negative_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="negative"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["PT0.0009S", "P0DT0.0000001S"])
def test_what_is_shorter_than_a_millisecond_is_not_taken_for_never_or_for_longer(text: str) -> None:
    with pytest.raises(ValueError, match="shorter than a millisecond"):
        parse_duration(text)


@given(st.none() | st.integers(1, MAX_DURATION))
def test_what_is_written_is_read_back(milliseconds: int | None) -> None:
    assert parse_duration(render_duration(milliseconds)) == milliseconds


def test_durations_are_written_in_seconds() -> None:
    assert [render_duration(ms) for ms in (None, 600_000, 1_500, 1)] == ["PT0S", "PT600S", "PT1.500S", "PT0.001S"]
