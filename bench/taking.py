"""An endpoint for replays that costs next to nothing: it takes every message, and knows what came of each sequence.

    python -m bench.taking [SECONDS]        # prints its port

POST anything with a ``Wsrm-Mq-Key``: 202, after SECONDS. GET: what came since the last GET, as JSON of ``Taken``.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_KEY: Final = re.compile(rb"\r\nwsrm-mq-key: *([^;\r]+);(\d+)", re.IGNORECASE)
_TAKEN: Final = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"


class Taken(NamedTuple):
    messages: int
    duplicates: int
    violations: int
    """Messages that came before one with a lower number of their sequence."""
    seconds: float
    """From the first to the last."""

    @property
    def rate(self) -> float:
        return (self.messages - 1) / self.seconds


class _Record:
    def __init__(self) -> None:
        self.last: dict[bytes, int] = {}
        self.messages = self.duplicates = self.violations = 0
        self.first_at = self.last_at = 0.0

    def take(self, sequence: bytes, number: int) -> None:
        self.last_at = time.perf_counter()
        self.first_at = self.first_at or self.last_at
        self.messages += 1
        last = self.last.get(sequence, 0)
        self.duplicates += number <= last
        self.violations += number > last + 1
        self.last[sequence] = max(last, number)

    def taken(self) -> Taken:
        return Taken(self.messages, self.duplicates, self.violations, self.last_at - self.first_at)


record = _Record()
SECONDS: Final = float(sys.argv[1]) if __name__ == "__main__" and sys.argv[1:] else 0.0


class _Connection(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.read = b""

    def data_received(self, data: bytes) -> None:
        global record
        self.read += data
        while (end := self.read.find(_HEAD_END)) >= 0:
            head = self.read[:end]
            length = _LENGTH.search(head)
            whole = end + len(_HEAD_END) + (int(length[1]) if length else 0)
            if len(self.read) < whole:
                return
            self.read = self.read[whole:]
            key = _KEY.search(head)
            if key:
                record.take(key[1], int(key[2]))
                self.answer(_TAKEN)
            else:
                content = json.dumps(record.taken()).encode()
                record = _Record()
                self.answer(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(content), content))

    def answer(self, answer: bytes) -> None:
        assert isinstance(self.transport, asyncio.WriteTransport)
        if SECONDS:
            asyncio.get_running_loop().call_later(SECONDS, self.transport.write, answer)
        else:
            self.transport.write(answer)


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(_Connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


class Endpoint(NamedTuple):
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def taken(self) -> Taken:
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("GET", "/")
        found = Taken(*json.loads(connection.getresponse().read()))
        connection.close()
        return found


@contextmanager
def endpoint(seconds: float = 0.0) -> Iterator[Endpoint]:
    """One in a process of its own that answers after ``seconds``."""
    process = subprocess.Popen([sys.executable, "-m", "bench.taking", str(seconds)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield Endpoint(int(process.stdout.readline()))
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    asyncio.run(serve())
