"""The floor under what is covered: ``floor.tsv`` names each half of a row that some run has covered.

What stands there and is not covered any more fails ``make conformance``, which names it. ``make floor`` adds what the
last run covered. Nothing takes a line away but an edit of the file, which its commit has to explain.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

from .tables import FOLDER, Cell, TableError, Tables, project_tables
from .tally import Tally

FLOOR: Final = FOLDER / "floor.tsv"
HEADER: Final = "id\thalf"


def read_floor(path: Path = FLOOR, tables: Tables | None = None) -> list[Cell]:
    """The halves that have to be covered; ``TableError`` names the first line that is wrong."""
    tables = tables or project_tables()
    header, *lines = path.read_text(encoding="utf-8").splitlines() or [""]
    if header != HEADER:
        raise TableError(f"{path.name}:1: the columns are not id, half")
    found = []
    for number, line in enumerate(lines, start=2):
        id, _, half = line.partition("\t")
        if id not in tables.rows or half not in tables.rows[id].halves:
            raise TableError(f"{path.name}:{number}: {line!r} is no half of a row of the tables")
        found.append(Cell(id, half))
    return found


def below_floor(tally: Tally, floor: Collection[Cell] | None = None) -> list[str]:
    """A line for each half on the floor that the run did not cover, with what became of its tests."""
    covered = set(tally.covered_halves())
    missing = set(read_floor() if floor is None else floor) - covered
    lacking = {cell: why for cell, why in tally.lacking_halves().items() if cell in missing}
    rows = tally.tables.rows
    lines = [f"below the floor: {cell} ({why}): {rows[cell.id].statement}" for cell, why in lacking.items()]
    return [*lines, f"floor: {len(lines)} that were covered are not"] if lines else []


def to_be_raised(tally: Tally, floor: Collection[Cell] | None = None) -> list[Cell]:
    """What is covered and not on the floor yet."""
    return sorted(set(tally.covered_halves()) - set(read_floor() if floor is None else floor))


def raise_floor(tally: Tally, path: Path = FLOOR) -> int:
    """Add what is covered. Answers how many halves that were."""
    before = read_floor(path, tally.tables)
    more = to_be_raised(tally, before)
    lines = [f"{id}\t{half}" for id, half, _version in sorted({*before, *more})]
    path.write_text("\n".join([HEADER, *lines]) + "\n", encoding="utf-8")
    return len(more)
