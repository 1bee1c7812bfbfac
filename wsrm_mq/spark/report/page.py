"""The page itself: elements, built from contents. Nothing in it is fetched, and nothing runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from lxml import html
from lxml.builder import E

from wsrm_mq.events.inert import inert
from wsrm_mq.spark.report.charts import Line, bars, lines, strip
from wsrm_mq.spark.report.contents import FINDINGS, SECTIONS, Contents

Element = Any

_STYLE: Final = Path(__file__).with_name("style.css")
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_PERCENTILES: Final = ("p50", "p95", "p99")
_IDS: Final = ("sequence", "message_id")

TILES: Final = (
    ("messages", "messages"),
    ("delivered", "delivered"),
    ("unsettled", "not settled"),
    ("sequences", "sequences"),
    ("missing", "numbers missing"),
    ("gaps", "gaps"),
    ("duplicates", "duplicates left out"),
    ("late", "came out of order"),
    ("deepest", "so far behind at most"),
    ("repeated", "accepted twice"),
    ("lacking", "lacked by one store"),
    ("twice", "came more than once"),
    ("twice_same", "… with the same Body"),
    ("twice_another", "… with another Body"),
    ("twice_unknown", "… Body not known"),
    ("standing", "sequences stand still"),
    ("dead_letters_unconfirmed", "dead letters to confirm"),
    ("faults_unconfirmed", "faults to confirm"),
    ("replays", "replays"),
    ("p50_ms", "ms, half of them"),
    ("p95_ms", "ms, 95 of 100"),
    ("p99_ms", "ms, 99 of 100"),
    ("longest_ms", "ms, the longest"),
)
"""A number of the summary → what it is of."""


def page(contents: Contents) -> bytes:
    """An HTML document."""
    said, names = contents.summary, _names(contents.stores)
    head = E.head(
        E.meta(charset="utf-8"),
        E.meta(**{"http-equiv": "Content-Security-Policy", "content": _POLICY}),
        E.meta(name="viewport", content="width=device-width, initial-scale=1"),
        E.title(f"Reconciliation of {said['at']}"),
        E.style(_STYLE.read_text(encoding="utf-8")),
    )
    body = E.body(
        E.h1("Reconciliation"),
        E.p(f"{_count(len(contents.stores), 'store')}, as of {said['at']}", **{"class": "faint"}),
        _verdict(said),
        E.div(*(_tile(said, *one) for one in TILES if one[0] in said), **{"class": "tiles"}),
        *_latency(contents),
        *_partners(contents.partners),
        *_strips(contents.strips, names),
        *(part for name in SECTIONS for part in _section(name, *contents.rows[name], names)),
        *_stores(contents.stores),
    )
    written: bytes = html.tostring(E.html(head, body, lang="en"), doctype="<!DOCTYPE html>", encoding="utf-8")
    return written


def _names(stores: list[tuple[str, str, int]]) -> dict[str, str]:
    """What each store is called: its node, with the beginning of its identity where a node has two."""
    nodes = [node for node, _, _ in stores]
    return {
        store: inert(node) if nodes.count(node) == 1 else f"{inert(node)} ({inert(store)[:6]})"
        for node, store, _ in stores
    }


def _count(number: int, of: str) -> str:
    return f"{number:,} {of}{'s' if number != 1 else ''}"


def _verdict(said: Mapping[str, Any]) -> Element:
    found = [E.li(f"{one.words}: {said[one.number]:,}") for one in FINDINGS if said[one.number]]
    if not found:
        return E.p("Nothing is missing, nothing came twice unrecognised, nothing stands still.", **{"class": "verdict"})
    return E.div("To be looked at:", E.ul(*found), **{"class": "verdict bad"})


def _tile(said: Mapping[str, Any], number: str, words: str) -> Element:
    """``data-number`` names it as the summary does."""
    kind = "tile bad" if number in said["findings"] else "tile"
    return E.div(E.b(_cell(said[number]), **{"data-number": number}), E.span(words), **{"class": kind})


def _latency(contents: Contents) -> Iterable[Element]:
    if not contents.latency:
        return
    yield E.h2("Latency over time")
    yield _note(f"From receipt to the end of delivery, by {contents.unit} of receipt (UTC), of the busiest queues.")
    for queue, rows in contents.latency.items():
        drawn = [Line(name, [row[name] for row in rows]) for name in _PERCENTILES]
        yield E.h3(inert(queue))
        yield lines([row["at"] for row in rows], drawn, contents.unit, f"Latency of {inert(queue)}")


def _partners(partners: list[tuple[str, int]]) -> Iterable[Element]:
    if partners:
        yield E.h2("Gaps per partner")
        yield _note("How many numbers of their sequences are missing.")
        yield bars([(inert(name), missing) for name, missing in partners], "Missing numbers by partner")


def _strips(strips: list[Mapping[str, Any]], names: Mapping[str, str]) -> Iterable[Element]:
    if not strips:
        return
    yield E.h2("Sequences with gaps")
    legend = (E.i(**{"class": "received"}), "received", E.i(**{"class": "missing"}), "missing")
    yield E.p("Those that lack most, from number 1 to the last that is known.", *legend, **{"class": "note legend"})
    for one in strips:
        name = inert(one["sequence"])
        source, total = inert(one["partner"] or "not known"), f"{one['total']:,} of {one['last']:,}"
        drawn = strip(one["last"], one["received"], one["missing"], f"Numbers of {name}")
        yield E.div(
            E.span(f"{name} ({source}, {names[one['store']]}): {total} missing", **{"class": "note"}),
            drawn,
            **{"class": "strip"},
        )


def _section(name: str, total: int, rows: list[Mapping[str, Any]], names: Mapping[str, str]) -> Iterable[Element]:
    if not total:
        return
    shown = SECTIONS[name]
    rest = f" The first {len(rows)} of {total:,}; all are in the table {name}." if total > len(rows) else ""
    yield E.h2(shown.title, id=name)
    yield _note(shown.note + rest)
    is_number = {column: any(isinstance(row[column], int) for row in rows) for column in shown.columns}
    kinds = {
        column: {"class": "number"} if is_number[column] else {"class": "id"} if column in _IDS else {}
        for column in shown.columns
    }
    head = E.tr(*(E.th(column.replace("_", " "), **kinds[column]) for column in shown.columns))
    body = [
        E.tr(*(E.td(_cell(names.get(row[column], row[column])), **kinds[column]) for column in shown.columns))
        for row in rows
    ]
    yield E.div(E.table(E.thead(head), E.tbody(*body)), **{"class": "wide"})


def _stores(stores: list[tuple[str, str, int]]) -> Iterable[Element]:
    yield E.h2("Stores")
    head = E.tr(E.th("node"), E.th("store"), E.th("messages", **{"class": "number"}))
    body = [
        E.tr(E.td(inert(node)), E.td(inert(store), **{"class": "id"}), E.td(f"{count:,}", **{"class": "number"}))
        for node, store, count in stores
    ]
    yield E.div(E.table(E.thead(head), E.tbody(*body)), **{"class": "wide"})


def _cell(value: object) -> str:
    if isinstance(value, int | float):
        return f"{int(value) if value == int(value) else value:,}"
    return inert(value) if value is not None else "–"


def _note(text: str) -> Element:
    return E.p(text, **{"class": "note"})
