"""``wsrm-mq queue-server`` as a process of its own, and requests to it."""

from __future__ import annotations

import http.client
import select
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

PEM = Path(__file__).parents[1] / "outbound" / "service.pem"


class QueueServer:
    def __init__(self, directory: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "wsrm_mq", "queue-server", "--port", "0", *arguments],
            cwd=directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], 60)
        line = self.process.stdout.readline() if ready else ""
        assert line.startswith("wsrm-mq: serving http"), line + self.end(signal.SIGKILL)[1]
        self.url = line.removeprefix("wsrm-mq: serving ").strip()

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Status, and all it said."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said


def asked(
    url: str, method: str, path: str, token: str | None = None, content: bytes = b"", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    where = urlsplit(url)
    context = ssl.create_default_context(cafile=PEM) if where.scheme == "https" else None
    if context is not None:
        context.check_hostname = False
    host = where.hostname or ""
    connection = (
        http.client.HTTPConnection(host, where.port, timeout=60)
        if context is None
        else http.client.HTTPSConnection(host, where.port, timeout=60, context=context)
    )
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if token is not None:
        sent["Authorization"] = f"Bearer {token}"
    connection.request(method, path, content or None, sent)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, body


Started = Callable[..., QueueServer]


@pytest.fixture
def serve_queues(somewhere: Path) -> Iterator[Started]:
    started: list[QueueServer] = []

    def begin(*arguments: str) -> QueueServer:
        started.append(QueueServer(somewhere, *arguments))
        return started[-1]

    yield begin
    for one in started:
        if one.process.poll() is None:
            one.end(signal.SIGKILL)
