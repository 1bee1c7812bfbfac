"""The server that is measured: a front, the middleware or not, and an application that does nothing.

    python -m bench.server [--front FRONT] [--store STORE [--floor]] [--answer FILE] [--sleep-ms N] [--stop-at CALL]
                           [--stages]

Prints {"port": …, "pids": […]} when it is about to listen, the process that serves first; it dies with its parent.
Without ``--store`` there is no middleware: the application itself answers. It answers what the file holds, or nothing.
With ``--floor`` a floor stands where the middleware does.
``--stop-at`` makes it stay in that call for ever. With ``--stages`` it looks where its CPU goes.

Two requests are the bench's own: ``GET /state`` says what the application has seen, ``GET /hold?identifier=…&last=…``
accepts the numbers of a sequence up to the last, from the first that is above all it has, at least 3; its number 2 was
sent.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

from bench.applications import Account, ASGIApplication, Environ, WSGIApplication, asgi_null, wsgi_null
from bench.dying import die_with_parent
from bench.fronts import FRONTS, Front, handed_to_uwsgi
from bench.messages import FACTORY
from bench.stages import Stages
from wsrm_mq.config import Settings
from wsrm_mq.engine import Engine
from wsrm_mq.queue.accept import accept
from wsrm_mq.queue.arrival import Arrival, Body, MessageReceipt, Sender
from wsrm_mq.sequence.elements import SequenceHeader
from wsrm_mq.store.transaction import Transaction

_TOGETHER: Final = 1_000
"""Messages in one commit where the bench itself accepts them."""


def hold(engine: Engine, identifier: str, last: int) -> None:
    """Accept numbers up to ``last``, many in a commit, with the same verb that a request runs."""
    template, first = _arrival_of_number_2(engine, identifier)
    for start in range(first, last + 1, _TOGETHER):
        numbers = range(start, min(start + _TOGETHER, last + 1))
        receipts = engine.store.call(
            partial(_accept_all, template, numbers),
            size=len(numbers) * template.body.size,  # or the writer takes it for one message, and checkpoints too late
        )
        if any(receipt.outcome != "held" for receipt in receipts):
            raise RuntimeError(f"not held: {receipts[0].outcome}")


def _accept_all(template: Arrival, numbers: Iterable[int], tx: Transaction) -> list[MessageReceipt]:
    identifier = template.header.identifier
    return [
        accept(tx, template._replace(header=SequenceHeader(identifier, n), message_id=f"urn:example:{n}"))
        for n in numbers
    ]


def _arrival_of_number_2(engine: Engine, identifier: str) -> tuple[Arrival, int]:
    """And the first number that is above all."""
    with engine.store.reader() as db:
        row = db.execute(
            "SELECT q.name, s.peer, m.action, m.environ, m.connection, m.body,"
            " (SELECT max(upper) FROM range WHERE lane = s.id) FROM lane s"
            " JOIN queue q ON q.id = s.queue JOIN entry e ON e.lane = s.id AND e.number = 2 AND e.outcome IS NULL"
            " JOIN message m ON m.id = e.message WHERE s.identifier = ?",
            (identifier,),
        ).fetchone()
    queue, peer, action, environ, connection, body, highest = row
    arrival = Arrival(
        sender=Sender(queue, FACTORY.rm, FACTORY.soap, FACTORY.addressing, peer=peer),
        header=SequenceHeader(identifier, 2),
        message_id=None,
        action=action,
        environ=environ,
        connection=connection,
        body=Body(body),
        policy=Settings().policy(),
    )
    return arrival, highest + 1


def _own_answer(account: Account, served: Any, stages: Stages, path: str, query: str) -> bytes:
    """To the bench's own two requests."""
    if path == "/hold":
        wanted = parse_qs(query)
        hold(served.engine, wanted["identifier"][0], int(wanted["last"][0]))
    return json.dumps({**account.state(), "commits": _commits(served), "stages": stages.seconds()}).encode()


def _commits(served: Any) -> int:
    """Since it was started; 0 where nothing is stored."""
    if hasattr(served, "floor"):
        return int(served.floor.commits)
    return int(served.engine.store.writer.commits) if hasattr(served, "engine") else 0


def _wsgi(served: WSGIApplication, own: Callable[[str, str], bytes]) -> WSGIApplication:
    """``served``, and the bench's own requests answered."""

    def application(environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "GET":
            return served(environ, start_response)
        answer = own(environ["PATH_INFO"], environ["QUERY_STRING"])
        start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(answer)))])
        return [answer]

    return application


def _asgi(served: ASGIApplication, own: Callable[[str, str], bytes]) -> ASGIApplication:
    async def application(scope: Any, receive: Callable[[], Awaitable[Any]], send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "GET":
            await served(scope, receive, send)
            return
        answer = own(scope["path"], scope["query_string"].decode())
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    return application


def main() -> None:
    die_with_parent()
    chosen = _chosen(sys.argv[1:])
    started = os.getpid()
    FRONTS[chosen.front].serve(lambda: _make(chosen), lambda port: _announce(port, started))


def for_uwsgi() -> Any:
    arguments, port = handed_to_uwsgi()
    application = _make(_chosen(arguments))
    _announce(port, os.getpid())
    return application


def _chosen(arguments: list[str]) -> argparse.Namespace:
    options = argparse.ArgumentParser(prog="python -m bench.server")
    options.add_argument("--front", choices=FRONTS, default="waitress")
    options.add_argument("--store")
    options.add_argument("--floor", action="store_true")
    options.add_argument("--answer", type=Path)
    options.add_argument("--sleep-ms", type=float, default=0.0)
    options.add_argument("--stop-at", type=int)
    options.add_argument("--stages", action="store_true")
    return options.parse_args(arguments)


_NULL: Final[dict[str, Callable[..., Any]]] = {"wsgi": wsgi_null, "asgi": asgi_null}
_WITH_OWN: Final[dict[str, Callable[..., Any]]] = {"wsgi": _wsgi, "asgi": _asgi}


def _reliable(front: Front, application: Any, store: str) -> Any:
    # Each is imported where it serves: how long that takes is measured too.
    if front.speaks == "wsgi" or front.is_taken:
        from wsrm_mq.wsgi import WSRMMiddleware

        application = WSRMMiddleware(application, store=store)
        if front.speaks == "wsgi":
            return application
    from wsrm_mq.asgi import WSRMASGIMiddleware

    if front.is_taken:
        return WSRMASGIMiddleware.in_place_of(application, Settings().threads)
    return WSRMASGIMiddleware(application, store=store)


def _floor(front: Front, application: Any, store: str) -> Any:
    from bench.floor_granian import WSGIFloor
    from bench.floor_uvicorn import ASGIFloor

    return (WSGIFloor if front.speaks == "wsgi" else ASGIFloor)(application, Path(store))


def _make(chosen: argparse.Namespace) -> Any:
    die_with_parent()  # the process that serves may be another than the one that was started
    front = FRONTS[chosen.front]
    account, stages = Account(chosen.stop_at), Stages()
    if chosen.stages:
        stages.watch()
    answer = chosen.answer.read_bytes() if chosen.answer else b""
    interface = front.wraps if chosen.store else front.speaks
    served = _NULL[interface](account, answer, chosen.sleep_ms / 1_000)
    if chosen.floor:
        served = _floor(front, served, chosen.store)
    elif chosen.store:
        served = _reliable(front, served, chosen.store)
        served.engine.ask()  # this process serves, as one says with `with application:`
    return _WITH_OWN[front.speaks](served, partial(_own_answer, account, served, stages))


def _announce(port: int, started: int) -> None:
    pids = dict.fromkeys((os.getpid(), started))
    print(json.dumps({"port": port, "pids": list(pids)}), flush=True)


if __name__ == "__main__":
    main()
