"""A page of the documentation: its fenced blocks, and a shell that its ``console`` blocks are typed into.

In what is expected, ``…`` stands for anything. Identifiers, times, processes and ports are not compared; tables are
compared without their drawing. A plug-in of pytest (``tests/conftest.py`` names it).
"""

from __future__ import annotations

import os
import queue
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


class Block(NamedTuple):
    """A fenced block: ``kind`` is the word behind the fence, ``text`` what is in it."""

    kind: str
    text: str


def blocks(path: Path) -> list[Block]:
    fence = r"^ *```(?P<kind>[^\n]*)\n(?P<text>.*?)^ *```$"
    return [Block(found["kind"], found["text"]) for found in re.finditer(fence, path.read_text(), re.M | re.S)]


class Typed(NamedTuple):
    command: str
    shown: str


def session(console: str) -> list[Typed]:
    """The commands of a ``console`` block, each with what it shows."""
    return [Typed(*part.partition("\n")[::2]) for part in re.split(r"^\$ ", console, flags=re.M)[1:]]


_NOT_COMPARED = (
    (r"urn:uuid:[0-9a-f-]{36}", "ID"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "TIME"),
    (r"\((in )?\d+ (ms|s|min)\)", "(SPAN)"),
    (r"127\.0\.0\.1:\d+(/[0-9a-f]+)?", "ADDRESS"),
    (r"instance [0-9a-f]{16}", "INSTANCE"),
    (r"process \d+ on [^)]+", "PROCESS"),
    (r"[ \t]+", " "),
    (r" +$", ""),
)


def comparable(text: str) -> str:
    for pattern, instead in _NOT_COMPARED:
        text = re.sub(pattern, instead, text, flags=re.M)
    return text.strip("\n")


def fits(shown: str, expected: str) -> bool:
    pattern = ".*".join(map(re.escape, comparable(expected).split("…")))
    return re.fullmatch(pattern, comparable(shown)) is not None


_LOOKS = re.compile(r"wsrm-mq (sequence (list|explain|show)|message|store info)\b|python show\.py|grep ")
"""Commands that change nothing: typed again until what is promised has come true."""


class Shell:
    """A shell that is typed into, with the commands of this environment and a port of its own."""

    PROMPT = "--- done ---"

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as other:
            self.port: int = taken.getsockname()[1]
            acks_port: int = other.getsockname()[1]
        own = {name: value for name, value in os.environ.items() if not name.startswith(("WSRM_MQ_", "ORDERS_"))}
        environ = {
            **own,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONWARNINGS": "ignore",
            "WSRM_MQ_PORT": str(self.port),
            "ACKS_PORT": str(acks_port),
            "ORDERS_URL": f"http://127.0.0.1:{self.port}/",
        }
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=directory,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=1,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not re.match(r"bash: line \d+: +\d+ (Killed|Terminated)", line):  # other shells say it otherwise
                self._lines.put(line)

    def type(self, command: str, *, lines: int = 0, seconds: float = 60) -> str:
        """What a command shows. ``lines`` is how many a command in the background is waited for."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\necho '{self.PROMPT}'\n")
        self._process.stdin.flush()
        end, shown, is_done = time.monotonic() + seconds, "", False
        while not is_done or (command.endswith("&") and shown.count("\n") < lines):
            try:
                line = self._lines.get(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"{command}: nothing more came after\n{shown}") from None
            is_done, shown = is_done or line.strip() == self.PROMPT, shown + line.replace(f"{self.PROMPT}\n", "")
        return shown

    def follow(self, typed: Typed, seconds: float = 30) -> None:
        """Type a command and see what is promised."""
        end = time.monotonic() + seconds
        shown = self.type(typed.command, lines=typed.shown.count("\n"))
        while not fits(shown, typed.shown) and _LOOKS.match(typed.command) and time.monotonic() < end:
            time.sleep(0.2)
            shown = self.type(typed.command)
        assert fits(shown, typed.shown), f"$ {typed.command}\n{shown}\ninstead of\n{typed.shown}"

    def follow_page(self, path: Path, seconds: float = 30) -> int:
        """Write each program of a page that names its file, and type its consoles; answers how much was typed."""
        followed = 0
        for kind, text in blocks(path):
            named = re.match(r"# (\w+\.py)\n", text)
            if named is not None:
                (self._directory / named[1]).write_text(text)
            for typed in session(text) if kind == "console" else ():
                self.follow(typed, seconds)
                followed += 1
        return followed

    def close(self) -> None:
        """End what was started in it, and the shell itself."""
        assert self._process.stdin is not None
        self._process.stdin.write("kill -9 $(jobs -p) 2>/dev/null; exit\n")
        self._process.stdin.close()
        self._process.wait(timeout=15)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.close()
