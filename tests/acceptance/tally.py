"""Outcomes of tests, counted by acceptance row."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from .tables import Cell, Row, Tables

COVERED, FAILING, DEVIATING, UNCOVERED = "covered", "failing", "deviating", "uncovered"
NOT_RUN: Final = "not run"

GRAVITY: Final = ("failed", "skipped", NOT_RUN, "passed")
"""Of several outcomes the first here counts: one test skipped or broken off leaves its cells uncovered."""


def gravest(outcomes: Iterable[str]) -> str:
    return min(outcomes, key=GRAVITY.index, default=NOT_RUN)


@dataclass(frozen=True, slots=True)
class Part:
    """One line of the summary: the rows of a kind, or one half of them."""

    name: str
    kind: str
    half: str | None = None

    def rows(self, tables: Tables) -> list[Row]:
        of_kind = [row for row in tables.rows.values() if row.kind == self.kind]
        return [row for row in of_kind if self.half is None or self.half in row.halves]


PARTS: Final = {
    part.name: part
    for part in (
        Part("destination", "spec", "destination"),
        Part("source", "spec", "source"),
        Part("spec", "spec"),
        Part("scenarios", "scenario"),
        Part("peers", "peer"),
        Part("stomp", "stomp"),
    )
}


@dataclass(slots=True)
class Run:
    """What became of one test: the cells it names and the gravest outcome of its phases."""

    cells: tuple[Cell, ...] = ()
    outcome: str = NOT_RUN


@dataclass(slots=True)
class Tally:
    tables: Tables
    runs: defaultdict[str, Run] = field(default_factory=lambda: defaultdict(Run))

    def add(self, test: str, cells: Iterable[Iterable[str]], phase: str, outcome: str) -> None:
        """Note one phase (setup, call, teardown) of ``test``. No cells: those noted before stay.

        A worker that dies is reported as a failure without cells; the report of the setup had them.
        """
        run = self.runs[test]
        run.cells = tuple(Cell(*cell) for cell in cells) or run.cells
        if outcome != "passed" or phase == "call":
            run.outcome = outcome if run.outcome == NOT_RUN else gravest((run.outcome, outcome))

    def outcomes(self) -> dict[Cell, str]:
        """The gravest outcome of the tests that name a cell; cells that none names are absent."""
        found: defaultdict[Cell, list[str]] = defaultdict(list)
        for run in self.runs.values():
            for cell in run.cells:
                found[cell].append(run.outcome)
        return {cell: gravest(outcomes) for cell, outcomes in found.items()}

    def statuses(self, part: Part) -> dict[Row, str]:
        outcomes = self.outcomes()
        return {row: self._status(row, part.half, outcomes) for row in part.rows(self.tables)}

    def _status(self, row: Row, half: str | None, outcomes: Mapping[Cell, str]) -> str:
        found = {outcomes.get(cell, NOT_RUN) for cell in row.cells(half)}
        if "failed" in found:
            return FAILING
        if any(self.tables.deviation(row.id, h) for h in row.halves if half in (None, h)):
            return DEVIATING
        return COVERED if found == {"passed"} else UNCOVERED

    def counts(self, part: Part) -> dict[str, int]:
        statuses = list(self.statuses(part).values())
        return {status: statuses.count(status) for status in (COVERED, FAILING, DEVIATING, UNCOVERED)}

    def summary(self) -> list[str]:
        """The lines that end a conformance run."""
        lines = []
        for part in PARTS.values():
            n = self.counts(part)
            lines.append(
                f"{part.name}: {n[COVERED]} of {sum(n.values())} covered, "
                f"{n[FAILING]} failing, {n[DEVIATING]} deviating"
            )
        return lines

    def gaps(self, group: str | None = None, half: str | None = None) -> Iterator[str]:
        """A line for each half of a row that fails or is uncovered, with what each version lacks."""
        outcomes = self.outcomes()
        for row in self.tables.rows.values():
            for h in row.halves:
                if group not in (None, row.group) or half not in (None, h):
                    continue
                if self._status(row, h, outcomes) in (FAILING, UNCOVERED):
                    yield f"{Cell(row.id, h)} ({_lacking(row.cells(h), outcomes)}): {row.statement}"

    def covered_halves(self) -> list[Cell]:
        outcomes = self.outcomes()
        return [half for half in self._halves() if self._half_status(half, outcomes) == COVERED]

    def lacking_halves(self) -> dict[Cell, str]:
        """What is not covered, with the reason: which versions lack what, or that it deviates."""
        outcomes = self.outcomes()
        found = {}
        for half in self._halves():
            status = self._half_status(half, outcomes)
            if status != COVERED:
                cells = self.tables.rows[half.id].cells(half.half)
                found[half] = _lacking(cells, outcomes) if status != DEVIATING else DEVIATING
        return found

    def _halves(self) -> Iterator[Cell]:
        return (Cell(row.id, half) for row in self.tables.rows.values() for half in row.halves)

    def _half_status(self, half: Cell, outcomes: Mapping[Cell, str]) -> str:
        return self._status(self.tables.rows[half.id], half.half, outcomes)

    def take(self, other: Tally) -> None:
        """Count what another part of the same run had, too."""
        self.runs.update(other.runs)

    def as_json(self) -> str:
        """The runs, and what follows from them for each row; the same runs give the same text."""
        outcomes = self.outcomes()
        rows = {
            row.id: {
                "status": self._status(row, None, outcomes),
                "cells": {str(cell)[len(row.id) + 1 :]: outcomes.get(cell, NOT_RUN) for cell in row.cells()},
            }
            for row in self.tables.rows.values()
        }
        content = {
            "parts": {part.name: self.counts(part) for part in PARTS.values()},
            "deviations": [[d.id, d.half, d.reason] for d in self.tables.deviations],
            "rows": rows,
            "tests": {t: {"outcome": run.outcome, "cells": run.cells} for t, run in self.runs.items() if run.cells},
        }
        return json.dumps(content, indent=1, sort_keys=True) + "\n"


def _lacking(cells: Iterable[Cell], outcomes: Mapping[Cell, str]) -> str:
    """``1.0 failed, 1.1 1.2 not run``: which versions lack what."""
    versions = defaultdict(list)
    for cell in sorted(cells):
        versions[outcomes.get(cell, NOT_RUN)].append(cell.version)
    versions.pop("passed", None)
    return ", ".join(f"{' '.join(v)} {outcome}".removeprefix("- ") for outcome, v in versions.items())


def from_json(text: str, tables: Tables) -> Tally:
    """The tally of an earlier run; the deviations are those of ``tables``, not of the file."""
    tally = Tally(tables)
    content: dict[str, Any] = json.loads(text)
    for test, run in content["tests"].items():
        tally.add(test, run["cells"], "call", run["outcome"])
    return tally
