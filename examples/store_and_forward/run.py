"""Three nodes, each a store and a queue server in a process of its own: the shop hands over to the hub, the hub to the
north and back to the shop. The hub is killed and is away for a while, one route is a loop, one destination is dead.

python run.py [DIRECTORY]
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import wsrm_mq
from wsrm_mq.cli import program
from wsrm_mq.errors import UnknownQueue

SECONDS = float(os.environ.get("SECONDS", "50"))
"""It is given up after so long."""
ORDERS = 20
HANDS_TO = {"shop": ["hub"], "hub": ["north", "shop"], "north": []}
ROUTES = {
    "shop": [("north/*", "hub", False), ("lost/*", "hub", False)],
    "hub": [("north/*", "north", True), ("lost/*", "shop", False)],
}
"""Pattern, next node, and whether what stands before the * is left out of the name that a message arrives under."""


class Node:
    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self.directory = directory / name
        self.directory.mkdir(parents=True)
        self.path = self.directory / "wsrm.db"
        self.store = wsrm_mq.connect(self.path)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.tokens: dict[str, str] = {}
        self.server: subprocess.Popen[bytes] | None = None

    def command(self, *words: str) -> str:
        """Run a command of wsrm-mq, in this process as it is quick; answers what it wrote."""
        with redirect_stdout(StringIO()) as written, redirect_stderr(StringIO()):
            program([*words, "--store", str(self.path)], standalone_mode=False)
        return written.getvalue().strip()

    def begin(self) -> None:
        with (self.directory / "server.log").open("ab") as log:
            self.server = subprocess.Popen(
                [sys.executable, "-m", "wsrm_mq", "queue-server", "--port", str(self.port)],
                cwd=self.directory,
                env={**os.environ, **self.tokens},
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        if self.server is not None:
            self.server.send_signal(signal.SIGKILL)
            self.server.wait()
            self.server = None

    def arrived(self, queue: str) -> list[str]:
        return [message.body.decode() for message in self.store.peek(queue, limit=1_000)]

    def dead(self) -> list[str]:
        """Why it is dead what other nodes have handed over, and has no place here."""
        try:
            letters = self.store.dead("route/in").peek()
        except UnknownQueue:  # none has handed over anything yet
            return []
        return [f"{letter.reason}: {letter.last_error}" for letter in letters]

    def end(self) -> None:
        self.kill()
        self.store.close()


def found(directory: Path) -> dict[str, Node]:
    """Make the nodes: each knows the next ones by the section of its configuration, and they know it by its token."""
    nodes = {name: Node(directory, name) for name in HANDS_TO}
    for name, node in nodes.items():
        node.command("node", "name", name)
        sections = []
        for other in HANDS_TO[name]:
            variable = f"TOKEN_AT_{other.upper()}"
            node.tokens[variable] = nodes[other].command("token", "add", name, "--route", "*")
            sections.append(f'[node.{other}]\nurl = "{nodes[other].url}"\ntoken_env = "{variable}"\n')
        (node.directory / "wsrm-mq.toml").write_text("\n".join(sections))
        for pattern, to, strip in ROUTES.get(name, []):
            node.store.route(pattern, f"{nodes[to].url}/rm", strip=strip)
    nodes["north"].store.declare("orders")
    return nodes


def until(what: str, is_so: Callable[[], bool], began: float) -> None:
    while not is_so():
        if time.monotonic() - began > SECONDS:
            sys.exit(f"after {SECONDS:.0f} s it is not so: {what}")
        time.sleep(0.1)


def main(directory: Path) -> None:
    nodes = found(directory)
    began = time.monotonic()
    shop, hub, north = nodes.values()
    try:
        for node in nodes.values():
            node.begin()
        run(shop, hub, north, began)
    finally:
        for node in nodes.values():
            node.end()


def run(shop: Node, hub: Node, north: Node, began: float) -> None:
    orders = [f"order {number}" for number in range(ORDERS)]
    first, second = orders[: ORDERS // 2], orders[ORDERS // 2 :]
    shop.store.put_many("north/orders", [order.encode() for order in first])
    until("the first orders are in the north", lambda: len(north.arrived("orders")) == len(first), began)
    print(f"{len(first)} orders went from the shop over the hub to the north")

    hub.kill()
    shop.store.put_many("north/orders", [order.encode() for order in second])
    shop.store.put("lost/parcel", b"the hub sends it back to the shop")
    shop.store.put("north/nobody", b"the north has no such queue")
    print(f"the hub is killed; {len(second)} orders and two others are put, and wait at the shop")
    time.sleep(1.0)
    assert north.arrived("orders") == first
    hub.begin()
    until("all orders are in the north", lambda: len(north.arrived("orders")) >= ORDERS, began)
    until("the other two are dead letters", lambda: bool(shop.dead() and north.dead()), began)

    assert north.arrived("orders") == orders, north.arrived("orders")
    print(f"the hub is back; {ORDERS} orders are in the north, each once and in order")
    print(f"dead letter at the shop: {shop.dead()[0]}")
    print(f"dead letter at the north: {north.dead()[0]}")
    print(
        f"nothing is lost: {ORDERS} + 2 were put, {ORDERS} arrived, {len(shop.dead() + north.dead())} are dead letters"
    )


if __name__ == "__main__":
    if sys.argv[1:]:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as made:
            main(Path(made))
