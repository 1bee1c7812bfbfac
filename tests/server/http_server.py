"""The queue server as a process, for tests that kill it: ``python -m tests.server.http_server STORE PORT``.
``HOPS`` in its environment: the token of each next node, by its URL."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys

from wsrm_mq.routes.sending import Hop
from wsrm_mq.server import queue_application
from wsrm_mq.serving.admission import ConnectionBounds
from wsrm_mq.serving.uvicorn_server import BoundedServer

if __name__ == "__main__":
    listening = socket.create_server(("127.0.0.1", int(sys.argv[2])), backlog=2048)
    hops = {url: Hop(*known) for url, known in json.loads(os.environ.get("HOPS", "{}")).items()}
    server = BoundedServer(
        queue_application(sys.argv[1], hops=hops),
        announce=lambda: print(listening.getsockname()[1], flush=True),
        ending=lambda: None,
        drain_seconds=1.0,
        bounds=ConnectionBounds(connections=4_000),
    )
    asyncio.run(server.serve(sockets=[listening]))
