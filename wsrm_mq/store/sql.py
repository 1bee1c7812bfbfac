"""SQL: phrases that statements are made of, their text, and the words in which databases differ.

Statements are SQLAlchemy Core expressions that are compiled to text once per process and run straight on the driver. So
SQLAlchemy describes a statement, for SQLite now and for another database later, and costs nothing per message. Some are
written as text. Both are in words of the SQL standard, and a few of ``WORDS``. A module of this room has its text for
SQLite, made once; the driver of another database asks for the same statement (``STANDARD``) in its own words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

from sqlalchemy import ClauseElement, ColumnElement, Select, Table, Update, and_, bindparam, func, select, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.sqlite import Insert, insert
from sqlalchemy.dialects.sqlite.base import SQLiteCompiler
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.selectable import NamedFromClause

_PAIR: Final = "SELECT json_extract(value, '$[0]') AS lower, json_extract(value, '$[1]') AS upper FROM json_each({})"

WORDS: Final = {
    "IS NOT DISTINCT FROM": "IS",
    "IS DISTINCT FROM": "IS NOT",
    "greatest(": "max(",
    "least(": "min(",
    # The rows of a JSON list in the column ``value``; of one of pairs of numbers, in ``lower`` and ``upper``.
    "texts_in()": "json_each({})",
    "keys_in()": "json_each({})",
    "pairs_in()": f"({_PAIR})",
    # The values of a group, as a JSON list.
    "list_of()": "json_group_array({})",
    # How many values a JSON list has.
    "length_of()": "json_array_length({})",
    # A parameter whose type nothing around it says.
    "a_number()": "{}",
    "a_text()": "{}",
    # The address of the peer in a stored request.
    "peer_in()": "json_extract({}, '$.REMOTE_ADDR')",
    # For how many seconds a stored policy of a queue keeps the body of what is settled.
    "retain_in()": "coalesce(json_extract({}, '$.retain'), 0)",
    # Now, ms since the epoch.
    "now_ms()": "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
    # The index to read, where the planner would choose another one.
    "by_index()": "INDEXED BY {}",
}
"""The words that a database may have differently, each with its text in SQLite, where ``{}`` is what stands in the
word's brackets."""

STANDARD: Final[dict[str, str]] = {}
"""Statements as they are written, by their text for SQLite, where that differs."""


def written(statement: str) -> str:
    """The text of ``statement`` for SQLite."""
    text = said(statement)
    if text != statement:
        STANDARD[text] = statement
    return text


def said(statement: str, words: Mapping[str, str] = WORDS) -> str:
    """The text of ``statement`` where the words that differ are these."""
    for word, text in words.items():
        name, brackets, _ = word.partition("()")
        if name not in statement:
            continue
        if brackets:
            statement = re.sub(rf"\b{name}\(([?:.\w]*)\)", text.format(r"\g<1>"), statement)
        else:
            statement = statement.replace(name, text)
    return statement


class _Standard(SQLiteCompiler):
    """It writes the standard's word where SQLite has one of its own: ``said`` translates that."""

    def visit_is_distinct_from_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        return f"{self.process(binary.left, **kw)} IS DISTINCT FROM {self.process(binary.right, **kw)}"

    def visit_is_not_distinct_from_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        return f"{self.process(binary.left, **kw)} IS NOT DISTINCT FROM {self.process(binary.right, **kw)}"


_DIALECT: Final = sqlite.dialect(paramstyle="named")
_DIALECT.statement_compiler = _Standard


def compiled(statement: ClauseElement) -> str:
    """The SQL text of ``statement``, constants written in place, parameters as ``:name``."""
    return written(standard(statement))


def standard(statement: ClauseElement) -> str:
    """``compiled``, in the words that ``said`` knows: to make a statement of."""
    text = cast(SQLCompiler, statement.compile(dialect=_DIALECT))
    constants = {name: _literal(bind.effective_value) for name, bind in text.binds.items() if not bind.required}
    return re.sub(r":(\w+)", lambda found: constants.get(found[1], found[0]), str(text))


def bound(statement: ClauseElement) -> tuple[str, dict[str, Any]]:
    """The SQL text of ``statement``, and the values of its parameters but those that are given when it is run: for one
    that is made of what a user wrote."""
    text = cast(SQLCompiler, statement.compile(dialect=_DIALECT, compile_kwargs={"render_postcompile": True}))
    return said(str(text)), {name: bind.effective_value for name, bind in text.binds.items() if not bind.required}


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"


p: Final = bindparam
"""A parameter, by its name."""


def of(table: NamedFromClause, names: str) -> tuple[ColumnElement[Any], ...]:
    """These columns of a table: ``name`` or ``name as label``, with commas between."""
    pairs = (one.partition(" as ") for one in names.split(", "))
    return tuple(table.c[name].label(label) if label else table.c[name] for name, _as, label in pairs)


def given(table: NamedFromClause, names: str) -> ColumnElement[bool]:
    """Each of these columns is what the parameter of its name is."""
    return and_(*(table.c[name] == p(name) for name in names.split(", ")))


def absent(table: NamedFromClause, names: str) -> ColumnElement[bool]:
    """Each of these columns is NULL."""
    return and_(*(one.is_(None) for one in of(table, names)))


def listed(name: str) -> Select[Any]:
    """The numbers of the JSON list that is the parameter ``name``."""
    return select(func.keys_in(p(name)).table_valued("value").c.value)


def adding(table: Table, *but: str, **otherwise: Any) -> Insert:
    """Add a row: each column ``but`` these is the parameter of its name, if it is not said ``otherwise``."""
    return insert(table).values({one.name: p(one.name) for one in table.columns if one.name not in but} | otherwise)


def upserted(table: Table, key: str, rest: str, *once: str) -> str:
    """The text that adds a row, or changes the ``rest`` of the one with this ``key``. Each column is the parameter of
    its name; ``once``: columns that stay as they were added."""
    added = insert(table).values({name: p(name) for name in (*f"{key}, {rest}".split(", "), *once)})
    now = {name: added.excluded[name] for name in rest.split(", ")}
    return compiled(added.on_conflict_do_update(index_elements=key.split(", "), set_=now))


def changing(table: Table, **values: Any) -> Update:
    """Change the row with the key ``:key``."""
    return update(table).where(table.c.id == p("key")).values(values)


def changed(table: Table, **values: Any) -> str:
    """The text of ``changing``."""
    return compiled(changing(table, **values))


# text of peers and applications, as a column can have it

TEXT_LENGTH: Final = 8_000
"""Characters of an error, a remark or a status: enough for people to read."""


def storable(text: str, most: int = TEXT_LENGTH) -> str:
    """The first ``most`` characters of ``text``, and how many there are where that is not all. What no UTF-8 can carry
    (lone surrogates), and NUL, at which some readers of a column stop, stand there as escapes."""
    length = len(text)
    if length > most:
        text = f"{text[:most]}… ({length} characters)"
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")
