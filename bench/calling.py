"""Counts the Python calls in the package for a one-way message, of whatever tree it is run in.

    python -P bench/calling.py FRONT CONNECTIONS MOST        # cwd and PYTHONPATH: the tree

A program of its own that imports nothing of the bench, so that it counts an older commit's package the same way. It
sends messages in process, in closed loop, a sequence on each connection; of a single connection each message is settled
before the next one comes. Calls of a server are not counted, nor those of ``wsrm_mq.testing``.

Prints {"calls": …, "from_elsewhere": …, "changes": …, "modules": …, "rooms": …, "longest": …}: calls a message, how
many of them come from another module, and how many from another room (a directory or module of the package), how many
modules and rooms have one for every second message, and the lines of the longest function that was called. The MOST
functions that are called most are told on standard error.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from wsrm_mq import WSRMMiddleware
from wsrm_mq.asgi import WSRMASGIMiddleware
from wsrm_mq.testing import EnvelopeFactory, Reply

_PACKAGE: Final = f"{Path.cwd() / 'wsrm_mq'}{os.sep}"
_WARM_UP, _MESSAGES = 30, 60
"""On each connection."""
_PAUSE_SECONDS: Final = 0.02
"""After each message of a single connection: it is settled by then, alone."""
_REST_SECONDS: Final = 1.2
"""What begins a second later, as indexing, has begun."""
_FACTORY: Final = EnvelopeFactory()
_BODY: Final = f'<p:put xmlns:p="urn:example:orders"><p:text>{"x" * 500}</p:text></p:put>'
_OPTIONS: Final[dict[str, Any]] = {"one_way": ["urn:example:orders/put"]}


class Calls:
    """Of the package's functions, while it is on, in this thread and all that are started."""

    def __init__(self) -> None:
        self.is_on = False
        self._called: Counter[CodeType] = Counter()
        self._from_elsewhere = self._changes = 0
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def _profile(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if not self.is_on or event != "call" or not _is_counted(code.co_filename):
            return
        self._called[code] += 1
        caller = frame.f_back
        came_from = "" if caller is None else caller.f_code.co_filename
        self._from_elsewhere += came_from != code.co_filename
        self._changes += _is_counted(came_from) and _room(came_from) != _room(code.co_filename)

    def told(self, messages: int) -> dict[str, float]:
        return {
            "calls": self._called.total() / messages,
            "from_elsewhere": self._from_elsewhere / messages,
            "changes": self._changes / messages,
            "modules": sum(count * 2 >= messages for count in self._by(str).values()),
            "rooms": sum(count * 2 >= messages for count in self._by(_room).values()),
            "longest": max(map(_lines, self._called)),
        }

    def _by(self, part: Callable[[str], str]) -> Counter[str]:
        counts: Counter[str] = Counter()
        for code, count in self._called.items():
            counts[part(code.co_filename)] += count
        return counts

    def most(self, functions: int) -> list[tuple[str, int]]:
        return [
            (f"{code.co_filename.removeprefix(_PACKAGE)}:{code.co_qualname}", count)
            for code, count in self._called.most_common(functions)
        ]


def _is_counted(file: str) -> bool:
    return file.startswith(_PACKAGE) and not file.startswith(f"{_PACKAGE}testing")


def _room(file: str) -> str:
    return file.removeprefix(_PACKAGE).partition(os.sep)[0]


def _lines(code: CodeType) -> int:
    return max(line for *_, line in code.co_lines() if line is not None) - code.co_firstlineno + 1


def _application(environ: Any, start_response: Any) -> list[bytes]:
    environ["wsgi.input"].read()
    start_response("202 Accepted", [("Content-Length", "0")])
    return [b""]


def _acknowledged(answer: bytes) -> None:
    if b"SequenceAcknowledgement" not in answer:
        raise RuntimeError(f"not acknowledged: {answer!r}")


def _identifier(answer: bytes) -> str:
    created = Reply.parse(answer).created
    assert created is not None
    return created.identifier


def wsgi(store: str, connections: int, calls: Calls) -> None:
    middleware = WSRMMiddleware(_application, store, **_OPTIONS)

    def post(envelope: bytes, connection: int) -> bytes:
        environ = {
            "REQUEST_METHOD": "POST",
            "SCRIPT_NAME": "",
            "PATH_INFO": "/orders",
            "QUERY_STRING": "",
            "CONTENT_TYPE": _FACTORY.content_type,
            "CONTENT_LENGTH": str(len(envelope)),
            "SERVER_NAME": "localhost",
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REMOTE_ADDR": "127.0.0.1",
            "REMOTE_PORT": str(40_000 + connection),
            "HTTP_HOST": "localhost",
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(envelope),
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        return b"".join(middleware(environ, lambda *_: lambda _: None))

    pause = _PAUSE_SECONDS if connections == 1 else 0.0
    identifiers = [_identifier(post(_FACTORY.create_sequence(), one)) for one in range(connections)]

    def send(connection: int, numbers: range) -> None:
        for number in numbers:
            _acknowledged(post(_FACTORY.message(identifiers[connection], number, _BODY), connection))
            if pause:
                time.sleep(pause)

    def send_all(numbers: range) -> None:
        threads = [threading.Thread(target=send, args=(one, numbers)) for one in range(connections)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    send_all(range(1, _WARM_UP + 1))
    time.sleep(_REST_SECONDS)
    calls.is_on = True
    send_all(range(_WARM_UP + 1, _WARM_UP + _MESSAGES + 1))
    calls.is_on = False
    middleware.close()


async def asgi(store: str, connections: int, calls: Calls) -> None:
    middleware = WSRMASGIMiddleware(_application, store, **_OPTIONS)
    events: asyncio.Queue[Any] = asyncio.Queue()
    said: asyncio.Queue[Any] = asyncio.Queue()
    life = asyncio.create_task(middleware({"type": "lifespan", "asgi": {"version": "3.0"}}, events.get, said.put))
    await events.put({"type": "lifespan.startup"})
    await said.get()

    async def post(envelope: bytes, connection: int) -> bytes:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": "/orders",
            "raw_path": b"/orders",
            "root_path": "",
            "query_string": b"",
            "headers": [
                (b"host", b"localhost"),
                (b"content-type", _FACTORY.content_type.encode()),
                (b"content-length", str(len(envelope)).encode()),
            ],
            "client": ("127.0.0.1", 40_000 + connection),
            "server": ("127.0.0.1", 80),
        }
        answer: list[bytes] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": envelope, "more_body": False}

        async def send(message: Any) -> None:
            answer.append(message.get("body", b""))

        await middleware(scope, receive, send)
        return b"".join(answer)

    pause = _PAUSE_SECONDS if connections == 1 else 0.0
    identifiers = [_identifier(await post(_FACTORY.create_sequence(), one)) for one in range(connections)]

    async def send(connection: int, numbers: range) -> None:
        for number in numbers:
            _acknowledged(await post(_FACTORY.message(identifiers[connection], number, _BODY), connection))
            if pause:
                await asyncio.sleep(pause)

    async def send_all(numbers: range) -> None:
        await asyncio.gather(*[send(one, numbers) for one in range(connections)])

    await send_all(range(1, _WARM_UP + 1))
    await asyncio.sleep(_REST_SECONDS)
    calls.is_on = True
    await send_all(range(_WARM_UP + 1, _WARM_UP + _MESSAGES + 1))
    calls.is_on = False
    await events.put({"type": "lifespan.shutdown"})
    await life


def main() -> None:
    front, connections, most = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    calls = Calls()
    with tempfile.TemporaryDirectory() as directory:
        store = os.path.join(directory, "calls.db")
        if front == "wsgi":
            wsgi(store, connections, calls)
        else:
            asyncio.run(asgi(store, connections, calls))
    messages = connections * _MESSAGES
    for name, count in calls.most(int(most)):
        print(f"{count / messages:7.2f} {name}", file=sys.stderr)
    print(json.dumps(calls.told(messages)))


if __name__ == "__main__":
    main()
