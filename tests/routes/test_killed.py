"""kill -9 of real nodes: a program that puts and sends, and a queue server that takes."""

from __future__ import annotations

import signal
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from tests.routes.net import until
from tests.support.queue_server import QueueServer
from wsrm_mq import connect
from wsrm_mq.server import tokens
from wsrm_mq.server.rights import Grant

SECRET = "wsrm-mq-secret-of-a"
PROGRAM = """
import sys
from wsrm_mq import connect
from wsrm_mq.routes.running import Routing
from wsrm_mq.routes.sending import Hop
store, url, life, count = sys.argv[1:]
node = connect(store, "a")
node.route("*", url)
with Routing(node, hops={url: Hop(token="wsrm-mq-secret-of-a")}):
    for number in range(int(count)):
        node.put("orders", f"{life} {number}".encode())
        print(number, flush=True)
    sys.stdin.read()
"""


SERVER = """
import sys
import uvicorn
from wsrm_mq.routes.sending import Hop
from wsrm_mq.server import queue_application
store, port, *next_hop = sys.argv[1:]
hops = {url: Hop(token="wsrm-mq-secret-of-a") for url in next_hop}
uvicorn.run(queue_application(store, hops=hops), port=int(port), log_level="warning")
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Program:
    def __init__(self, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def confirmed(self, count: int) -> None:
        """Wait until so many more are put."""
        assert self.process.stdout is not None
        for _ in range(count):
            assert self.process.stdout.readline(), "it has ended"

    def end(self, number: int) -> int:
        """End it; how many more had been put."""
        self.process.send_signal(number)
        assert self.process.stdout is not None
        left = len(self.process.stdout.readlines())
        self.process.communicate(timeout=60)
        return left


@pytest.mark.timeout(240)
@pytest.mark.scenario("Q-089")
@pytest.mark.invariant("I13")
def test_a_node_that_is_killed_in_the_middle_of_the_way_loses_repeats_and_disorders_nothing(somewhere: Path) -> None:
    paths, ports = [somewhere / f"{name}.db" for name in "abc"], [free_port() for _ in "bc"]
    urls = [f"http://127.0.0.1:{port}/rm" for port in ports]
    b, c = connect(paths[1], "b"), connect(paths[2], "c")
    for one in (b, c):
        one.call(partial(tokens.add, name="before", grants=[Grant("route", "*")], secret=SECRET))
    b.route("*", urls[1])
    c.declare("orders")
    begin = partial(subprocess.Popen, text=True)
    servers = [
        begin([sys.executable, "-c", SERVER, str(paths[1]), str(ports[0]), urls[1]]),
        begin([sys.executable, "-c", SERVER, str(paths[2]), str(ports[1])]),
    ]
    try:
        program = Program(paths[0], urls[0], 1, 100)
        program.confirmed(100)
        assert until(lambda: _stored(paths[1]) >= 50, 90)
        servers[0].kill()
        servers[0].wait()
        waiting = _rows(paths[0], "SELECT count(*) FROM entry JOIN routed USING (message) WHERE outcome IS NULL")[0][0]
        assert waiting >= 100 - _stored(paths[1]), "forgotten before it was stored"
        servers[0] = begin([sys.executable, "-c", SERVER, str(paths[1]), str(ports[0]), urls[1]])
        assert until(lambda: len(_bodies(c)) >= 100, 90)
        program.end(signal.SIGTERM)
    finally:
        for server in servers:
            server.kill()
            server.wait()
    assert _bodies(c) == [f"1 {number}" for number in range(100)]
    b.close()
    c.close()


def _rows(path: Path, query: str) -> list[tuple[int]]:
    with closing(sqlite3.connect(path, timeout=60)) as db:
        return db.execute(query).fetchall()


def _stored(path: Path) -> int:
    """How many messages have ever come in there from other nodes."""
    return _rows(path, "SELECT count(*) FROM message WHERE action = 'urn:wsrm-mq:route:put'")[0][0]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kills", [pytest.param(2, marks=pytest.mark.brief), pytest.param(10, marks=pytest.mark.long)])
def test_whichever_of_two_nodes_is_killed_each_message_arrives_once_and_in_order(somewhere: Path, kills: int) -> None:
    b, port = connect(somewhere / "b.db"), free_port()
    b.declare("orders")
    b.call(partial(tokens.add, name="a", grants=[Grant("route", "*")], secret=SECRET))
    serve = partial(QueueServer, somewhere, "--store", str(somewhere / "b.db"), "--port", str(port))
    begin = partial(Program, somewhere / "a.db", f"http://127.0.0.1:{port}/rm")
    server, put = serve(), {}
    try:
        for life in range(kills):
            program = begin(life, 100)
            program.confirmed(50)
            put[life] = 50
            if life % 2:
                server.end(signal.SIGKILL)
                program.confirmed(50)
                put[life] = 100
                server = serve()
            else:
                put[life] += program.end(signal.SIGKILL)
        program.end(signal.SIGTERM) if program.process.poll() is None else None
        program = begin("last", 1)
        program.confirmed(1)
        assert until(lambda: b.peek("orders", after=0, limit=10_000)[-1:] and _bodies(b)[-1] == "last 0", 60)
        program.end(signal.SIGTERM)
    finally:
        server.end(signal.SIGKILL)
    found = _bodies(b)
    b.close()
    assert len(found) == len(set(found)), "repeated"
    for life, count in put.items():
        of_life = [body for body in found if body.startswith(f"{life} ")]
        assert of_life[:count] == [f"{life} {number}" for number in range(count)], "lost, or out of order"
        assert len(of_life) <= count + 1, "one that was killed may have been put"


def _bodies(node: object) -> list[str]:
    return [one.body.decode() for one in node.peek("orders", limit=10_000)]  # type: ignore[attr-defined]
