"""The page and its drawings, from contents of any size."""

from __future__ import annotations

from typing import Any

from lxml import html

from wsrm_mq.spark.report import SECTIONS, SUMS, Contents, page

NOTHING: dict[str, Any] = {
    "at": "2026-03-01T06:00:00Z",
    **{name: 0 for sums in SUMS.values() for name in sums},
    "findings": [],
}
"""The summary of stores without a message."""
EMPTY = Contents(NOTHING, [], "hour", {}, [], [], {name: (0, []) for name in SECTIONS})
HOUR = 3_600_000


def shown(**contents: Any) -> Any:
    return html.fromstring(page(EMPTY._replace(**contents)).decode())


def test_without_a_message_it_says_that_nothing_is_missing() -> None:
    (verdict,) = shown().find_class("verdict")
    assert verdict.text == "Nothing is missing, nothing came twice unrecognised, nothing stands still."
    assert b"default-src 'none'" in page(EMPTY)


def test_what_is_not_shown_is_said_to_be_in_its_table() -> None:
    row = dict.fromkeys(SECTIONS["gaps"].columns, None) | {"store": "s", "lower": 1, "upper": 2, "missing": 2}
    said = shown(stores=[("n", "s", 1)], rows=EMPTY.rows | {"gaps": (1_234, [row] * 20)})
    assert "The first 20 of 1,234; all are in the table gaps." in said.text_content()
    assert [cell.text for cell in said.xpath("//tr[td]")[0]][:4] == ["n", "–", "–", "–"]


def test_text_of_a_peer_is_never_markup_and_has_no_effect_on_a_terminal() -> None:
    peer = "<b onclick='x'>\x1b[31m\u202e"
    row = dict.fromkeys(SECTIONS["dead"].columns, peer)
    gap = {"sequence": peer, "partner": peer, "store": "s", "total": 1, "last": 2}
    written = page(
        EMPTY._replace(
            stores=[(peer, "s", 1)],
            latency={peer: [{"at": 0, "p50": 1, "p95": 1, "p99": 1}]},
            partners=[(peer, 1)],
            strips=[{**gap, "received": [(1, 1)], "missing": [(2, 2)]}],
            rows=EMPTY.rows | {"dead": (1, [row])},
        )
    ).decode()
    assert html.fromstring(written).xpath("//*[@onclick]") == []
    assert not {"\x1b", "\u202e"} & set(written)
    assert written.count("\\x1b") >= 12


def test_a_chart_has_a_point_for_each_value_however_few_or_large() -> None:
    for values in ([0.0], [3.0, 5.0e9, 1.5]):
        rows = [{"at": place * HOUR, **dict.fromkeys(("p50", "p95", "p99"), v)} for place, v in enumerate(values)]
        circles = shown(latency={"/orders": rows}).xpath("//circle[@class='p50']")
        assert len(circles) == len(values)
        assert all(0 <= float(one.get("cy")) <= 180 and 0 <= float(one.get("cx")) <= 760 for one in circles)


def test_what_is_missing_is_seen_in_the_longest_sequence() -> None:
    gap = {"sequence": "s", "partner": None, "store": "s", "total": 1, "last": 10**9}
    strips = [{**gap, "received": [(1, 10**9 - 1)], "missing": [(10**9, 10**9)]}]
    received, missing = shown(strips=strips, stores=[("n", "s", 1)]).xpath("//rect")
    assert float(missing.get("width")) >= 2
    assert float(missing.get("x")) + float(missing.get("width")) <= 760
    assert missing.find("title").text == "missing: 1,000,000,000"
    assert received.find("title").text == "received: 1 to 999,999,999"


def test_bars_name_a_partner_whole_where_it_is_pointed_at() -> None:
    drawn = shown(partners=[("p" * 60, 1_000), ("q", 1)])
    assert [one.text for one in drawn.xpath("//g/title")] == ["p" * 60, "q"]
    assert drawn.xpath("//svg/text/text()") == ["1,000", "1"]
