"""Every event that the code tells is in the table, with its fields; and the page shows the table."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator
from pathlib import Path

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


def test_every_event_of_the_table_is_told_somewhere_with_its_fields_and_no_other_is() -> None:
    told = set(FROM_LEDGER.values()) | {"sequence.failed", "log.failed", "queue.taken"}
    for place, name, fields in calls():
        assert name in EVENTS, place
        assert fields <= set(EVENTS[name].fields), place
        told.add(name)
    assert told == set(EVENTS)


def test_no_module_logs_past_the_table() -> None:
    """The formatter of `serve` sets logging up; it tells nothing."""
    logging = [path for path in PACKAGE.rglob("*.py") if re.search(r"^(import|from) logging", path.read_text(), re.M)]
    assert {path for path in logging if path.parent.name != "events"} == {PACKAGE / "serving" / "logs.py"}


def test_no_field_hides_a_key_of_a_line_of_json() -> None:
    for name, kind in EVENTS.items():
        assert {"at", "level", "logger", "event_name", "message", "traceback"}.isdisjoint(kind.fields), name


def test_the_page_shows_the_table_and_what_each_event_means() -> None:
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in PAGE.read_text().splitlines()
        if re.match(r"\| `[a-z_]+\.[a-z_]+` \| [A-Z]+ \|", line)
    ]
    assert [row[:-1] for row in rows] == [
        [
            f"`{name}`",
            logging.getLevelName(kind.level),
            ", ".join(f"`{field}`" for field in kind.fields),
            "yes" if kind.is_reported else "",
        ]
        for name, kind in EVENTS.items()
    ]
    assert all(row[-1] for row in rows)
