"""The page itself: ``page.html`` and ``charts.html``, filled in. The page fetches nothing, and no script runs in it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from wsrm_mq.events.inert import inert
from wsrm_mq.spark.report.contents import FINDINGS, SECTIONS, Contents

_PERCENTILES: Final = ("p50", "p95", "p99")
_IDS: Final = ("sequence", "message_id")
_LABELS: Final = 6
"""Moments that are named below a chart."""


def page(contents: Contents) -> bytes:
    """The report of ``contents``, as an HTML document."""
    # Peers wrote what the tables hold: it is escaped, and has no effect on a terminal either.
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, finalize=_harmless
    )
    environment.filters |= {"number": "{:,}".format, "cell": _cell, "kind": _kind}
    written = environment.get_template("page.html").render(
        contents._asdict(),
        said=contents.summary,
        names=_names(contents.stores),
        latency={queue: _drawn(rows, contents.unit) for queue, rows in contents.latency.items()},
        findings=FINDINGS,
        sections=SECTIONS,
    )
    return written.encode()


def _harmless(value: Any) -> Any:
    return inert(value) if type(value) is str else value


def _cell(value: object) -> str:
    if isinstance(value, int | float):
        return f"{int(value) if value == int(value) else value:,}"
    return str(value) if value is not None else "–"


def _kind(column: str, rows: Iterable[Mapping[str, Any]]) -> str:
    """The CSS class of a column."""
    if any(isinstance(row[column], int) for row in rows):
        return "number"
    return "id" if column in _IDS else ""


def _names(stores: Sequence[tuple[str, str, int]]) -> dict[str, str]:
    """The name of each store: its node, with the beginning of its identity where a node has two."""
    nodes = [node for node, _, _ in stores]
    return {store: node if nodes.count(node) == 1 else f"{node} ({store[:6]})" for node, store, _ in stores}


class Curve(NamedTuple):
    name: str
    points: list[tuple[float, float, str]]
    """Each with the text that is shown where it is pointed at."""
    named_at: float
    """The height of its name."""


class Drawn(NamedTuple):
    """A chart of latencies over time, on a logarithmic scale from 1 ms."""

    grid: list[tuple[float, str]]
    moments: list[tuple[float, str]]
    curves: list[Curve]
    left: int = 64
    right: int = 708
    """The names of curves stand behind it."""
    top: int = 10
    bottom: int = 156
    height: int = 180


def _drawn(rows: Sequence[Mapping[str, Any]], unit: str) -> Drawn:
    """The chart of ``rows``, each a ``unit`` of time, with ``at`` in ms since the epoch and percentiles in ms."""
    drawn = Drawn([], [], [])
    powers = max(2, math.ceil(math.log10(max(1.0, *(row[name] for row in rows for name in _PERCENTILES)))))
    first, span = rows[0]["at"], rows[-1]["at"] - rows[0]["at"]

    def x(row: Mapping[str, Any]) -> float:
        share = (row["at"] - first) / span if span else 0.5
        return round(drawn.left + share * (drawn.right - drawn.left), 1)

    def y(ms: float) -> float:
        return round(drawn.bottom - math.log10(max(1.0, ms)) / powers * (drawn.bottom - drawn.top), 1)

    drawn.grid.extend((y(10**power), _duration(10**power)) for power in range(powers + 1))
    drawn.moments.extend((x(row), _moment(row["at"], unit)) for row in rows[:: max(1, math.ceil(len(rows) / _LABELS))])
    named_at = 2.0 * drawn.height
    for name in sorted(_PERCENTILES, key=lambda one: rows[-1][one]):
        points = [(x(row), y(row[name]), f"{_moment(row['at'], unit)}: {name} {row[name]:g} ms") for row in rows]
        named_at = round(min(points[-1][1] + 4, named_at - 12), 1)
        drawn.curves.append(Curve(name, points, named_at))
    return drawn


def _duration(ms: int) -> str:
    return f"{ms} ms" if ms < 1_000 else f"{ms // 1_000:,} s"


def _moment(at: int, unit: str) -> str:
    moment = datetime.fromtimestamp(at / 1_000, UTC)
    return f"{moment:%d %b}" if unit == "day" else f"{moment:%d %b %H:%M}"
