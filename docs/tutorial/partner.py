"""A partner's service: it takes orders, and knows their prices."""

from wsrm_mq import WSRMMiddleware
from wsrm_mq.contrib import spyne_compat  # noqa: F401  (before Spyne, which needs it on Python 3.12 and later)

# isort: split
from spyne import Application, Integer, ServiceBase, Unicode, rpc
from spyne.protocol.soap import Soap11
from spyne.server.wsgi import WsgiApplication


class Orders(ServiceBase):
    @rpc(Integer, Unicode)
    def put_order(ctx, n, text):
        print(f"order {n}", flush=True)

    @rpc(Integer, _returns=Unicode)
    def price_of(ctx, n):
        return f"order {n} costs {n * 10} euros"


soap = WsgiApplication(
    Application([Orders], tns="urn:example:orders", in_protocol=Soap11(validator="soft"), out_protocol=Soap11())
)

application = WSRMMiddleware(soap, store="partner.db")
