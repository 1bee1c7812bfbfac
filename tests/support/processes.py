"""Other processes of Python, and stores as older versions made them."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from wsrm_mq.store.sqlite.connection import connect_writer, create_file

OLDER = Path(__file__).parents[1] / "store" / "older"
Python = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def python() -> Iterator[Python]:
    """Start another Python process; what is left of it at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str, *arguments: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def older_store(tmp_path: Path) -> Callable[[str], Path]:
    """Make an empty store as a version with this schema made it; ``older`` has what those ran."""

    def make(revision: str) -> Path:
        path = tmp_path / "store.db"
        create_file(path)
        with closing(connect_writer(path)) as db:
            db.executescript((OLDER / f"{revision}.sql").read_text())
        return path

    return make
