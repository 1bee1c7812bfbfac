"""The tutorial's service: it takes orders."""

import sqlite3
import time
from contextlib import closing

from wsrm_mq import WSRMMiddleware
from wsrm_mq.contrib import spyne_compat  # noqa: F401  (before Spyne, which needs it on Python 3.12 and later)

# isort: split
from spyne import Application, Integer, ServiceBase, Unicode, rpc
from spyne.protocol.soap import Soap12
from spyne.server.wsgi import WsgiApplication


def connect():
    return sqlite3.connect("orders.db", timeout=10)


with closing(connect()) as connection:
    connection.execute("CREATE TABLE IF NOT EXISTS orders (n INTEGER, text TEXT)")


class Orders(ServiceBase):
    @rpc(Integer, Unicode)
    def put_order(ctx, n, text):
        if text == "broken":
            raise RuntimeError("no such product")
        with closing(connect()) as connection, connection:  # commits at the end, or rolls back
            connection.execute("INSERT INTO orders VALUES (?, ?)", (n, text))
        if text == "slow":
            time.sleep(10)  # the order is in the database, and the operation has not ended


soap = WsgiApplication(
    Application([Orders], tns="urn:example:orders", in_protocol=Soap12(validator="soft"), out_protocol=Soap12())
)

application = WSRMMiddleware(soap, store="wsrm.db", retry=[1, 1])
