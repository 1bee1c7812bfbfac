"""A queue server for tests, on loopback.

    python -m tests.servers.queues --port PORT [--store STORE]

Without a store it is a ``Shelf``.
"""

from __future__ import annotations

import argparse
import asyncio
import os
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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--store")
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    application = Shelf() if options.store is None else queue_application(options.store)
    # Idle connections are kept as `wsrm-mq serve` keeps them: longer than a client does.
    uvicorn.run(
        application, port=options.port, log_level="error", access_log=False, loop="asyncio", timeout_keep_alive=120
    )


if __name__ == "__main__":
    main()
