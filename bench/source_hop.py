"""A hop between two nodes beside our RM Source and a wrapped service: a backlog waits, and the destination comes up."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import wsrm_mq
from bench.process import THIS_TREE
from wsrm_mq.source import RMSource

__all__ = ["hop", "service", "source"]

_GIVEN_UP: Final = 300.0
"""Seconds."""
_SETTLED: Final = "SELECT count(*) FROM entry WHERE outcome IS NOT NULL"
_PLACED: Final = "SELECT count(*) FROM entry WHERE queue = (SELECT id FROM queue WHERE name = 'orders')"


def service(_environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """The wrapped application: it does nothing."""
    start_response("202 Accepted", [("Content-Length", "0")])
    return []


def source(envelope: bytes, action: str, directory: Path, messages: int) -> float:
    """Requests a second that our RM Source has delivered to a service in a process of its own that stores each."""
    port = _free_port()
    with RMSource(directory / "outbox.db") as sender:
        for _ in range(messages):
            sender.send(envelope, to=f"http://127.0.0.1:{port}/orders", action=action)
        words = ["serve", "bench.source_hop:service", "--one-way", action, "--store", "there.db", "--port", port]
        with _running(directory, *words):
            return _rate(directory / "there.db", _SETTLED, messages)


def hop(body: bytes, directory: Path, messages: int) -> float:
    """Messages a second that a node hands over to a queue of the next one, each node a queue server in a process."""
    here, there = directory / "here.db", directory / "there.db"
    port = _free_port()
    with wsrm_mq.connect(there) as target:
        target.declare("orders")
    token = _command(directory, "token", "add", "here", "--route", "*", "--store", there)
    (directory / "wsrm-mq.toml").write_text(
        f'[node.there]\nurl = "http://127.0.0.1:{port}"\ntoken_env = "TOKEN_OF_THERE"\n'
    )
    with wsrm_mq.connect(here) as sender:
        sender.route("there/*", f"http://127.0.0.1:{port}/rm", strip=True)
        sender.put_many("there/orders", [body] * messages)
    with (
        _running(directory, "queue-server", "--store", here, "--port", _free_port(), TOKEN_OF_THERE=token),
        _running(directory, "queue-server", "--store", there, "--port", port, TOKEN_OF_THERE=token),
    ):
        return _rate(there, _PLACED, messages)


def _rate(store: Path, counted: str, messages: int) -> float:
    """Messages a second in a store, from the first to the last."""
    given_up, first = time.monotonic() + _GIVEN_UP, 0.0
    while not store.exists():
        time.sleep(0.01)
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as db:
        while True:
            try:
                (there,) = db.execute(counted).fetchone()
            except sqlite3.OperationalError:  # the tables are not made yet
                there = 0
            now = time.perf_counter()
            if there and not first:
                first, before = now, there
            if there >= messages:
                return float((messages - before) / (now - first))
            if time.monotonic() > given_up:
                raise RuntimeError(f"{there} of {messages} messages have arrived after {_GIVEN_UP:.0f} s")
            time.sleep(0.01)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _command(directory: Path, *words: object) -> str:
    command = [sys.executable, "-m", "wsrm_mq", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(THIS_TREE)}
    return subprocess.run(
        command, cwd=directory, env=environment, check=True, capture_output=True, text=True
    ).stdout.strip()


@contextmanager
def _running(directory: Path, *words: object, **environment: str) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-m", "wsrm_mq", *map(str, words)],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(THIS_TREE), **environment},
        stdout=subprocess.DEVNULL,
        stderr=(directory / "log").open("ab"),
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()
