"""The demo's service: Spyne, one one-way operation, a database of its own.

``effects`` has a row for each order, in the order of commit. ``calls`` has one for each call, with ``redelivery``
1 where the inbox had seen the message; it is committed before the work, so that a call that a crash cuts off
leaves its row too. Environment: ``ORDERS_DB``, the database.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from typing import Any

from wsrm_mq.contrib import spyne_compat  # noqa: F401  (before Spyne, which needs it)
from wsrm_mq.demo import PAUSE
from wsrm_mq.inbox import once

# isort: split
from spyne import Application, Integer, ServiceBase, Unicode, rpc
from spyne.protocol.soap import Soap12
from spyne.server.wsgi import WsgiApplication


def connect() -> sqlite3.Connection:
    connection = sqlite3.connect(os.environ["ORDERS_DB"], timeout=10)
    # What is committed survives the death of the process, which is all that happens here; not a power cut.
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


class Orders(ServiceBase):  # type: ignore[misc]
    @rpc(Integer, Unicode)  # type: ignore[untyped-decorator]
    def put_order(ctx: Any, n: int, text: str) -> None:
        with closing(connect()) as connection:
            call = connection.execute("INSERT INTO calls VALUES (?, 0)", (n,)).lastrowid
            connection.commit()
            if once(connection, ctx.transport.req_env):
                connection.execute("INSERT INTO effects VALUES (?, ?)", (n, time.time()))
            else:
                connection.execute("UPDATE calls SET redelivery = 1 WHERE rowid = ?", (call,))
            connection.commit()
        time.sleep(PAUSE)


with closing(connect()) as _connection:
    _connection.executescript(
        """
        PRAGMA journal_mode = WAL;
        CREATE TABLE IF NOT EXISTS effects (n INTEGER, at REAL);
        CREATE TABLE IF NOT EXISTS calls (n INTEGER, redelivery INTEGER);
        """
    )

application = WsgiApplication(
    Application([Orders], "urn:example:orders", in_protocol=Soap12(validator="soft"), out_protocol=Soap12())
)
