"""Imports point inward: the table of ROOMS.md, held against the code."""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "wsrm_mq"

ARCHITECTURE = PACKAGE.parent / "ARCHITECTURE.md"
ROOMS_PAGE = PACKAGE.parent / "ROOMS.md"

OUTSIDE = {"__init__", "__main__"}
EVERYTHING = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in PACKAGE.rglob("*.py")}


def quoted(cell: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", cell))


def table() -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Room → the rooms it may import; package of others → the rooms that may import it."""
    rooms: dict[str, set[str]] = {}
    homes: dict[str, set[str]] = defaultdict(set)
    rows = ROOMS_PAGE.read_text(encoding="utf-8").partition("| room |")[2].splitlines()[2:]
    for row in rows:
        _, names, inner, others, _ = row.split("|")
        whole = {"everything above": set(rooms), "everything, where it is used": EVERYTHING}
        allowed = whole.get(inner.strip(), quoted(inner))
        rooms |= dict.fromkeys(quoted(names), allowed)
        for package in quoted(others):
            homes[package] |= quoted(names)
    return rooms, homes


ROOMS, HOMES = table()
FREE = {"wsrm_mq", *sys.stdlib_module_names} - set(HOMES)
"""What needs no line: this package, whose rooms the first half is about, and most of the standard library."""


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


MODULES = sorted(path for path in PACKAGE.rglob("*.py"))


def test_a_module_imports_only_what_lies_further_in() -> None:
    wrong = {}
    for path in MODULES:
        room = room_of(path)
        own = {name.split(".")[1] for name in imported(path) if name.startswith("wsrm_mq.")}
        if room not in OUTSIDE and (too_far := own - {room} - ROOMS.get(room, set())):
            wrong[path] = too_far
    assert wrong == {}


def test_an_optional_storey_is_imported_by_no_room_above_it() -> None:
    rooms = [*ROOMS]
    served = rooms[: rooms.index("serving") + 1]
    optional = set(rooms) - set(served)
    assert optional >= {"archive", "decoding", "demo", "export", "probe", "replay", "spark"}
    assert {room: found for room in served if (found := ROOMS[room] & optional)} == {}


def test_a_package_of_others_is_imported_only_where_the_table_says_so() -> None:
    wrong = {}
    for path in MODULES:
        tops = {name.split(".")[0] for name in imported(path)} - FREE
        if elsewhere := {top for top in tops if room_of(path) not in HOMES[top]}:
            wrong[path] = elsewhere
    assert wrong == {}


def test_the_driver_of_sqlite_is_in_one_place_and_its_own_things_are_the_stores_and_the_commands() -> None:
    driver = PACKAGE / "store" / "sqlite"
    in_store = {path for path in MODULES if room_of(path) == "store" and "sqlite3" in imported(path)}
    assert in_store
    assert {path for path in in_store if path.parent != driver} == set()
    users = {path for path in MODULES if any("wsrm_mq.store.sqlite" in name for name in imported(path))}
    assert {path for path in users if room_of(path) == "store" and path.parent != driver} == {
        driver.parent / "driver.py"
    }
    assert {room_of(path) for path in users} == {"store", "cli"}


def test_what_the_page_names_is_a_module_or_defined_in_one() -> None:
    dotted = {path: ".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in MODULES}
    sources = {name.removesuffix(".__init__"): path.read_text("utf-8") for path, name in dotted.items()}
    named = set(re.findall(r"`([a-z_]+(?:\.\w+)+)`", ARCHITECTURE.read_text(encoding="utf-8"))) - set(sources)
    for module, _, name in (one.rpartition(".") for one in named):
        assert re.search(rf"^(?:def|class) {name}\b", sources.get(module, ""), re.MULTILINE), f"{module}.{name}"


def test_the_page_is_one_page() -> None:
    assert len(ARCHITECTURE.read_text(encoding="utf-8").split()) <= 900


def test_the_table_names_what_there_is_and_nothing_else() -> None:
    assert set(ROOMS) | OUTSIDE == EVERYTHING
    used = {name.split(".")[0] for path in MODULES for name in imported(path)}
    assert set(HOMES) <= used
    assert set().union(*ROOMS.values()) <= EVERYTHING


SQL = re.compile(r"\b(SELECT|INSERT|DELETE FROM|UPDATE \S+ SET|PRAGMA|BEGIN|COMMIT|ROLLBACK|json_each|zeroblob)\b")
"""Words of a statement, as they are written in one."""
WRITE_SQL = {"store", "databases", "inbox", "outbox", "demo", "replay"}
STOMP = PACKAGE / "server" / "stomp"
COMMANDS_OF_STOMP = {"BEGIN", "COMMIT"}
"""Two commands of STOMP are words of SQL too."""


def sql_in(path: Path) -> list[str]:
    """The strings of a module that hold SQL; docstrings and comments are free to speak of it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in docstrings
        and SQL.search(node.value)
    ]


def test_sql_stands_in_the_store() -> None:
    found = {path: set(sql_in(path)) for path in MODULES if room_of(path) not in WRITE_SQL}
    free = {path: COMMANDS_OF_STOMP for path in found if STOMP in path.parents}
    assert {path: sql for path, sql in found.items() if sql - free.get(path, set())} == {}
