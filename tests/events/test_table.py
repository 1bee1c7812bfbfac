"""Every event that the code tells is in the table, with its fields; and the page shows the table."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from wsrm_mq.events.table import EVENTS, FROM_LEDGER

PACKAGE = Path(__file__).parents[2] / "wsrm_mq"
PAGE = PACKAGE.parent / "docs" / "observability.md"

BY_NAME_AND_DELIVERY = {"sequence", "number", "error"}
"""What the dispatcher's own ``_tell`` adds."""


def calls() -> Iterator[tuple[str, str, set[str]]]:
    """Place, event and fields of every call that tells one."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            names = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            place = f"{path.relative_to(PACKAGE)}:{node.lineno}"
            given = {keyword.arg for keyword in node.keywords if keyword.arg} - {"trouble"}
            if called == "tell" and names:
                own = {"error"} if len(node.args) == 3 else set()  # Repeated.tell(events, name, error)
                yield place, names[0], given | own
            elif called == "_tell" and names:
                yield place, names[0], BY_NAME_AND_DELIVERY


CALLS = sorted(calls(), key=str)


@pytest.mark.parametrize(("place", "name", "fields"), CALLS, ids=[place for place, _, _ in CALLS])
def test_what_is_told_is_in_the_table_with_its_fields(place: str, name: str, fields: set[str]) -> None:
    assert name in EVENTS
    assert fields <= set(EVENTS[name].fields)


def test_every_event_of_the_table_is_told_somewhere() -> None:
    told = {name for _, name, _ in CALLS} | set(FROM_LEDGER.values()) | {"sequence.failed", "log.failed"}
    assert told == set(EVENTS)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_module_logs_past_the_table(path: Path) -> None:
    """The formatter of `serve` sets logging up; it tells nothing."""
    if path.parent.name == "events" or path == PACKAGE / "serving" / "logs.py":
        return
    assert not re.search(r"^(import logging|from logging)", path.read_text(), re.M)


@pytest.mark.parametrize("name", EVENTS)
def test_no_field_hides_a_key_of_a_line_of_json(name: str) -> None:
    assert {"at", "level", "logger", "event_name", "message", "traceback"}.isdisjoint(EVENTS[name].fields)


def test_the_page_shows_the_table() -> None:
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in PAGE.read_text().splitlines()
        if re.match(r"\| `[a-z_]+\.[a-z_]+` \| [A-Z]+ \|", line)
    ]
    assert rows == [
        [
            f"`{name}`",
            logging.getLevelName(kind.level),
            ", ".join(f"`{field}`" for field in kind.fields),
            "yes" if kind.is_reported else "",
            kind.meaning,
        ]
        for name, kind in EVENTS.items()
    ]
