"""The servers that consumers on other machines wait at: ours, and the least that could stand in its place."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import wsrm_mq
from bench.dying import die_with_parent
from bench.process import THIS_TREE
from tests.support.programs import free_port
from wsrm_mq.server import tokens
from wsrm_mq.server.rights import Grant

__all__ = ["QUEUE", "TOKENS", "Served", "bare_server", "made", "queue_server"]

QUEUE: Final = "bench"
TOKENS: Final = ("wsrm-mq-of-the-bench-0", "wsrm-mq-of-the-bench-1")
"""Of two principals: one may not have as many sessions as connections are measured."""


class Served(NamedTuple):
    """``stomp``: the port of STOMP, where that is spoken."""

    url: str
    pid: int
    stomp: int


def made(place: Path, bodies: list[bytes]) -> Path:
    """A new store in which these wait, and in which the tokens may do all that is measured."""
    with wsrm_mq.connect(place) as node:
        node.declare(QUEUE)
        if bodies:
            node.put_many(QUEUE, bodies)
        for number, secret in enumerate(TOKENS):
            grants = [Grant(right, QUEUE) for right in ("put", "consume")]
            node.call(partial(tokens.add, name=f"bench-{number}", grants=grants, secret=secret))
    return place


@contextmanager
def queue_server(store: Path, core: int | None = None) -> Iterator[Served]:
    """``wsrm-mq queue-server`` as its page starts it, with STOMP; on one core where that is given."""
    stomp = free_port()
    arguments = ["wsrm_mq", "queue-server", "--port", "0", "--store", str(store), "--stomp-port", str(stomp)]
    with _announced([*arguments, "--log-level", "error"], core) as (url, pid):
        yield Served(url, pid, stomp)


@contextmanager
def bare_server() -> Iterator[Served]:
    """An application that only waits, on the server that ours runs on."""
    with _announced(["bench.network_bare"]) as (url, pid):
        yield Served(url, pid, 0)


@contextmanager
def _announced(arguments: list[str], core: int | None = None) -> Iterator[tuple[str, int]]:
    """A module that is run, and tells where it listens at the end of a line."""

    def alone() -> None:
        die_with_parent()
        if core is not None:
            os.sched_setaffinity(0, {core})

    command = [sys.executable, "-m", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=THIS_TREE, preexec_fn=alone
    ) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().rpartition(" ")[2].strip()
            if not url:
                raise RuntimeError(f"{' '.join(arguments)} did not start")
            yield url, process.pid
        finally:
            process.kill()
