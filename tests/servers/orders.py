"""A real server for the tests: a Spyne service behind the middleware, under waitress or uvicorn.

    python -m tests.servers.orders --store STORE --service-db DB [--front FRONT] [--clock FILE] [--options JSON]

Prints {"port": …, "pid": …} when it listens. The service keeps its own database, apart from the store:
``effects`` has one row for each operation that ran to its end, ``calls`` one for each that began. What an operation
does on the way is told by its text: see ``WISHES``. Below ``/plain`` another service answers, one without a framework
(``tests.servers.plain``). The header X-User names the principal; ``nobody`` is turned away.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from spyne import Application, Fault, Integer, ServiceBase, Unicode, rpc
from spyne.protocol.soap import Soap11, Soap12
from spyne.server.wsgi import WsgiApplication

from tests.servers.bounds import lower
from tests.servers.clock import shifted_clock
from tests.servers.fronts import FRONTS, serve
from tests.servers.plain import plain
from wsrm_mq import NotAuthenticated
from wsrm_mq.inbox import once

NAMESPACE: Final = "urn:example:orders"
MAX_BODY: Final = 64 * 2**20
"""Spyne's own limit is 2 MiB."""
ONE_WAY: Final = (f"{NAMESPACE}/put_order", f"{NAMESPACE}/put_once")

SCHEMA: Final = """
create table if not exists calls
  (at real not null, path text not null, n integer, text text, sequence text, number integer, attempt integer);
create table if not exists effects
  (at real not null, path text not null, n integer, text text, sequence text, number integer);
"""


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=10, isolation_level=None)
    connection.execute("pragma journal_mode = wal")
    return connection


def record(ctx: Any, n: int | None, text: str | None, *, exactly_once: bool = False) -> None:
    """Do the operation: its call, what the text asks for, its effect."""
    environ = ctx.transport.req_env
    sequence, number = environ.get("wsrm.sequence_id"), environ.get("wsrm.message_number")
    connection = connect(ctx.app.service_db)
    try:
        connection.execute(
            "insert into calls values (?, ?, ?, ?, ?, ?, ?)",
            (time.time(), environ["PATH_INFO"], n, text, sequence, number, environ.get("wsrm.attempt")),
        )
        (calls,) = connection.execute(
            "select count(*) from calls where n is ? and sequence is ?", (n, sequence)
        ).fetchone()
        word, _, amount = (text or "").partition("=")
        wish = WISHES.get(word, nothing)
        wish(Call(amount, calls, environ, ctx.app.service_db.parent))
        connection.execute("begin immediate")
        if not (exactly_once or ctx.app.exactly_once) or once(connection, environ):
            connection.execute(
                "insert into effects values (?, ?, ?, ?, ?, ?)",
                (time.time(), environ["PATH_INFO"], n, text, sequence, number),
            )
        connection.execute("commit")
        if word == "die-after" and calls <= int(amount):
            os.kill(os.getpid(), signal.SIGKILL)
    finally:
        connection.close()


class Call(NamedTuple):
    """What a wish may look at."""

    amount: str
    calls: int
    """How often this message's operation has begun, this time included."""
    environ: dict[str, Any]
    directory: Path


def nothing(_call: Call) -> None:
    pass


def sleep(call: Call) -> None:
    time.sleep(int(call.amount) / 1000)


def gate(call: Call) -> None:
    """Wait until the test makes a file of that name."""
    while not (call.directory / call.amount).exists():
        time.sleep(0.005)


def fail(call: Call) -> None:
    if call.calls <= int(call.amount):
        raise OSError("the operation fails, as it was told to")


def server_fault(call: Call) -> None:
    if call.calls <= int(call.amount):
        raise Fault("Server", "not now")


def client_fault(call: Call) -> None:
    if not call.amount or call.calls <= int(call.amount):
        raise Fault("Client", "no such order")


def refuse(call: Call) -> None:
    if call.calls <= int(call.amount):
        call.environ["wsrm.refuse"]("the order book is closed")


def die(call: Call) -> None:
    if call.calls <= int(call.amount):
        os.kill(os.getpid(), signal.SIGKILL)


WISHES: Final[dict[str, Callable[[Call], None]]] = {
    "sleep": sleep,  # sleep=MS
    "gate": gate,  # gate=FILE
    "fail": fail,  # fail=K: the first K attempts raise
    "server-fault": server_fault,  # server-fault=K
    "client-fault": client_fault,  # client-fault=K; without K every attempt
    "refuse": refuse,  # refuse=K: the first K attempts decline the message, and are answered all the same
    "die": die,  # die=K: the first K attempts kill the process before the effect
    # die-after=K: the same, once the effect is committed
}


class Orders(ServiceBase):
    @rpc(Integer, Unicode)
    def put_order(ctx: Any, n: int | None, text: str | None) -> None:
        record(ctx, n, text)

    @rpc(Integer, Unicode)
    def put_once(ctx: Any, n: int | None, text: str | None) -> None:
        """The same with its effect exactly once, by wsrm_mq's inbox."""
        record(ctx, n, text, exactly_once=True)

    @rpc(Unicode, _returns=Unicode)
    def echo(ctx: Any, text: str | None) -> str | None:
        record(ctx, None, text)
        return text


WSGI = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def orders(service_db: Path, *, exactly_once: bool = False) -> WSGI:
    """The services; the Spyne one for SOAP 1.1 and 1.2 at the same address. ``exactly_once``: the effect of each
    operation of that one, by wsrm_mq's inbox."""
    with connect(service_db) as connection:
        connection.executescript(SCHEMA)

    def speaking(protocol: type[Soap11]) -> WSGI:
        application = Application([Orders], NAMESPACE, in_protocol=protocol(), out_protocol=protocol())
        application.service_db = service_db
        application.exactly_once = exactly_once
        return WsgiApplication(application, max_content_length=MAX_BODY)

    soap_1_1, soap_1_2 = speaking(Soap11), speaking(Soap12)
    without_framework = plain(service_db)

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"].startswith("/plain"):
            return without_framework(environ, start_response)
        is_1_2 = environ.get("CONTENT_TYPE", "").startswith("application/soap+xml")
        return (soap_1_2 if is_1_2 else soap_1_1)(environ, start_response)

    return application


def authenticate(environ: dict[str, Any], _headers: object) -> str | None:
    user: str | None = environ.get("HTTP_X_USER")
    if user == "nobody":
        raise NotAuthenticated("Say who you are.")
    return user


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--service-db", type=Path, required=True)
    parser.add_argument("--front", choices=FRONTS, default="waitress")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--clock", type=Path, help="file that says by how many seconds the clock is wrong")
    parser.add_argument("--options", type=json.loads, default={}, help="JSON object: options; bounds to lower")
    arguments = parser.parse_args()

    options = {"one_way": ONE_WAY} | arguments.options
    lower(options.pop("bounds", {}))
    clock = shifted_clock(arguments.clock)
    if not options.pop("shows_connections", True):  # as granian does not to WSGI applications
        options["connection_key"] = lambda _environ: None
    if options.pop("doubted", False):  # as the machine's own is
        lower({"wsrm_mq.store.clock.wall_clock": clock})
    serve(
        arguments.front,
        orders(arguments.service_db),
        port=arguments.port,
        threads=arguments.threads,
        store=arguments.store,
        authenticate=authenticate,
        clock=clock,
        **options,
    )


if __name__ == "__main__":
    main()
