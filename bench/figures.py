"""A measured figure, the bound it has to keep, and the two forms in which a run is written down."""

from __future__ import annotations

import json
import math
import operator
import platform
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Final, Literal, TypeVar

__all__ = ["Bound", "Figure", "as_json", "as_markdown", "interval", "status", "table", "undisturbed"]

T = TypeVar("T")
DISTURBED: Final = 0.1
"""Of the machine's time, what others have in a round that says nothing; the kernel's own threads have a few percent."""
_TRIES: Final = 3

_HOLDS: Final[dict[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Bound:
    sense: Literal["<", "<=", ">="]
    value: float

    def holds(self, value: float) -> bool:
        return _HOLDS[self.sense](value, self.value)

    def __str__(self) -> str:
        return f"{self.sense} {_short(self.value)}"


@dataclass(frozen=True)
class Figure:
    """``values`` has one number for each round. What counts is their median. ``others`` has for each round the share of
    the machine that others had meanwhile: a bound is not missed by a run that they disturbed, that is void."""

    case: str
    name: str
    values: Sequence[float]
    unit: str = ""
    bound: Bound | None = None
    others: Sequence[float] = ()

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def verdict(self) -> str:
        if self.bound is None:
            return ""
        if self.bound.holds(self.median):
            return "kept"
        return "VOID" if self.others and statistics.median(self.others) > DISTURBED else "MISSED"

    @property
    def cells(self) -> tuple[str, ...]:
        spread = f"{_short(min(self.values))} – {_short(max(self.values))}" if len(self.values) > 1 else ""
        bound = "" if self.bound is None else f"{self.bound} {self.verdict}"
        return self.case, self.name, f"{_short(self.median)} {self.unit}".strip(), spread, bound


def interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """Between which of ``values`` the median lies, whatever their distribution: the order statistics of the sign test.
    ``None``: too few to say so."""
    ordered, rounds = sorted(values), len(values)
    outside, found = 0.0, None
    for index in range(rounds // 2):
        outside += 2 * math.comb(rounds, index) / 2**rounds
        if 1 - outside < confidence:
            break
        found = ordered[index], ordered[-1 - index]
    return found


def undisturbed(measure: Callable[[], T], others: Callable[[T], float]) -> T:
    """A round in which the machine was ours, or of a few the one in which it was most. What is chosen by says nothing
    about the figure."""
    best = measure()
    for _ in range(_TRIES - 1):
        if others(best) <= DISTURBED:
            break
        best = min(best, measure(), key=others)
    return best


def status(figures: Iterable[Figure]) -> int:
    """The exit status of a run, and its reasons on standard error: 1 where a bound was missed, 2 where the machine was
    too disturbed to say so, else 0."""
    reasons = [figure for figure in figures if figure.verdict in ("MISSED", "VOID")]
    for figure in reasons:
        print(f"{figure.verdict}: {figure.case}, {figure.name}: {' '.join(figure.cells[2:4])}", file=sys.stderr)
    if any(figure.verdict == "MISSED" for figure in reasons):
        return 1
    return 2 if reasons else 0


_COLUMNS: Final = ("case", "figure", "median", "lowest – highest", "bound")


def _short(value: float) -> str:
    if value >= 1_000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def as_markdown(figures: Iterable[Figure]) -> str:
    """A table that reads the same on a terminal; the case is written once."""
    rows, before = [], ""
    for figure in figures:
        case, *rest = figure.cells
        rows.append((case if case != before else "", *rest))
        before = case
    return table(_COLUMNS, rows)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """In Markdown, with columns that stand one below the other."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    lines = [headings, tuple("-" * width for width in widths), *rows]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )


def as_json(figures: Iterable[Figure], **about: object) -> str:
    shown = [{**asdict(figure), "median": figure.median, "verdict": figure.verdict} for figure in figures]
    machine = {"python": platform.python_version(), "system": platform.platform()}
    return json.dumps({**machine, **about, "figures": shown}, indent=1)
