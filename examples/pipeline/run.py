"""Three nodes with real traffic over a bad line, then every job of the pipeline over the files that they leave.

    python run.py DIR [--messages N] [--json]

See README.md. Exit status 0: nothing was lost, done twice or out of order, on the nodes and in the replay.
"""

import argparse
import json
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from wsrm_mq.testing import EnvelopeFactory, HTTPWire, Line, LossyWire, RMSender, shuffled_windows

HERE = Path(__file__).parent
NODES = ("north", "south", "west")
CRASHED, GAPPED = "south", "west"
PATIENCE_SECONDS = 60
ENVELOPES = EnvelopeFactory()
COMMAND = (sys.executable, "-W", "ignore", "-m", "wsrm_mq")


def until(is_so, what):
    end = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        if time.monotonic() > end:
            sys.exit(f"{what}: not after {PATIENCE_SECONDS} seconds")
        time.sleep(0.02)


def rows(database):
    with closing(sqlite3.connect(database, timeout=10)) as connection:
        return connection.execute("SELECT key, n FROM orders ORDER BY rowid").fetchall()


class Node:
    """A service behind ``wsrm-mq serve``, with a store and a database of its own."""

    def __init__(self, directory, name):
        self.name, self.store, self.database = name, directory / f"{name}.db", directory / f"{name}-orders.db"
        self.log = directory / f"{name}.log"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    def start(self):
        own = {"ORDERS_DB": self.database, "WSRM_MQ_STORE": self.store, "WSRM_MQ_PORT": self.port}
        environ = {**os.environ, **{name: str(value) for name, value in own.items()}}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([*COMMAND, "serve"], cwd=HERE, env=environ, stdout=log, stderr=log)
        until(self.listens, f"{self.name} listens")

    def listens(self):
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            return True
        return False

    def crash(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        self.process.wait(PATIENCE_SECONDS)


class Source:
    """A partner of a node: one sequence over a line that loses, repeats and swaps."""

    def __init__(self, node, seed, last, missing=None):
        self.numbers = [n for n in shuffled_windows(last, 6, seed) if n != missing]
        self.expected = set(self.numbers) if missing is None else set(range(1, missing))
        line = Line(loss=0.1, duplicates=0.1, seed=seed)
        self.sender = RMSender(lambda: LossyWire(HTTPWire(node.port), line), ENVELOPES, write=self.order)

    @staticmethod
    def order(identifier, number):
        body = f'<put_order xmlns="urn:example:orders"><n>{number}</n></put_order>'
        return ENVELOPES.message(identifier, number, body, message_id=f"urn:order:{identifier[-12:]}:{number}")

    def send(self):
        self.thread = threading.Thread(target=self.sender.send_all, args=(self.numbers,), kwargs={"connections": 2})
        self.thread.start()


def traffic(directory, messages):
    """Runs the nodes; what each has delivered is in its database, what it received in its store."""
    nodes = {name: Node(directory, name) for name in NODES}
    try:
        for node in nodes.values():
            node.start()
        half = messages // 2
        sources = {
            name: [
                Source(node, 10 * at, messages - half),
                Source(node, 10 * at + 1, half, missing=half // 2 if name == GAPPED else None),
            ]
            for at, (name, node) in enumerate(nodes.items())
        }
        every = [source for its in sources.values() for source in its]
        for source in every:
            source.send()
        until(lambda: len(sources[CRASHED][0].sender.acknowledged) > half // 2, "half of the messages are acknowledged")
        nodes[CRASHED].crash()
        nodes[CRASHED].start()
        for source in every:
            source.thread.join(PATIENCE_SECONDS)
        for name, node in nodes.items():
            deliverable = sum(len(source.expected) for source in sources[name])
            until(lambda: len(rows(node.database)) >= deliverable, f"{name} has delivered")  # noqa: B023
    finally:
        for node in nodes.values():
            node.stop()
    return nodes


class Rebuilt:
    """A new backend, which knows nothing yet."""

    def __init__(self, directory):
        self.database = directory / "rebuilt-orders.db"
        os.environ["ORDERS_DB"] = str(self.database)
        sys.path.insert(0, str(HERE))
        from service import rebuilt

        class Server(ThreadingMixIn, WSGIServer):
            daemon_threads = True

        class Quiet(WSGIRequestHandler):
            def log_message(self, *_arguments):
                pass

        self.server = make_server("127.0.0.1", 0, rebuilt, Server, Quiet)
        self.url = f"http://127.0.0.1:{self.server.server_port}/orders"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_exception):
        self.server.shutdown()


def job(*arguments, environ=None, allowed=(0,)):
    """Runs ``wsrm-mq pipeline``, answers its JSON."""
    words = [str(one) for one in arguments]
    print("wsrm-mq pipeline", *words, file=sys.stderr, flush=True)
    command = [*COMMAND, "pipeline", *words, "--json"]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **(environ or {})}, check=False
    )
    if done.returncode not in allowed:
        sys.exit(f"wsrm-mq pipeline {words[0]} ended with {done.returncode}: {done.stdout}")
    return json.loads(done.stdout)


def in_order_once(database):
    """Whether each order is there once, those of a sequence in their order."""
    found, last = rows(database), {}
    for key, n in found:
        sequence = key.partition(";")[0]
        if n <= last.get(sequence, 0):
            return False
        last[sequence] = n
    return True


def pipeline(directory, stores):
    """Runs every job over the files, and the replay to a backend of its own."""
    archive = directory / "archive"
    archived = job("archive", *stores, "--out", archive)
    reconciled = job("reconcile", *stores, "--out", directory / "reconciled", allowed=(0, 1))
    audited = job("audit", *stores, "--out", directory / "audited", allowed=(0, 1))
    with Rebuilt(directory) as target:
        plan, environ = directory / "replay", {"WSRM_MQ_REPLAY_TARGETS": target.url}
        wishes = ("--to", target.url, "--out", plan, "--reason", "the backend is new")
        job("replay", "plan", archive, *wishes, environ=environ)
        replayed = job("replay", "run", plan, "--yes", environ=environ)
        is_good = in_order_once(target.database) and len(rows(target.database)) == replayed["delivered"]
    return {
        "stores": audited["stores"],
        "messages": audited["messages"],
        "delivered": audited["delivered"],
        "gaps": reconciled["gaps"],
        "duplicates": reconciled["duplicates"],
        "violations": audited["violations"],
        "archived": archived["archived"],
        "replayed": replayed["delivered"],
        "replayed_in_order": is_good,
        "report": reconciled["report"],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path, help="for everything that comes of it; a new one")
    parser.add_argument("--messages", type=int, default=300, help="to each node (default: 300)")
    parser.add_argument("--json", action="store_true", help="write the summary as one line of JSON")
    given = parser.parse_args()
    directory = given.directory.resolve()
    directory.mkdir(parents=True)
    began = time.monotonic()
    nodes = traffic(directory, given.messages)
    print(f"Three nodes have served for {time.monotonic() - began:.0f} s; one was killed.", file=sys.stderr)
    summary = pipeline(directory, [node.store for node in nodes.values()])
    are_good = all(in_order_once(node.database) for node in nodes.values())
    effects = sum(len(rows(node.database)) for node in nodes.values())
    summary = {**summary, "effects": effects, "effects_in_order": are_good}
    if given.json:
        print(json.dumps(summary))
    else:
        print(*(f"{name:<18} {value}" for name, value in summary.items()), sep="\n")
    is_whole = summary["delivered"] == effects == summary["replayed"] and not summary["violations"]
    return 0 if is_whole and are_good and summary["replayed_in_order"] else 1


if __name__ == "__main__":
    sys.exit(main())
