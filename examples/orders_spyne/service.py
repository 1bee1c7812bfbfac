"""An orders service in Spyne, made reliable in one line. See README.md."""

import os
import sqlite3
import time
from contextlib import closing

from wsrm_mq import WSRMMiddleware, once
from wsrm_mq.contrib import spyne_compat  # before Spyne: it makes 2.14 work on Python 3.12 and later

# isort: split
from spyne import Application, Integer, ServiceBase, Unicode, rpc
from spyne.protocol.soap import Soap11, Soap12
from spyne.server.wsgi import WsgiApplication

DATABASE = os.environ.get("ORDERS_DB", "orders.db")
STORE = os.environ.get("ORDERS_STORE", "wsrm.db")


def connect():
    return sqlite3.connect(DATABASE, timeout=10)


with closing(connect()) as connection:
    connection.executescript(
        """
        PRAGMA journal_mode = WAL;
        CREATE TABLE IF NOT EXISTS effects (n INTEGER, at REAL);
        CREATE TABLE IF NOT EXISTS calls (n INTEGER, redelivery INTEGER);
        """
    )


class Orders(ServiceBase):
    @rpc(Integer, Unicode)
    def put_order(ctx, n, text):
        """One-way: it returns nothing."""
        with closing(connect()) as connection, connection:  # commits at the end, or rolls back
            first = once(connection, ctx.transport.req_env)
            connection.execute("INSERT INTO calls VALUES (?, ?)", (n, not first))
            if first:
                connection.execute("INSERT INTO effects VALUES (?, ?)", (n, time.time()))

    @rpc(Unicode, _returns=Unicode)
    def echo(ctx, text):
        """Two-way: the middleware keeps the answer for a client that did not get it."""
        return text


def speaking(protocol):
    application = Application(
        [Orders],
        tns="urn:example:orders",
        in_protocol=protocol(validator="soft"),
        out_protocol=protocol(),
    )
    return WsgiApplication(application)


soap_1_1, soap_1_2 = speaking(Soap11), speaking(Soap12)


def orders(environ, start_response):
    """Both SOAP versions at one address: a Spyne application speaks one, the Content-Type tells which."""
    is_1_2 = environ.get("CONTENT_TYPE", "").startswith("application/soap+xml")
    return (soap_1_2 if is_1_2 else soap_1_1)(environ, start_response)


application = WSRMMiddleware(orders, store=STORE, one_way=spyne_compat.one_way_operations(soap_1_1), understood=[])
