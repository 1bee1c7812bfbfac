"""Phrases that statements are made of: columns and conditions, listed as SQL lists them."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import ColumnElement, Select, Table, Update, and_, bindparam, func, select, update
from sqlalchemy.dialects.sqlite import Insert, insert
from sqlalchemy.sql.selectable import NamedFromClause

from wsrm_mq.store.compiling import compiled

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
