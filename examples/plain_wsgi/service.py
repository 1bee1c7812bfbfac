"""A SOAP service without any framework, made reliable. See README.md."""

import os
import sqlite3
import xml.etree.ElementTree as ElementTree
from contextlib import closing

from wsrm_mq import WSRMMiddleware, once

DATABASE = os.environ.get("ORDERS_DB", "orders.db")
STORE = os.environ.get("ORDERS_STORE", "wsrm.db")


def connect():
    return sqlite3.connect(DATABASE, timeout=10)


with closing(connect()) as connection:
    connection.execute("CREATE TABLE IF NOT EXISTS orders (n INTEGER, text TEXT)")


def orders(environ, start_response):
    """Takes put_order messages of either SOAP version. The middleware lets no DTD and no entity come here."""
    if environ["REQUEST_METHOD"] != "POST":
        return page(start_response)
    envelope = ElementTree.parse(environ["wsgi.input"])
    order = envelope.find(".//{urn:example:orders}put_order")
    n = int(order.findtext("{urn:example:orders}n"))
    text = order.findtext("{urn:example:orders}text")
    with closing(connect()) as connection, connection:
        if once(connection, environ):
            connection.execute("INSERT INTO orders VALUES (?, ?)", (n, text))
    start_response("202 Accepted", [("Content-Length", "0")])
    return []


def page(start_response):
    """What has come, a line an order."""
    with closing(connect()) as connection:
        lines = [f"{n} {text}\n" for n, text in connection.execute("SELECT n, text FROM orders ORDER BY rowid")]
    start_response("200 OK", [("Content-Type", "text/plain; charset=utf-8")])
    return ["".join(lines).encode()]


application = WSRMMiddleware(orders, store=STORE, one_way=["{urn:example:orders}put_order"], understood=[])
