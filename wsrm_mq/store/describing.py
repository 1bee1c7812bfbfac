"""How tables and their columns are described: once, for SQLite and for PostgreSQL."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import BigInteger, CheckConstraint, Column, Identity, Index, Integer, text

Number: Final = Integer().with_variant(BigInteger(), "postgresql")
"""64 bits: a key, a number, or a time in ms since the epoch."""


def given_key() -> Column[Any]:
    """A key that the database gives, once."""
    return Column("id", Number, Identity(), primary_key=True)


def columns(names: str, *kind: Any, **options: Any) -> tuple[Column[Any], ...]:
    """Columns that differ in their names alone."""
    return tuple(Column(name, *kind, **options) for name in names.split(", "))


def one_of(column: str, words: tuple[str, ...]) -> CheckConstraint:
    listed = ", ".join(f"'{word}'" for word in words)
    return CheckConstraint(f"{column} IN ({listed})", name=f"{column}_is_a_word")


def index(name: str, *columns: Any, where: str = "", unique: bool = False) -> None:
    """Add an index of the rows ``where`` that is true; of all rows without it."""
    condition = text(where) if where else None
    Index(name, *columns, unique=unique, sqlite_where=condition, postgresql_where=condition)
