"""Queue servers for tests: this program imports the server once, and forks a process for each that is asked for.

A line of its input is ``["begin", STORE, PORT]``, whose answer is the number of a process that serves the store there,
on loopback; without a store it is a ``Shelf``. It ends, with all of them, when its input does.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvicorn

from wsrm_mq.node import Node
from wsrm_mq.server import queue_application, tokens
from wsrm_mq.server.rights import RIGHTS, check_grant

TOKEN = "wsrm-mq-of-tests"


def grant_all(node: Node) -> None:
    """Give a token all rights."""
    grants = [check_grant(right, pattern) for right in RIGHTS for pattern in ("*", "topic:#")]
    node.call(lambda tx: tokens.add(tx, "tests", grants, secret=TOKEN))


class Shelf:
    """One server of many stores, so that a test has one of its own: the first segment of a path is the name of its
    file, in hexadecimal digits. The method PURGE ends one."""

    def __init__(self) -> None:
        self._begun: dict[str, asyncio.Task[Any]] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise RuntimeError("There is no life span: a store begins with its first request.")
        name = scope["path"].split("/")[1]
        if scope["method"] == "PURGE":
            if name in self._begun:
                await (await self._begun.pop(name)).stop()
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body"})
            return
        if name not in self._begun:
            self._begun[name] = asyncio.create_task(self._begin(Path(os.fsdecode(bytes.fromhex(name)))))
        application = await self._begun[name]
        await application({**scope, "root_path": f"/{name}"}, receive, send)

    async def _begin(self, path: Path) -> Any:
        application = queue_application(path)
        await application.start()
        await asyncio.to_thread(grant_all, application.server.node)
        return application


def serve(store: str | None, port: int) -> None:
    application = Shelf() if store is None else queue_application(store)
    config = uvicorn.Config(
        application, host="127.0.0.1", port=port, log_level="error", access_log=False, loop="asyncio", lifespan="auto"
    )
    asyncio.run(uvicorn.Server(config).serve())


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    children = []
    for line in sys.stdin:
        _begin, store, port = json.loads(line)
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(0)
            try:
                serve(store, port)
            finally:
                os._exit(0)
        children.append(child)
        print(child, flush=True)
    for child in children:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


if __name__ == "__main__":
    main()
