"""The server that is measured: a front, the middleware or not, and an application that does nothing.

    python -m bench.server [--front FRONT] [--store STORE] [--answer-bytes N] [--stop-at CALL]

Prints {"port": …, "pids": […]} when it is about to listen, the process that serves first. Without ``--store`` there is
no middleware: the application itself answers, with N bytes. ``--stop-at`` makes the application stay in that call for
ever.

Two requests are the bench's own: ``GET /state`` says what the application has seen (times are CLOCK_MONOTONIC, ns),
``GET /hold?identifier=…&last=…`` accepts numbers 3 … last of a sequence whose number 2 was sent.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final
from urllib.parse import parse_qs

from bench.fronts import FRONTS, Environ, WSGIApplication, handed_to_uwsgi
from bench.messages import FACTORY
from wsrm_mq.config import Settings
from wsrm_mq.queue.accept import Arrival, Body, Receipt, Sender, accept
from wsrm_mq.sequence.elements import SequenceHeader
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.wsgi import WSRMMiddleware

_TOGETHER: Final = 1_000
"""Messages in one commit where the bench itself accepts them."""


class NullApplication:
    """Reads the body and does nothing; knows when it was called, and whether in order."""

    def __init__(self, answer: bytes, stop_at: int | None) -> None:
        self._answer = answer
        self._stop_at = stop_at
        self._count = itertools.count(1)
        self._last_numbers: dict[str, int] = {}
        self.calls = 0
        self.first_calls: dict[str, list[int]] = {}
        """When numbers 1 and 2 of each sequence came."""
        self.out_of_order = 0

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        now = time.monotonic_ns()
        self.calls = next(self._count)
        environ["wsgi.input"].read()
        identifier = environ.get("wsrm.sequence_id")
        if identifier is not None:
            number = environ["wsrm.message_number"]
            self.out_of_order += number != self._last_numbers.get(identifier, 0) + 1
            self._last_numbers[identifier] = number
            if number <= 2:
                self.first_calls.setdefault(identifier, []).append(now)
        if self.calls == self._stop_at:
            threading.Event().wait()
        start_response(
            "200 OK",
            [("Content-Type", FACTORY.content_type), ("Content-Length", str(len(self._answer)))],
        )
        return [self._answer]


def hold(middleware: WSRMMiddleware, identifier: str, last: int) -> None:
    """Accept numbers 3 … ``last``, many in a commit, with the same verb that a request runs."""
    store = middleware.engine.store
    template = _arrival_of_number_2(middleware, identifier)
    for start in range(3, last + 1, _TOGETHER):
        numbers = range(start, min(start + _TOGETHER, last + 1))
        receipts = store.call(
            lambda tx, numbers=numbers: [_accept(tx, template, n) for n in numbers],
            size=len(numbers) * template.body.size,  # or the writer takes it for one message, and checkpoints too late
        )
        if not all(receipt.held for receipt in receipts):
            raise RuntimeError(f"not held: {receipts[0]}")


def _accept(tx: Transaction, template: Arrival, number: int) -> Receipt:
    header = SequenceHeader(template.header.identifier, number)
    return accept(tx, template._replace(header=header, message_id=f"urn:example:{number}"))


def _arrival_of_number_2(middleware: WSRMMiddleware, identifier: str) -> Arrival:
    with middleware.engine.store.reader() as db:
        row = db.execute(
            "SELECT q.name, s.peer, m.action, m.environ, m.connection, m.body FROM sequence s"
            " JOIN queue q ON q.id = s.queue JOIN entry e ON e.sequence = s.id AND e.number = 2"
            " JOIN message m ON m.id = e.message WHERE s.identifier = ?",
            (identifier,),
        ).fetchone()
    queue, peer, action, environ, connection, body = row
    return Arrival(
        sender=Sender(queue, FACTORY.rm, FACTORY.soap, FACTORY.addressing, peer=peer),
        header=SequenceHeader(identifier, 2),
        message_id=None,
        action=action,
        environ=environ,
        connection=connection,
        body=Body(body),
        policy=Settings().policy(),
    )


class Server:
    """What a front serves: the bench's own two requests, and all others."""

    def __init__(self, application: NullApplication, middleware: WSRMMiddleware | None) -> None:
        self._application = application
        self._middleware = middleware
        self._served = middleware or application

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "GET":
            return self._served(environ, start_response)
        if environ["PATH_INFO"] == "/hold":
            assert self._middleware is not None
            query = parse_qs(environ["QUERY_STRING"])
            hold(self._middleware, query["identifier"][0], int(query["last"][0]))
        answer = json.dumps(self.state()).encode()
        start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(answer)))])
        return [answer]

    def state(self) -> dict[str, Any]:
        application = self._application
        writer = self._middleware.engine.store.writer if self._middleware else None
        return {
            "calls": application.calls,
            "first_calls": application.first_calls,
            "out_of_order": application.out_of_order,
            "commits": writer.commits if writer else 0,
        }


def main() -> None:
    chosen = _chosen(sys.argv[1:])
    started = os.getpid()
    FRONTS[chosen.front](lambda: _make(chosen), lambda port: _announce(port, started))


def for_uwsgi() -> WSGIApplication:
    arguments, port = handed_to_uwsgi()
    application = _make(_chosen(arguments))
    _announce(port, os.getpid())
    return application


def _chosen(arguments: list[str]) -> argparse.Namespace:
    options = argparse.ArgumentParser(prog="python -m bench.server")
    options.add_argument("--front", choices=FRONTS, default="waitress")
    options.add_argument("--store")
    options.add_argument("--answer-bytes", type=int, default=0)
    options.add_argument("--stop-at", type=int)
    return options.parse_args(arguments)


def _make(chosen: argparse.Namespace) -> WSGIApplication:
    application = NullApplication(b"x" * chosen.answer_bytes, chosen.stop_at)
    middleware = WSRMMiddleware(application, store=chosen.store) if chosen.store else None
    return Server(application, middleware)


def _announce(port: int, started: int) -> None:
    pids = dict.fromkeys((os.getpid(), started))
    print(json.dumps({"port": port, "pids": list(pids)}), flush=True)


if __name__ == "__main__":
    main()
