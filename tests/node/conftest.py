"""One node for a test, over a store of its own. What tests ask of ``node`` alone holds over the network too."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import wsrm_mq
from wsrm_mq.node import Node
from wsrm_mq.store.invariants import all_findings

Connect = Callable[..., Node]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def connect(path: Path) -> Iterator[Connect]:
    """Open another node on the same store."""
    opened: list[Node] = []

    def open_one(name: str | None = None, **options: Any) -> Node:
        opened.append(wsrm_mq.connect(path, name, **options))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


@pytest.fixture
def node(connect: Connect) -> Iterator[Node]:
    """A node; behind the test its store has no fault."""
    one = connect()
    yield one
    if one.store.is_open:
        with one.store.reader() as db:
            assert list(all_findings(db)) == []


@pytest.fixture
def program(path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Run lines of Python in a process of its own, in which ``node`` is a node of the same store."""
    begun: list[subprocess.Popen[str]] = []

    def run(lines: str) -> subprocess.Popen[str]:
        text = f"import os, sys, time, wsrm_mq\nnode = wsrm_mq.connect({str(path)!r})\n{lines}"
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
