"""Imports point inward: the table of ARCHITECTURE.md, held against the code."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "wsrm_mq"

INNER = {"errors", "versions"}
ROOMS: dict[str, set[str]] = {
    "errors": {"sequence"},  # a type only: the fault that an EnvelopeError carries
    "versions": set(),
    "sequence": INNER,
    "envelope": INNER | {"sequence"},
    "store": INNER | {"sequence"},
    "queue": INNER | {"sequence", "store"},
    "replay": INNER | {"sequence", "store", "queue"},
    "config": INNER | {"sequence", "envelope", "queue"},
    "application": INNER | {"sequence", "store", "queue", "envelope", "replay"},
    "destination": INNER | {"sequence", "store", "queue", "envelope", "replay"},
    "engine": INNER | {"store", "queue", "replay"},
    "connections": set(),
    "request_body": {"queue"},
    "inbox": {"errors"},
    "contrib": {"errors"},
    "wsgi": INNER
    | {
        "application",
        "config",
        "connections",
        "contrib",
        "destination",
        "engine",
        "envelope",
        "queue",
        "replay",
        "request_body",
        "store",
    },
    "testing": INNER | {"sequence", "envelope"},
}
"""Room → the rooms it may import besides itself. The command line and the demo stand outside and may import all."""

OUTSIDE = {"__init__", "__main__", "cli", "demo"}

HOMES = {
    "alembic": {"store"},
    "click": {"cli"},
    "lxml": {"envelope", "testing"},
    "msgspec": {"config"},
    "psycopg": {"inbox"},
    "rich": {"cli", "demo"},
    "spyne": {"contrib", "demo"},
    "sqlalchemy": {"store", "inbox"},
    "sqlite3": {"store", "queue", "inbox", "cli", "demo"},
    "waitress": {"cli", "demo"},
    "xml": {"envelope"},
}
"""A third-party package lives in one place; sqlite3 and the XML parsers of the standard library too."""


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


MODULES = sorted(path for path in PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_what_lies_further_in(path: Path) -> None:
    room = room_of(path)
    if room in OUTSIDE:
        return
    own = {name.split(".")[1] for name in imported(path) if name.startswith("wsrm_mq.")}
    assert own - {room} <= ROOMS[room]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_third_party_package_lives_in_one_place(path: Path) -> None:
    for name in imported(path):
        top = name.split(".")[0]
        assert top not in HOMES or room_of(path) in HOMES[top], f"{top} does not belong into {room_of(path)}"
