"""The store's tables and statements on a real PostgreSQL: none is written in a way that only SQLite understands."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from typing import Any, Final

import psycopg
import pytest
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable

import wsrm_mq.store
from wsrm_mq.store import published
from wsrm_mq.store.bulk import Bulk
from wsrm_mq.store.invariants import Invariant
from wsrm_mq.store.sql import STANDARD, WORDS, said
from wsrm_mq.store.tables import metadata

STATEMENT: Final = re.compile(r"\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH)\s")
COMMAND: Final = re.compile(rf"{STATEMENT.pattern}|\s*(PRAGMA|BEGIN|VACUUM|CREATE|DROP|ALTER)\b")
ROWS: Final = (1, 2, 16, 32)
"""Of a statement for many rows."""

_ELEMENTS: Final = "jsonb_array_elements{}(CAST({{}} AS JSONB))"
POSTGRESQL: Final = {
    "AS INTEGER)": "AS BIGINT)",
    "texts_in()": f"(SELECT value FROM {_ELEMENTS.format('_text')} AS one (value))",
    "keys_in()": f"(SELECT CAST(value AS BIGINT) AS value FROM {_ELEMENTS.format('_text')} AS one (value))",
    "pairs_in()": "(SELECT CAST(value->>0 AS BIGINT) AS lower, CAST(value->>1 AS BIGINT) AS upper "
    f"FROM {_ELEMENTS.format('')} AS one (value))",
    "list_of()": "CAST(jsonb_agg({}) AS TEXT)",
    "length_of()": "jsonb_array_length(CAST({} AS JSONB))",
    "a_number()": "CAST({} AS BIGINT)",
    "a_text()": "CAST({} AS TEXT)",
    "peer_in()": "(CAST({} AS JSONB)->>'REMOTE_ADDR')",
    "retain_in()": "coalesce(CAST(CAST({} AS JSONB)->>'retain' AS DOUBLE PRECISION), 0)",
    "now_ms()": "CAST(extract(epoch FROM statement_timestamp()) * 1000 AS BIGINT)",
    "by_index()": "",
}
"""The words of ``WORDS`` as PostgreSQL has them, and one more; those of the standard it has as they are."""

OWN: Final = {
    "archiving.LAST_LEDGER": "the last value of the column's sequence (pg_sequences)",
    "invariants._LAST_POSITION": "the last value of the column's sequence",
    "invariants: a key is never used again": "the last value of each sequence, against max(id)",
    "invariants: the watermark of connections is there, and not above the last position": "as _LAST_POSITION",
    "invariants: the watermark of sequences is there, and not above the last position": "as _LAST_POSITION",
    "invariants of sqlite_schema": "none: what has no keys is asked once",
    "invariants of sqlite_sequence": "as what is asked: once",
    "sqlite.connection._ALLOCATE": "a large object: bodies are streamed into it",
    "sqlite.connection._LAST_POSITION": "as many keys as are needed, each by nextval",
    "sqlite.connection._RESERVE": "as many keys as are needed, each by nextval",
    "sqlite.creating._FIRST_ROWS[1]": "none: a sequence begins at 1",
    "sqlite.witness._LAST_KEYS": "none: no file can be replaced",
}
"""Statements that the SQLite driver alone has, and what PostgreSQL's has instead."""

OWN_IN_FUNCTIONS: Final = {
    "sqlite.backup": "pg_dump, and the mark of the copy",
    "sqlite.connection": "the options of a connection; BEGIN; a lock timeout; LISTEN tells that others have written; "
    "pg_database_size",
    "sqlite.files": "none: a server serves nothing but databases",
    "sqlite.schema": "information_schema.tables",
    "sqlite.space": "autovacuum",
    "sqlite.temporary": "none: express messages lie in the memory of a node, whatever its store is",
    "sqlite.vitals": "amcheck",
}
"""Modules of the driver whose functions have statements of SQLite's, and what PostgreSQL has instead."""

MADE: Final = {
    "bulk._changes",
    "invariants._of_late_index",
    "invariants.ends",
    "late_index.__init__",
    "published.texts",
    "sqlite.creating.statements",
}
"""Functions that make statements which are prepared or executed here, or are the standard's."""


def modules() -> Iterator[tuple[str, Any]]:
    for found in pkgutil.walk_packages(wsrm_mq.store.__path__, "wsrm_mq.store."):
        name = found.name.removeprefix("wsrm_mq.store.")
        if name not in ("tables", "sql", "sqlite.migrations"):
            yield name, importlib.import_module(found.name)


def within(name: str, value: object) -> Iterator[tuple[str, str]]:
    """The statements that a value of a module has, by their names."""
    if isinstance(value, str):
        if STATEMENT.match(value):
            yield name, value
    elif isinstance(value, Bulk):
        yield from ((f"{name} {count}", value.text(count)) for count in ROWS)
    elif isinstance(value, Invariant):
        yield f"invariants: {value.name}", value.question
        yield f"invariants of {value.table}", value.ends
    elif isinstance(value, tuple | list):
        yield from (found for number, one in enumerate(value) for found in within(f"{name}[{number}]", one))
    elif isinstance(value, dict):
        yield from (found for one in value.values() for found in within(name, one))
    elif type(value).__module__.startswith("wsrm_mq.store"):
        yield from (
            found for key, one in getattr(value, "__dict__", {}).items() for found in within(f"{name}.{key}", one)
        )


def statements() -> dict[str, str]:
    found: dict[str, str] = {}
    for module, its in modules():
        for key, value in vars(its).items():
            for name, text in within(f"{module}.{key}", value):
                if text not in found.values():
                    found[name] = text
    return found


def texts_in(function: ast.AST) -> Iterator[str]:
    """What a function may execute: the texts in it, but its documentation."""
    documentation = ast.get_docstring(function, clean=False) if isinstance(function, ast.FunctionDef) else None
    for node in ast.walk(function):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value != documentation:
            yield node.value


def functions_with_statements() -> set[str]:
    found = set()
    for module, its in modules():
        for node in ast.walk(ast.parse(inspect.getsource(its))):
            if isinstance(node, ast.FunctionDef) and any(map(COMMAND.match, texts_in(node))):
                found.add(f"{module}.{node.name}")
    return found


def in_postgresql(text: str) -> str:
    """The statement whose text for SQLite is ``text``."""
    return said(STANDARD.get(text, text), POSTGRESQL)


def numbered(statement: str) -> str:
    """With ``$1`` for each parameter."""
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        if found[0].startswith("'"):
            return found[0]
        if found[0] == "?" or found[0] not in names:
            names.append(found[0])
        return f"${len(names) if found[0] == '?' else names.index(found[0]) + 1}"

    return re.sub(r"'[^']*'|\?|:\w+", number, statement)


@pytest.fixture(scope="module")
def db(postgres: str) -> Iterator[psycopg.Connection[Any]]:
    """A database with the tables and the views of a store."""
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE DATABASE store")
    with psycopg.connect(f"{postgres} dbname=store", autocommit=True) as connection:
        dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
        for table in metadata.sorted_tables:
            connection.execute(str(CreateTable(table).compile(dialect=dialect)).encode())
            for one in table.indexes:
                connection.execute(str(CreateIndex(one).compile(dialect=dialect)).encode())
        for text in published.texts().values():
            connection.execute(in_postgresql(text).encode())
        yield connection


def refused(db: psycopg.Connection[Any], statement: str) -> str | None:
    """What PostgreSQL says against a statement."""
    try:
        db.execute(f"PREPARE one AS {numbered(in_postgresql(statement))}".encode())
        db.execute("DEALLOCATE one")
    except psycopg.Error as error:
        return str(error)
    return None


def test_every_statement_is_prepared_or_listed_as_sqlites_own(db: psycopg.Connection[Any]) -> None:
    found = statements()
    assert len(found) > 200
    wrong = {
        name: f"{why}\n{found[name]}"
        for name in found
        if name not in OWN and (why := refused(db, found[name])) is not None
    }
    assert not wrong, "\n\n".join(f"{name}: {why}" for name, why in wrong.items())


def test_what_is_listed_as_sqlites_own_is_there_and_refused(db: psycopg.Connection[Any]) -> None:
    found = statements()
    assert set(OWN) <= set(found)
    assert [name for name in OWN if refused(db, found[name]) is None] == []


def test_a_statement_stands_at_the_level_of_its_module_but_sqlites_own() -> None:
    found = functions_with_statements()
    assert found >= MADE
    assert {name.rpartition(".")[0] for name in found - MADE} == set(OWN_IN_FUNCTIONS)


def test_each_word_that_databases_have_differently_is_postgresqls_or_the_standards() -> None:
    assert {word for word in WORDS if word.endswith("()")} < POSTGRESQL.keys()


def test_the_views_are_made(db: psycopg.Connection[Any]) -> None:
    views = db.execute("SELECT count(*) FROM pg_views WHERE schemaname = 'public'").fetchone()
    assert views == (len(published.texts()),)


def test_partial_indexes_stay_partial_and_times_fit(db: psycopg.Connection[Any]) -> None:
    partial = {
        one.name
        for table in metadata.tables.values()
        for one in table.indexes
        if one.dialect_kwargs["sqlite_where"] is not None
    }
    where = "SELECT indexname FROM pg_indexes WHERE schemaname = 'public' AND indexdef LIKE '% WHERE %'"
    made = db.execute(where).fetchall()
    assert {name for (name,) in made} == partial
    assert len(partial) > 20
    types = "SELECT DISTINCT data_type FROM information_schema.columns c JOIN pg_tables ON tablename = c.table_name "
    types += "WHERE schemaname = 'public'"
    assert {name for (name,) in db.execute(types).fetchall()} == {"bigint", "real", "text", "bytea"}
    given = "SELECT table_name FROM information_schema.columns WHERE is_identity = 'YES' AND table_schema = 'public'"
    assert {name for (name,) in db.execute(given).fetchall()} == {
        *("queue", "entry", "lane", "ledger", "instance", "outbound_sequence", "client", "subscription", "binding"),
        "route",
    }
