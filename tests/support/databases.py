"""An application's own database, and the ways to connect to it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool


@dataclass
class Orders:
    """An application's database with one table, ``effects``, and one way to connect to it."""

    where: str
    connect: Callable[[], Any]

    def effects(self) -> list[int]:
        """What is committed."""
        with closing(self.connect()) as connection:
            return [n for (n,) in do(connection, "SELECT n FROM effects ORDER BY n").fetchall()]

    def marks(self) -> int:
        with closing(self.connect()) as connection:
            [(marks,)] = do(connection, "SELECT count(*) FROM wsrm_inbox").fetchall()
            return int(marks)


def do(connection: Any, statement: str) -> Any:
    is_sqlalchemy = type(connection).__module__.startswith("sqlalchemy")
    return connection.execute(sqlalchemy.text(statement) if is_sqlalchemy else statement)


def work(connection: Any, n: int = 1) -> None:
    do(connection, f"INSERT INTO effects VALUES ({n})")


def sqlite_orders(path: Path) -> Orders:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE effects (n INTEGER)")
    return Orders(str(path), lambda: sqlite3.connect(path, timeout=20))


DATABASE_NUMBERS = count(1)


def postgres_orders(server: str) -> Orders:
    name = f"orders{next(DATABASE_NUMBERS)}"
    with closing(psycopg.connect(server, autocommit=True)) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    where = server.replace("dbname=postgres", f"dbname={name}")
    with closing(psycopg.connect(where)) as connection:
        connection.execute("CREATE TABLE effects (n INTEGER)")
        connection.commit()
    return Orders(where, lambda: psycopg.connect(where))


def sqlalchemy_of(orders: Orders, **options: Any) -> Orders:
    dialect = "postgresql+psycopg" if orders.where.startswith("host=") else "sqlite"
    engine = sqlalchemy.create_engine(f"{dialect}://", creator=orders.connect, poolclass=NullPool, **options)
    return Orders(orders.where, engine.connect)


def session_of(orders: Orders) -> Orders:
    connect = sqlalchemy_of(orders).connect
    return Orders(orders.where, lambda: Session(connect()))


KINDS = ["sqlite3", "sqlalchemy sqlite", "session sqlite", "psycopg", "sqlalchemy psycopg", "session psycopg"]


def orders_by(kind: str, request: pytest.FixtureRequest, directory: Path) -> Orders:
    """The database and the way of one of ``KINDS``."""
    plain = (
        sqlite_orders(directory / "orders.sqlite")
        if "sqlite" in kind
        else postgres_orders(request.getfixturevalue("postgres"))
    )
    wrap = {"sqlalchemy": sqlalchemy_of, "session": session_of}.get(kind.split()[0], lambda it: it)
    return wrap(plain)
