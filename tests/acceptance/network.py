"""The scenarios of the queue server over the network: ``network.tsv`` says of each whether it holds over HTTP and over
STOMP, and why not. A ``yes`` has a test there that passes: ``make conformance`` fails without."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from .tables import FOLDER, Cell, TableError, Tables, project_tables
from .tally import Tally

TABLE: Final = FOLDER / "network.tsv"
HEADER: Final = ("id", "http", "stomp", "why")
PLACES: Final = {"http": ("tests/client/", "tests/server/http/"), "stomp": ("tests/server/stomp/",)}
"""Tests there are over the network. ``tests/client`` runs those of ``tests/node`` too that are not marked ``local``."""
AGAIN: Final = "tests/node/"
ANSWERS: Final = {"yes": True, "no": False}


class Row(NamedTuple):
    http: bool
    stomp: bool
    why: str


def read_network(path: Path = TABLE, tables: Tables | None = None) -> dict[str, Row]:
    """The rows by their ids; ``TableError`` names the first line that is wrong."""
    tables = tables or project_tables()
    header, *lines = path.read_text(encoding="utf-8").splitlines() or [""]
    if tuple(header.split("\t")) != HEADER:
        raise TableError(f"{path.name}:1: the columns are not {', '.join(HEADER)}")
    found: dict[str, Row] = {}
    for number, line in enumerate(lines, start=2):
        id, *values = line.split("\t")
        if len(values) != 3 or not values[2].strip() or not set(values[:2]) <= set(ANSWERS):
            raise TableError(f"{path.name}:{number}: it is an id, yes or no twice, and why")
        if id in found or id not in tables.rows or tables.rows[id].kind != "scenario":
            raise TableError(f"{path.name}:{number}: {id} is no scenario, or stands there twice")
        found[id] = Row(ANSWERS[values[0]], ANSWERS[values[1]], values[2])
    return found


def without(shown: Mapping[str, Collection[str]], rows: Mapping[str, Row]) -> Iterator[str]:
    """A line for each ``yes`` that no test shows, and each ``no`` that one does. ``shown``: the ids by transport."""
    for transport, ids in shown.items():
        for id, row in rows.items():
            if getattr(row, transport) != (id in ids):
                said = "no test shows it" if getattr(row, transport) else "a test shows it all the same"
                yield f"network.tsv: {id} over {transport}: {said}"


def shown_in(tally: Tally) -> dict[str, set[str]]:
    """The ids of scenarios that tests have shown in a run, by transport."""
    return {
        transport: {
            cell.id
            for test, run in tally.runs.items()
            if test.startswith(places) and run.outcome == "passed"
            for cell in run.cells
        }
        for transport, places in PLACES.items()
    }


def written_in(tests: Mapping[Cell, Sequence[str]], root: Path) -> dict[str, set[str]]:
    """The ids of scenarios that tests carry in their sources, by transport. ``tests``: as ``shown_by`` answers."""
    local: set[str] = {name for path in (root / AGAIN).glob("test_*.py") for name in _local(path, root)}
    found: dict[str, set[str]] = {transport: set() for transport in PLACES}
    for cell, names in tests.items():
        for transport, places in PLACES.items():
            if any(name.startswith(places) for name in names):
                found[transport].add(cell.id)
        if any(name.startswith(AGAIN) and name not in local for name in names):
            found["http"].add(cell.id)
    return found


def _local(path: Path, root: Path) -> Iterator[str]:
    """The tests of a module that are marked ``local``."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    is_all = any(isinstance(node, ast.Assign) and "mark.local" in ast.unparse(node) for node in tree.body)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (
            is_all or any(ast.unparse(one).startswith("pytest.mark.local") for one in node.decorator_list)
        ):
            yield f"{path.relative_to(root).as_posix()}::{node.name}"
