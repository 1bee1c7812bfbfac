"""A Flask site with a reliable SOAP service below /soap. See README.md."""

import os
import sqlite3
from contextlib import closing

from flask import Flask, jsonify
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from wsrm_mq import WSRMMiddleware, once
from wsrm_mq.contrib import spyne_compat  # before Spyne: it makes 2.14 work on Python 3.12 and later

# isort: split
from spyne import Application, Integer, ServiceBase, Unicode, rpc
from spyne.protocol.soap import Soap11
from spyne.server.wsgi import WsgiApplication

DATABASE = os.environ.get("ORDERS_DB", "orders.db")
STORE = os.environ.get("ORDERS_STORE", "wsrm.db")


def connect():
    return sqlite3.connect(DATABASE, timeout=10)


with closing(connect()) as connection:
    connection.execute("CREATE TABLE IF NOT EXISTS orders (n INTEGER, text TEXT)")


class Orders(ServiceBase):
    @rpc(Integer, Unicode)
    def put_order(ctx, n, text):
        with closing(connect()) as connection, connection:
            if once(connection, ctx.transport.req_env):
                connection.execute("INSERT INTO orders VALUES (?, ?)", (n, text))


soap = WsgiApplication(
    Application([Orders], tns="urn:example:orders", in_protocol=Soap11(validator="soft"), out_protocol=Soap11())
)

application = Flask(__name__)


@application.get("/orders")
def orders():
    with closing(connect()) as connection:
        return jsonify(connection.execute("SELECT n, text FROM orders ORDER BY rowid").fetchall())


application.wsgi_app = WSRMMiddleware(
    DispatcherMiddleware(application.wsgi_app, {"/soap": soap}),
    store=STORE,
    paths=["/soap"],
    one_way=spyne_compat.one_way_operations(soap),
    understood=[],
)
