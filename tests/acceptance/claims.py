"""From the markers on a test to the cells it shows.

``@pytest.mark.spec("D-SEQ-004", half=..., versions=...)`` names rows of ``spec.tsv``. ``half`` is for rows
of role DS and defaults to ``"destination"``. The versions come from the parameter or fixture ``rm``, which is
an RMVersion; a test that takes none says ``versions=("1.0", "1.1")`` (it goes through them itself) or
``versions="all"`` (it is about no version). Where ``rm`` is 1.1 a row that names only 1.0 has no cell, so one
test may carry a row for each version.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from .tables import EVERY, HALVES, INVARIANTS, VERSIONS, WIRE, Cell, Row, Tables

MOST_IDS: Final = 5

WIRE_FORMAT: Final = {"1.0": ("1.0",), "1.1": ("1.1", "1.2"), "1.2": ("1.1", "1.2")}
"""The versions that a test in one version shows: 1.1 and 1.2 are the same on the wire."""

ON_THE_WIRE: Final = frozenset(
    ("front", "in_process", "mortal", "orders_server", "partner", "server", "shared_server", "stomp", "stomp_with")
)
"""Fixtures that give a test a service to which it sends bytes, and whose answers it reads as bytes; or a partner that
gets the bytes of requests from here, and answers."""

KEYWORDS: Final = {
    "spec": {"half", "versions"},
    "scenario": set[str](),
    "peer": set[str](),
    "stomp": set[str](),
    "invariant": set[str](),
}
"""The markers that tie tests to ids, each with the keywords it takes."""


class Mark(Protocol):
    """What is read of a ``pytest.Mark``."""

    @property
    def name(self) -> str: ...
    @property
    def args(self) -> tuple[Any, ...]: ...
    @property
    def kwargs(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Claims:
    """What one test says it shows, and everything that is wrong with saying so."""

    cells: tuple[Cell, ...]
    problems: tuple[str, ...]


class WrongMark(Exception):
    pass


def claims(
    marks: Iterable[Mark], tables: Tables, rm: str | None = None, fixtures: Collection[str] = ON_THE_WIRE
) -> Claims:
    """The cells that ``marks`` claim for a test that runs in RM version ``rm`` (None: it takes no ``rm``) and has these
    fixtures. A row that speaks of the wire is shown by bytes only: by a test that has one of ``ON_THE_WIRE``."""
    marks = [mark for mark in marks if mark.name in KEYWORDS]
    problems: list[str] = []
    named: list[Cell] = []
    cells: set[Cell] = set()
    about_source = any(_is_about_source(mark, tables) for mark in marks)
    for mark in marks:
        try:
            versions = _versions(mark, rm)
        except WrongMark as wrong:
            problems.append(str(wrong))
            continue
        if not mark.args:
            problems.append(f"the marker {mark.name} names no id")
        for id in mark.args:
            try:
                row = _row(mark, id, tables)
                half = _half(mark, row, about_source)
                named.append(Cell(row.id, half))
                cells |= _cells(mark, row, half, versions, tables)
            except WrongMark as wrong:
                problems.append(str(wrong))
    if len(ids := {cell.id for cell in named}) > MOST_IDS:
        problems.append(f"{len(ids)} ids on one test, at most {MOST_IDS} may be: {', '.join(sorted(ids))}")
    problems += [f"{cell} is named {n} times" for cell, n in Counter(named).items() if n > 1]
    if ON_THE_WIRE.isdisjoint(fixtures):
        cells = {cell for cell in cells if cell.id in INVARIANTS or tables.rows[cell.id].about != WIRE}
    return Claims(tuple(sorted(cells)), tuple(problems))


def _is_about_source(mark: Mark, tables: Tables) -> bool:
    rows = (tables.rows.get(str(id)) for id in mark.args)
    return mark.kwargs.get("half") == "source" or any(row and row.halves == ("source",) for row in rows)


def _row(mark: Mark, id: object, tables: Tables) -> Row:
    if not isinstance(id, str):
        raise WrongMark(f"{id!r} is no id: the marker {mark.name} takes them one by one, as strings")
    if mark.name == "invariant":
        if id not in INVARIANTS:
            raise WrongMark(f"{id!r} is no invariant: they are I1 to I{len(INVARIANTS)}")
        return Row(id, "invariant", "")
    row = tables.rows.get(id)
    if row is None:
        near = difflib.get_close_matches(id, tables.rows, n=1)
        raise WrongMark(f"{id!r} is in no table" + (f" (is {near[0]} meant?)" if near else ""))
    if row.kind != mark.name:
        raise WrongMark(f"{id} is named with the marker {row.kind}, not {mark.name}")
    return row


def _versions(mark: Mark, rm: str | None) -> frozenset[str]:
    """The versions that the test shows for the rows of ``mark``."""
    if unknown := set(mark.kwargs) - KEYWORDS[mark.name]:
        raise WrongMark(f"the marker {mark.name} does not take {', '.join(sorted(unknown))}")
    if mark.name != "spec":
        return frozenset({EVERY})
    said = mark.kwargs.get("versions")
    ids = ", ".join(map(str, mark.args))
    if rm is not None and said is not None:
        raise WrongMark(f"versions= for {ids} beside rm, which says the version already")
    if rm is None and said is None:
        raise WrongMark(f'no version for {ids}: take rm, or say versions=(...) or versions="all"')
    if said == "all":
        return frozenset(VERSIONS)
    labels = (rm,) if rm is not None else said
    if not isinstance(labels, tuple) or not labels or any(label not in WIRE_FORMAT for label in labels):
        raise WrongMark(f'versions={said!r} is neither "all" nor a tuple of {", ".join(VERSIONS)}')
    return frozenset(version for label in labels for version in WIRE_FORMAT[label])


def _half(mark: Mark, row: Row, about_source: bool) -> str:
    half = mark.kwargs.get("half")
    if half is None:
        if len(row.halves) > 1 and about_source:
            raise WrongMark(f"{row.id} has two halves and the test is about the source too: say half=")
        return row.halves[0]
    if half not in HALVES:
        raise WrongMark(f"half={half!r} is neither {' nor '.join(HALVES)}")
    if half not in row.halves:
        raise WrongMark(f"{row.id} (role {row.role}) has no {half} half")
    return str(half)


def _cells(mark: Mark, row: Row, half: str, versions: frozenset[str], tables: Tables) -> set[Cell]:
    if deviation := tables.deviation(row.id, half):
        raise WrongMark(f"{Cell(row.id, half)} is listed as deviating and cannot be covered: {deviation.reason}")
    cells = {cell for cell in row.cells(half) if cell.version in versions}
    if not cells and "versions" in mark.kwargs:
        raise WrongMark(f"{row.id} is about {', '.join(row.versions)}, none of which the test shows")
    return cells
