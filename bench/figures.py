"""A measured figure, the bound it has to keep, and the two forms in which a run is written down."""

from __future__ import annotations

import json
import operator
import platform
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Final, Literal

__all__ = ["Bound", "Figure", "as_json", "as_markdown", "table"]

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
    """``values`` has one number for each round. What counts is their median."""

    case: str
    name: str
    values: Sequence[float]
    unit: str = ""
    bound: Bound | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def is_kept(self) -> bool:
        return self.bound is None or self.bound.holds(self.median)

    @property
    def cells(self) -> tuple[str, ...]:
        spread = f"{_short(min(self.values))} – {_short(max(self.values))}" if len(self.values) > 1 else ""
        verdict = "" if self.bound is None else f"{self.bound} {'kept' if self.is_kept else 'MISSED'}"
        return self.case, self.name, f"{_short(self.median)} {self.unit}".strip(), spread, verdict


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
    shown = [{**asdict(figure), "median": figure.median, "is_kept": figure.is_kept} for figure in figures]
    machine = {"python": platform.python_version(), "system": platform.platform()}
    return json.dumps({**machine, **about, "figures": shown}, indent=1)
