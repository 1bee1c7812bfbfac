"""Statements are SQLAlchemy Core expressions that are compiled to text once per process and run straight on the driver.

So SQLAlchemy describes a statement, for SQLite now and for another database later, and costs nothing per message.
"""

from __future__ import annotations

import re
from typing import Any, Final, cast

from sqlalchemy import ClauseElement
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.sqlite.base import SQLiteCompiler
from sqlalchemy.sql.compiler import SQLCompiler

from wsrm_mq.store.dialects import said, written

__all__ = ["bound", "compiled", "standard"]


class _Standard(SQLiteCompiler):
    """It writes the standard's word where SQLite has one of its own: ``dialects`` translates that."""

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
    """``compiled``, in the words that ``dialects`` knows: to make a statement of."""
    text = cast(SQLCompiler, statement.compile(dialect=_DIALECT))
    constants = {name: _literal(bind.effective_value) for name, bind in text.binds.items() if not bind.required}
    return re.sub(r":(\w+)", lambda found: constants.get(found[1], found[0]), str(text))


def bound(statement: ClauseElement) -> tuple[str, dict[str, Any]]:
    """The SQL text of ``statement``, and the values of its parameters but those that are given when it is run: for one
    that is made of what a user wrote."""
    text = cast(SQLCompiler, statement.compile(dialect=_DIALECT, compile_kwargs={"render_postcompile": True}))
    return said(str(text), "sqlite"), {
        name: bind.effective_value for name, bind in text.binds.items() if not bind.required
    }


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"
