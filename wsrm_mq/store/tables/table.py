"""What every table is made with."""

from __future__ import annotations

from typing import Any, Final, cast

from sqlalchemy import CheckConstraint, Column, MetaData, Table

metadata: Final = MetaData()


def one_of(column: str, words: tuple[str, ...]) -> CheckConstraint:
    listed = ", ".join(f"'{word}'" for word in words)
    return CheckConstraint(f"{column} IN ({listed})", name=f"{column}_is_a_word")


def table(name: str, *parts: Column[Any] | CheckConstraint, **options: bool) -> Table:
    return Table(name, metadata, *parts, sqlite_strict=True, **cast(Any, options))
