"""``wsrm-mq serve`` as a process of its own, with a service that waits for a file."""

from __future__ import annotations

import http.client
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from wsrm_mq.testing import EnvelopeFactory, Reply

APPLICATION = '''
"""Writes a line when an operation begins, waits for the file `go`, writes another, answers."""
import os, time

def app(environ, start_response):
    if environ["REQUEST_METHOD"] == "GET":  # it has no WSDL
        start_response("404 Not Found", [("Content-Length", "0")])
        return []
    with open("calls", "a") as calls:
        calls.write("begin\\n")
    while os.path.exists("wait"):
        time.sleep(0.01)
    with open("calls", "a") as calls:
        calls.write("end\\n")
    body = b"<s:Envelope xmlns:s='http://www.w3.org/2003/05/soap-envelope'><s:Body><done/></s:Body></s:Envelope>"
    start_response("200 OK", [("Content-Type", "application/soap+xml"), ("Content-Length", str(len(body)))])
    return [body]

number = 5
'''

SOURCE = EnvelopeFactory()


class Served:
    def __init__(self, directory: Path, *arguments: str) -> None:
        self.directory = directory
        self.process = subprocess.Popen(
            [sys.executable, "-m", "wsrm_mq", "serve", *arguments],
            cwd=directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], 60)
        line = self.process.stdout.readline() if ready else ""
        assert line.startswith("wsrm-mq: serving http://"), line + self.end(signal.SIGKILL)[1]
        self.url = line.removeprefix("wsrm-mq: serving ").strip()

    def post(self, content: bytes, path: str = "/orders") -> http.client.HTTPResponse:
        where = urlsplit(self.url)
        connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)
        connection.request("POST", path, content, {"Content-Type": SOURCE.content_type})
        return connection.getresponse()

    def create(self) -> str:
        created = Reply.parse(self.post(SOURCE.create_sequence()).read()).created
        assert created is not None
        return created.identifier

    def calls(self) -> list[str]:
        try:
            return (self.directory / "calls").read_text().split()
        except FileNotFoundError:
            return []

    def end(self, number: int) -> tuple[int, str]:
        """Status, and all it said."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said


Serve = Callable[..., Served]


@pytest.fixture
def serve(somewhere: Path) -> Iterator[Serve]:
    (somewhere / "shop.py").write_text(APPLICATION)
    started: list[Served] = []

    def start(*arguments: str) -> Served:
        started.append(Served(somewhere, *arguments))
        return started[-1]

    yield start
    for served in started:
        if served.process.poll() is None:
            served.end(signal.SIGKILL)


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 30
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()
