"""The acceptance tables as values: rows, the cells that tests must fill, known deviations.

A *cell* is one thing a test can show of a row: ``(id, half, version)``. A row of ``spec.tsv`` has a cell for
each half of its role and each version it names; scenarios, peers and invariants have one, ``(id, "-", "-")``.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

FOLDER: Final = Path(__file__).parent
EVERY: Final = "-"
"""Half and version of a cell whose row distinguishes none."""

VERSIONS: Final = ("1.0", "1.1", "1.2")
LEVELS: Final = ("MUST", "SHOULD", "MAY")
WIRE: Final = "wire"
ABOUT: Final = (WIRE, "state")
"""What a row of ``spec.tsv`` speaks of: bytes that are sent and read, or what is kept and told, which no bytes show."""
HALVES: Final = ("destination", "source")
HALVES_OF_ROLE: Final = {
    "D": ("destination",),
    "MR": ("destination",),
    "S": ("source",),
    "MS": ("source",),
    "DS": ("destination", "source"),
}

INVARIANTS: Final = frozenset(f"I{n}" for n in range(1, 18))


class TableError(Exception):
    """A table that contradicts itself; the message names file and line."""


class Cell(NamedTuple):
    id: str
    half: str = EVERY
    version: str = EVERY

    def __str__(self) -> str:
        return " ".join(part for part in self if part != EVERY)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table. ``kind`` is the marker that names it: ``spec``, ``scenario``, ``peer`` or ``stomp``."""

    id: str
    kind: str
    statement: str
    role: str = ""
    level: str = ""
    versions: tuple[str, ...] = (EVERY,)
    halves: tuple[str, ...] = (EVERY,)
    about: str = ""
    processes: str = "1"
    """``P`` where a scenario needs several operating system processes."""

    @property
    def group(self) -> str:
        """The id without its number: ``D-SEQ-004`` is in ``D-SEQ``."""
        return self.id.rpartition("-")[0]

    def cells(self, half: str | None = None) -> frozenset[Cell]:
        halves = self.halves if half is None else tuple(h for h in self.halves if h == half)
        return frozenset(Cell(self.id, h, version) for h in halves for version in self.versions)


@dataclass(frozen=True, slots=True)
class Deviation:
    """One half of a row that is knowingly not fulfilled (``half`` is ``-`` for scenarios and peers)."""

    id: str
    half: str
    reason: str

    def __str__(self) -> str:
        return f"{Cell(self.id, self.half)}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Tables:
    rows: Mapping[str, Row]
    deviations: tuple[Deviation, ...]

    def deviation(self, id: str, half: str) -> Deviation | None:
        return next((d for d in self.deviations if (d.id, d.half) == (id, half)), None)


COLUMNS: Final = {
    "spec.tsv": ("id", "role", "versions", "level", "about", "statement"),
    "scenarios.tsv": ("id", "processes", "statement"),
    "peers.tsv": ("id", "statement"),
    "stomp.tsv": ("id", "versions", "section", "level", "statement"),
    "deviations.tsv": ("id", "half", "reason"),
}


def read(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Each line of ``path`` as ``("file:line", {column: value})``; every column filled, or TableError."""
    header, *lines = path.read_text(encoding="utf-8").splitlines() or [""]
    columns = COLUMNS[path.name]
    if tuple(header.split("\t")) != columns:
        raise TableError(f"{path.name}:1: the columns are not {', '.join(columns)}")
    for number, line in enumerate(lines, start=2):
        where, values = f"{path.name}:{number}", line.split("\t")
        if len(values) != len(columns) or not all(value.strip() for value in values):
            raise TableError(f"{where}: each of {', '.join(columns)} must be filled, once")
        yield where, dict(zip(columns, values, strict=True))


def _one_of(where: str, column: str, value: str, known: Iterable[str]) -> str:
    if value not in (known := tuple(known)):
        raise TableError(f"{where}: {column} {value!r} is none of {', '.join(known)}")
    return value


def _spec(where: str, line: dict[str, str]) -> Row:
    role = _one_of(where, "role", line["role"], HALVES_OF_ROLE)
    versions = tuple(_one_of(where, "version", v, VERSIONS) for v in line["versions"].split(" "))
    if ("1.1" in versions) != ("1.2" in versions):
        raise TableError(f"{where}: 1.1 and 1.2 share one wire format, so a row names both or neither")
    level = _one_of(where, "level", line["level"], LEVELS)
    about = _one_of(where, "about", line["about"], ABOUT)
    return Row(line["id"], "spec", line["statement"], role, level, versions, HALVES_OF_ROLE[role], about)


def _scenario(where: str, line: dict[str, str]) -> Row:
    processes = _one_of(where, "processes", line["processes"], ("1", "P"))
    return Row(line["id"], "scenario", line["statement"], processes=processes)


def _peer(where: str, line: dict[str, str]) -> Row:
    return Row(line["id"], "peer", line["statement"])


def _stomp(where: str, line: dict[str, str]) -> Row:
    """A statement of the specifications of STOMP. A test goes through the versions itself: a row has one cell."""
    for version in line["versions"].split(" "):
        _one_of(where, "version", version, ("1.1", "1.2"))
    level = _one_of(where, "level", line["level"], LEVELS)
    return Row(line["id"], "stomp", line["statement"], level=level, about=WIRE)


ROW_OF_FILE: Final = {"spec.tsv": _spec, "scenarios.tsv": _scenario, "peers.tsv": _peer, "stomp.tsv": _stomp}


def load(folder: Path = FOLDER) -> Tables:
    """Read and check the tables of ``folder``; TableError names the first line that is wrong."""
    rows: dict[str, Row] = {}
    for name, row_of in ROW_OF_FILE.items():
        for where, line in read(folder / name):
            row = row_of(where, line)
            if row.id in rows:
                raise TableError(f"{where}: {row.id} stands in the tables twice")
            rows[row.id] = row
    deviations = []
    for where, line in read(folder / "deviations.tsv"):
        deviation = Deviation(**line)
        if deviation.id not in rows:
            raise TableError(f"{where}: {deviation.id} is in no table")
        _one_of(where, "half", deviation.half, rows[deviation.id].halves)
        deviations.append(deviation)
    repeated = [key for key, n in Counter((d.id, d.half) for d in deviations).items() if n > 1]
    if repeated:
        raise TableError(f"deviations.tsv: {' '.join(repeated[0])} is listed twice")
    return Tables(rows, tuple(deviations))


@functools.cache
def project_tables() -> Tables:
    """The tables of this project, read once."""
    return load()
