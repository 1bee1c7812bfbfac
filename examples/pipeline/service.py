"""The service of every node, and the one that was rebuilt from what they had received. See README.md."""

import os
import sqlite3
import xml.etree.ElementTree as ElementTree
from contextlib import closing

from wsrm_mq import once

DATABASE = os.environ.get("ORDERS_DB", "orders.db")


def connect():
    return sqlite3.connect(DATABASE, timeout=10)


with closing(connect()) as connection:
    connection.execute("CREATE TABLE IF NOT EXISTS orders (key TEXT, n INTEGER)")


def order_in(environ):
    envelope = ElementTree.fromstring(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
    return int(envelope.findtext(".//{urn:example:orders}n"))


def orders(environ, start_response):
    """Behind the middleware: an order has its effect once, also where it is delivered again after a crash."""
    n = order_in(environ)
    with closing(connect()) as connection, connection:
        if once(connection, environ):
            connection.execute(
                "INSERT INTO orders VALUES (?, ?)",
                (f"{environ['wsrm.sequence_id']};{environ['wsrm.message_number']}", n),
            )
    start_response("202 Accepted", [("Content-Length", "0")])
    return []


def rebuilt(environ, start_response):
    """What a replay sends: the key says which orders are there already."""
    key, n = environ["HTTP_WSRM_MQ_KEY"], order_in(environ)
    with closing(connect()) as connection, connection:
        if connection.execute("SELECT 1 FROM orders WHERE key = ?", (key,)).fetchone() is None:
            connection.execute("INSERT INTO orders VALUES (?, ?)", (key, n))
    start_response("202 Accepted", [("Content-Length", "0")])
    return []
