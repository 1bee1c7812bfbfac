"""A SOAP partner sends orders; three programs take them from the service's queue, each sequence in its order. One of
them, and the service, are killed meanwhile.

python soap_partner.py [STORE]
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Thread

import wsrm_mq
from wsrm_mq.testing import HTTPWire, Operation, RMSender

SEQUENCES, ORDERS = 3, 12
HERE = Path(__file__).resolve()


def consume(store: str, name: str) -> None:
    """One of the three. What it has taken when it is killed, and not acknowledged, another one gets."""
    with wsrm_mq.connect(store, name) as node:
        for message in node.subscribe("/orders", max_backlog=4, ack_batch=1):
            print(message.sequence, message.number, flush=True)
            time.sleep(0.02)


def send(port: int, shop: int) -> str:
    """Send until each order is acknowledged, over whatever happens. Answers the sequence."""
    sender = RMSender(lambda: HTTPWire(port, "/orders", timeout=2))
    for number in range(1, ORDERS + 1):
        order = Operation("{urn:example:orders}place", n=100 * shop + number)
        sender.send_until_acknowledged(number, order, action="place")
    return sender.identifier


def ask(port: int, n: int) -> str:
    """A two-way operation is answered by the service."""
    sender = RMSender(lambda: HTTPWire(port, "/orders", timeout=2))
    reply = sender.call(1, Operation("{urn:example:orders}price", n=n), action="price")
    return "".join(reply.body.itertext()).strip()


@contextmanager
def running(*command: str, **environ: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-u", *command],
        cwd=HERE.parent,
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def served(store: str, port: int) -> Iterator[subprocess.Popen[str]]:
    arguments = ("serve", "soap_service:service", "--store", store, "--port", str(port))
    with running("-m", "wsrm_mq", *arguments, WSRM_MQ_MODE="pull", WSRM_MQ_LOG_LEVEL="error") as process:
        wait_for(port)
        yield process


def wait_for(port: int) -> None:
    for _ in range(600):
        with closing(socket.socket()) as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError("the service does not answer")


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main(store: str) -> None:
    store, port = os.path.abspath(store), free_port()
    seen: dict[str, list[int]] = {}

    def collect(consumer: subprocess.Popen[str]) -> None:
        assert consumer.stdout is not None
        for line in consumer.stdout:
            sequence, number = line.split()
            seen.setdefault(sequence, []).append(int(number))

    with (
        running(str(HERE), "consume", store, "a") as first,
        running(str(HERE), "consume", store, "b") as second,
        running(str(HERE), "consume", store, "c") as third,
    ):
        readers = [Thread(target=collect, args=(one,)) for one in (first, second, third)]
        sent: list[str] = []
        senders = [Thread(target=lambda shop=shop: sent.append(send(port, shop))) for shop in range(SEQUENCES)]
        with served(store, port) as service:
            for thread in (*readers, *senders):
                thread.start()
            while sum(map(len, seen.values())) < SEQUENCES:
                time.sleep(0.01)
            first.kill()
            service.kill()
        with served(store, port):
            for thread in senders:
                thread.join()
            print("the price of 7 is", ask(port, 7))
            while any(set(seen.get(one, ())) != set(range(1, ORDERS + 1)) for one in sent):
                time.sleep(0.05)
        with wsrm_mq.connect(store) as node:
            while node.stats("/orders").leased:
                time.sleep(0.05)
    for thread in readers:
        thread.join()
    for numbers in seen.values():  # one may come twice: the consumer was killed before it had acknowledged it
        assert list(dict.fromkeys(numbers)) == list(range(1, ORDERS + 1)), numbers
    print(f"{sum(len(set(numbers)) for numbers in seen.values())} orders of {len(seen)} sequences, each in its order")


if __name__ == "__main__":
    if sys.argv[1:2] == ["consume"]:
        consume(*sys.argv[2:])
    else:
        main(*sys.argv[1:] or ["queues.db"])
