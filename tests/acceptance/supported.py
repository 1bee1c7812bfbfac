"""The page of what is supported, made from the tables and the markers: ``python -m tests.acceptance.supported``.

Says for each statement which tests show it, or why none does. That they pass is what ``make conformance`` says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from .sources import shown_by
from .tables import HALVES, Cell, Row, Tables, project_tables

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs/reference/supported-spec.md"

ADVISORY: Final = frozenset(
    {
        *("D-CLO-005", "MC-011", "POL-010", "RSP-009", "RSP-010", "RSP-011", "RSP-012", "RSP-013", "RSP-015"),
        "SEC-007",
    }
)
"""Statements without a text at hand to check them against: what real stacks send has the last word."""

GROUPS: Final = {
    "NS": "Namespaces and versions",
    "D-CRE": "Creating a sequence",
    "D-SEQ": "The Sequence header",
    "D-ACK": "Acknowledgements",
    "D-CLO": "Closing",
    "D-TRM": "Terminating",
    "D-LST": "The last message of 1.0",
    "D-EXP": "Expiry",
    "D-DEL": "Delivery",
    "D-DUR": "Durability",
    "S-CRE": "Creating a sequence",
    "S-SND": "Numbering and sending",
    "S-RET": "Sending again",
    "S-ACK": "Taking acknowledgements",
    "S-CLO": "Closing",
    "S-TRM": "Terminating",
    "F": "Faults",
    "H": "HTTP",
    "A": "Addressing",
    "MC": "WS-MakeConnection",
    "POL": "Policy",
    "RSP": "The Reliable Secure Profile",
    "SEC": "Security and limits",
}

HEAD: Final = """\
# What is supported of the specifications

<!-- Made by `make supported-spec` from tests/acceptance and the markers of the tests. Edits here are lost. -->

What WS-ReliableMessaging 1.0, 1.1 and 1.2, WS-MakeConnection, the policy assertions, the Reliable Secure Profile and
WS-Addressing ask of an endpoint, statement by statement, in our words. Each one has the versions of
WS-ReliableMessaging that it is about, its level, and the tests that show it. `make conformance` runs them, in every
version, and ends with the counts; a statement that was covered once fails that run when it no longer is.

- **Shown**: at least one test carries the statement's id.
- **Deviating**: it is not fulfilled, on purpose; the reason stands there.
- **Not yet**: no test carries its id, and nothing is promised of it.
- *Advisory* marks a statement without a published text behind it: what other stacks really send goes before it.
"""
INTRODUCTIONS: Final = {
    "destination": "The RM Destination: what receives.",
    "source": "The RM Source: what sends, the requests of a program or the replies in an offered sequence.",
}
STATES: Final = ("shown", "deviating", "not yet")


@cache  # some ten thousand tests are read for it
def page(root: Path = ROOT, tables: Tables | None = None) -> str:
    """The whole page, as Markdown."""
    tables = tables or project_tables()
    tests = shown_by(root, tables)
    parts = [part for half in HALVES for part in _half(half, tables, tests)]
    return "\n".join([HEAD, *_counts(tables, tests), *parts])


def _state(row: Row, half: str, tables: Tables, tests: Mapping[Cell, Sequence[str]]) -> str:
    if tables.deviation(row.id, half):
        return "deviating"
    return "shown" if Cell(row.id, half) in tests else "not yet"


def _rows(half: str, tables: Tables) -> list[Row]:
    return [row for row in tables.rows.values() if half in row.halves]


def _counts(tables: Tables, tests: Mapping[Cell, Sequence[str]]) -> Iterator[str]:
    yield f"| | statements | {' | '.join(STATES)} |"
    yield "|---|" + "---|" * (1 + len(STATES))
    for half in HALVES:
        found = Counter(_state(row, half, tables, tests) for row in _rows(half, tables))
        cells = [half.capitalize(), found.total(), *(found[state] for state in STATES)]
        yield f"| {' | '.join(map(str, cells))} |"
    yield ""


def _half(half: str, tables: Tables, tests: Mapping[Cell, Sequence[str]]) -> Iterator[str]:
    yield f"## {half.capitalize()}\n"
    yield f"{INTRODUCTIONS[half]}\n"
    group = ""
    for row in _rows(half, tables):
        if row.group != group:
            group = row.group
            yield f"### {GROUPS[group]}\n"
        advisory = ", *advisory*" if row.id in ADVISORY else ""
        yield f"**{row.id}** ({', '.join(row.versions)}; {row.level}{advisory}) {row.statement}\n"
        if deviation := tables.deviation(row.id, half):
            yield f"- Deviating: {deviation.reason}.\n"
        else:
            shown = [f"- `{test.removeprefix('tests/')}`" for test in tests.get(Cell(row.id, half), ())]
            yield "\n".join(shown or ["- Not yet."]) + "\n"


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
