"""Drawings in SVG, part of a page: their colours are the page's, in the light and in the dark.

Text comes from peers too: elements are built, never written, so that none of it becomes markup.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from lxml.builder import E

Element = Any

WIDTH: Final = 760
LEFT: Final = 64
RIGHT: Final = 52
"""The names of lines stand there."""
HEIGHT: Final = 180
TOP: Final = 10
BOTTOM: Final = 24
LABELS: Final = 6
"""Moments that are named below a chart."""
BAR: Final = 22
NAMES: Final = 220
STRIP: Final = 16
NARROWEST: Final = 2.0
"""What is missing has to be seen, however little of a sequence it is."""


class Line(NamedTuple):
    name: str
    values: Sequence[float]
    """ms; one for each moment of the chart."""


def _svg(height: float, *children: Element, label: str) -> Element:
    return E.svg(*children, viewBox=f"0 0 {WIDTH} {height:g}", role="img", **{"aria-label": label})


def _text(x: float, y: float, text: str, kind: str = "") -> Element:
    return E.text(text, x=f"{x:.1f}", y=f"{y:.1f}", **{"class": kind})


def lines(moments: Sequence[int], drawn: Sequence[Line], unit: str, label: str) -> Element:
    """Times over time, on a logarithmic scale from 1 ms; ``moments`` are ms since the epoch, each a ``unit`` long."""
    top = max(2, math.ceil(math.log10(max(1.0, *(value for line in drawn for value in line.values)))))
    span = (moments[-1] - moments[0]) or 1

    def x(moment: int) -> float:
        share = (moment - moments[0]) / span if len(moments) > 1 else 0.5
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - math.log10(max(1.0, value)) / top * (HEIGHT - TOP - BOTTOM)

    children = []
    for power in range(top + 1):
        at = y(10.0**power)
        children.append(
            E.line(x1=f"{LEFT}", x2=f"{WIDTH - RIGHT}", y1=f"{at:.1f}", y2=f"{at:.1f}", **{"class": "grid"})
        )
        children.append(_text(LEFT - 6, at + 4, _duration(10**power), "end"))
    for moment in moments[:: max(1, math.ceil(len(moments) / LABELS))]:
        children.append(_text(x(moment), HEIGHT - 6, _moment(moment, unit), "middle"))
    labelled = HEIGHT * 2.0
    for line in sorted(drawn, key=lambda one: one.values[-1]):
        points = [(x(moment), y(value)) for moment, value in zip(moments, line.values, strict=True)]
        path = "M" + "L".join(f"{across:.1f},{down:.1f}" for across, down in points)
        children.append(E.path(d=path, **{"class": f"line {line.name}"}))
        for (across, down), moment, value in zip(points, moments, line.values, strict=True):
            told = E.title(f"{_moment(moment, unit)}: {line.name} {value:g} ms")
            dot = "2.5" if len(moments) <= 60 else "1.2"
            children.append(E.circle(told, cx=f"{across:.1f}", cy=f"{down:.1f}", r=dot, **{"class": line.name}))
        labelled = min(points[-1][1] + 4, labelled - 12)
        children.append(_text(points[-1][0] + 8, labelled, line.name, f"name {line.name}"))
    return _svg(HEIGHT, *children, label=label)


def bars(values: Sequence[tuple[str, int]], label: str) -> Element:
    """A bar for each name, the longest as wide as there is room."""
    most = max(value for _, value in values)
    children = []
    for place, (name, value) in enumerate(values):
        top, width = place * BAR, value / most * (WIDTH - NAMES - 90)
        shown = name if len(name) <= 27 else f"{name[:26]}…"
        children.append(E.g(E.title(name), _text(NAMES - 8, top + 15, shown, "end")))
        children.append(
            E.rect(
                x=f"{NAMES}", y=f"{top + 3}", width=f"{max(width, 1):.1f}", height=f"{BAR - 6}", **{"class": "missing"}
            )
        )
        children.append(_text(NAMES + width + 6, top + 15, f"{value:,}"))
    return _svg(len(values) * BAR, *children, label=label)


def strip(last: int, received: Sequence[tuple[int, int]], missing: Sequence[tuple[int, int]], label: str) -> Element:
    """The numbers of a sequence from 1 to ``last``, as ranges of what was received and of what is missing."""

    def part(kind: str, lower: int, upper: int) -> Element:
        begin, width = (lower - 1) / last * WIDTH, (upper - lower + 1) / last * WIDTH
        width = max(width, NARROWEST) if kind == "missing" else width
        told = E.title(f"{kind}: {lower:,} to {upper:,}" if lower < upper else f"{kind}: {lower:,}")
        x = f"{min(begin, WIDTH - width):.2f}"
        return E.rect(told, x=x, y="0", width=f"{width:.2f}", height=f"{STRIP}", **{"class": kind})

    drawn = [part("received", *one) for one in received] + [part("missing", *one) for one in missing]
    return _svg(STRIP, *drawn, label=label)


def _duration(ms: int) -> str:
    return f"{ms} ms" if ms < 1_000 else f"{ms // 1_000:,} s"


def _moment(at: int, unit: str) -> str:
    moment = datetime.fromtimestamp(at / 1_000, UTC)
    return f"{moment:%d %b}" if unit == "day" else f"{moment:%d %b %H:%M}"
