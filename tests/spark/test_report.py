"""The page and its drawings, from contents of any size."""

from __future__ import annotations

from typing import Any

from lxml import html

from wsrm_mq.spark.report.charts import Line, bars, lines, strip
from wsrm_mq.spark.report.contents import SECTIONS, SUMS, Contents
from wsrm_mq.spark.report.page import page

NOTHING: dict[str, Any] = {
    "at": "2026-03-01T06:00:00Z",
    **{name: 0 for sums in SUMS.values() for name in sums},
    "findings": [],
}
"""The summary of stores without a message."""
HOUR = 3_600_000


def test_without_a_message_it_says_that_nothing_is_missing() -> None:
    written = page(Contents(NOTHING, [], "hour", {}, [], [], {name: (0, []) for name in SECTIONS}))
    (verdict,) = html.fromstring(written).find_class("verdict")
    assert verdict.text == "Nothing is missing, nothing came twice unrecognised, nothing stands still."
    assert b"default-src 'none'" in written


def test_what_is_not_shown_is_said_to_be_in_its_table() -> None:
    rows: dict[str, tuple[int, list[Any]]] = {name: (0, []) for name in SECTIONS}
    row = dict.fromkeys(SECTIONS["gaps"].columns, None) | {"store": "s", "lower": 1, "upper": 2, "missing": 2}
    rows["gaps"] = (1_234, [row] * 20)
    said = page(Contents(NOTHING, [("n", "s", 1)], "hour", {}, [], [], rows)).decode()
    assert "The first 20 of 1,234; all are in the table gaps." in said


def test_a_chart_has_a_point_for_each_value_however_few_or_large() -> None:
    for values in ([0.0], [3.0, 5.0e9, 1.5]):
        drawn = lines([place * HOUR for place in range(len(values))], [Line("p50", values)], "hour", "Latency")
        circles = drawn.findall("circle")
        assert len(circles) == len(values)
        assert all(0 <= float(one.get("cy")) <= 180 and 0 <= float(one.get("cx")) <= 760 for one in circles)


def test_what_is_missing_is_seen_in_the_longest_sequence() -> None:
    drawn = strip(10**9, [(1, 10**9 - 1)], [(10**9, 10**9)], "Numbers")
    received, missing = drawn.findall("rect")
    assert float(missing.get("width")) >= 2
    assert float(missing.get("x")) + float(missing.get("width")) <= 760
    assert missing.find("title").text == "missing: 1,000,000,000"
    assert received.find("title").text == "received: 1 to 999,999,999"


def test_bars_name_a_partner_whole_where_it_is_pointed_at() -> None:
    drawn = bars([("p" * 60, 1_000), ("q", 1)], "Missing")
    assert [one.find("title").text for one in drawn.findall("g")] == ["p" * 60, "q"]
    assert [one.text for one in drawn.findall("text")] == ["1,000", "1"]
