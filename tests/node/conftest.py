"""One node for a test, over a store of its own. What a test asks through ``node``, ``connect``, ``connect_async``,
``program`` and ``rows`` alone, and is not marked ``local``, holds over the network too: there ``where`` is another."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import wsrm_mq
from wsrm_mq.node import Node
from wsrm_mq.node.async_node import AsyncNode
from wsrm_mq.store.invariants import all_findings

Connect = Callable[..., Node]
ConnectAsync = Callable[[], Awaitable[AsyncNode]]
Program = Callable[[str], "subprocess.Popen[str]"]
Rows = Callable[..., list[tuple[Any, ...]]]


def assert_sound(path: Path) -> None:
    """No invariant of the store is broken."""
    with closing(sqlite3.connect(path)) as db:
        assert list(all_findings(db)) == []


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of the store that the messages are in, whichever process has opened it."""
    return tmp_path / "store.db"


@pytest.fixture
def where(path: Path) -> str:
    """The place that nodes connect to."""
    return str(path)


@pytest.fixture
def credentials() -> dict[str, str]:
    """The options that say who connects."""
    return {}


@pytest.fixture
def connect(where: str, credentials: dict[str, str]) -> Iterator[Connect]:
    """Open another node on the same store."""
    opened: list[Node] = []

    def open_one(name: str | None = None, **options: Any) -> Node:
        opened.append(wsrm_mq.connect(where, name, **credentials, **options))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


@pytest.fixture
def connect_async(where: str, credentials: dict[str, str]) -> ConnectAsync:
    """Open a node whose methods are awaited, on the same store."""
    return lambda: wsrm_mq.connect_async(where, **credentials)


@pytest.fixture
def node(connect: Connect, path: Path) -> Iterator[Node]:
    """A node; behind the test its store has no fault."""
    yield connect()
    if path.exists():  # a server makes it when it is asked for something
        assert_sound(path)


@pytest.fixture
def rows(path: Path) -> Rows:
    """Run a query on the store, for what is on record there and no message tells."""

    def read(query: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(path)) as db:
            return db.execute(query, values).fetchall()

    return read


@pytest.fixture
def beginning() -> str:
    """Lines that a ``program`` begins with."""
    return ""


@pytest.fixture
def program(where: str, credentials: dict[str, str], beginning: str) -> Iterator[Program]:
    """Run lines of Python in a process of its own, in which ``node`` is a node of the same store."""
    begun: list[subprocess.Popen[str]] = []

    def run(lines: str) -> subprocess.Popen[str]:
        connected = f"node = wsrm_mq.connect({where!r}, **{credentials!r})\n"
        text = f"import os, sys, time, wsrm_mq\n{beginning}{connected}{lines}"
        begun.append(
            subprocess.Popen(
                [sys.executable, "-u", "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
            )
        )
        return begun[-1]

    yield run
    for one in begun:
        if one.poll() is None:
            one.kill()
        one.communicate()
