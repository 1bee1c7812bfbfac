"""A real server for the interop tests: a Spyne service behind the middleware, under waitress.

    python -m tests.servers.orders --store STORE --service-db DB [--options JSON]

Prints {"port": …, "pid": …} when it listens. The service keeps its own database, apart from the store:
``effects`` has one row for each operation that ran to its end, ``calls`` one for each that began. A text
``sleep=MS`` makes an operation take that long; ``fail=K`` makes the first K attempts of a message raise.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from spyne import Application, Integer, ServiceBase, Unicode, rpc
from spyne.protocol.soap import Soap11, Soap12
from spyne.server.wsgi import WsgiApplication
from waitress import create_server

from wsrm_mq.wsgi import WSRMMiddleware

NAMESPACE: Final = "urn:example:orders"
ONE_WAY: Final = (f"{NAMESPACE}/put_order",)

SCHEMA: Final = """
create table if not exists calls
  (at real not null, n integer, text text, sequence text, number integer, attempt integer);
create table if not exists effects
  (at real not null, n integer, text text, sequence text, number integer);
"""


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=10, isolation_level=None)
    connection.execute("pragma journal_mode = wal")
    return connection


def record(ctx: Any, n: int | None, text: str | None) -> None:
    """Do the operation: its call, what the text asks for, its effect."""
    environ = ctx.transport.req_env
    sequence, number = environ.get("wsrm.sequence_id"), environ.get("wsrm.message_number")
    connection = connect(ctx.app.service_db)
    try:
        connection.execute(
            "insert into calls values (?, ?, ?, ?, ?, ?)",
            (time.time(), n, text, sequence, number, environ.get("wsrm.attempt")),
        )
        obey(connection, text or "", (n, sequence))
        connection.execute(
            "insert into effects values (?, ?, ?, ?, ?)", (time.time(), n, text, sequence, number)
        )
    finally:
        connection.close()


def obey(connection: sqlite3.Connection, text: str, message: tuple[int | None, str | None]) -> None:
    wish, _, amount = text.partition("=")
    if wish == "sleep":
        time.sleep(int(amount) / 1000)
    elif wish == "fail":
        (calls,) = connection.execute(
            "select count(*) from calls where n is ? and sequence is ?", message
        ).fetchone()
        if calls <= int(amount):
            raise OSError("the operation fails, as it was told to")


class Orders(ServiceBase):
    @rpc(Integer, Unicode)
    def put_order(ctx: Any, n: int | None, text: str | None) -> None:
        record(ctx, n, text)

    @rpc(Unicode, _returns=Unicode)
    def echo(ctx: Any, text: str | None) -> str | None:
        record(ctx, None, text)
        return text


WSGI = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def orders(service_db: Path) -> WSGI:
    """The service, for SOAP 1.1 and 1.2 at the same address."""
    with connect(service_db) as connection:
        connection.executescript(SCHEMA)

    def speaking(protocol: type[Soap11]) -> WSGI:
        application = Application([Orders], NAMESPACE, in_protocol=protocol(), out_protocol=protocol())
        application.service_db = service_db
        return WsgiApplication(application)

    soap_1_1, soap_1_2 = speaking(Soap11), speaking(Soap12)

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        is_1_2 = environ.get("CONTENT_TYPE", "").startswith("application/soap+xml")
        return (soap_1_2 if is_1_2 else soap_1_1)(environ, start_response)

    return application


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--service-db", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument(
        "--options", type=json.loads, default={}, help="JSON object: options of the middleware"
    )
    arguments = parser.parse_args()

    def stop(_signal: int, _frame: object) -> None:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, stop)
    options = {"one_way": ONE_WAY} | arguments.options
    application = WSRMMiddleware(orders(arguments.service_db), store=arguments.store, **options)
    server = create_server(application, host="127.0.0.1", port=arguments.port, threads=arguments.threads)
    print(json.dumps({"port": int(server.effective_port), "pid": os.getpid()}), flush=True)
    try:
        server.run()
    finally:
        application.close()
        sys.stdout.flush()


if __name__ == "__main__":
    main()
