"""A Spyne service with one operation, which is one-way: it returns nothing."""

import wsrm_mq.contrib.spyne_compat  # before Spyne, which does not start on Python 3.12 and later without it
from spyne import Application, ServiceBase, Unicode, rpc
from spyne.protocol.soap import Soap11
from spyne.server.wsgi import WsgiApplication


class Orders(ServiceBase):
    @rpc(Unicode)
    def put(ctx, text):
        print(f"an order: {text}", flush=True)


service = WsgiApplication(
    Application([Orders], tns="urn:example:orders", in_protocol=Soap11(validator="soft"), out_protocol=Soap11())
)
