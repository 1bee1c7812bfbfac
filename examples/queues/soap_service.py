"""The SOAP service of `soap_partner.py`. In mode `pull` it is not called with orders, but with what has to be
answered."""

from wsrm_mq.contrib import spyne_compat  # noqa: F401 - before Spyne: it makes 2.14 work on Python 3.12 and later

# isort: split
from spyne import Application, Integer, ServiceBase, rpc
from spyne.protocol.soap import Soap12
from spyne.server.wsgi import WsgiApplication


class Orders(ServiceBase):
    @rpc(Integer)
    def place(ctx, n):
        raise AssertionError("programs consume orders")

    @rpc(Integer, _returns=Integer)
    def price(ctx, n):
        return 10 * n


service = WsgiApplication(
    Application([Orders], tns="urn:example:orders", in_protocol=Soap12(validator="soft"), out_protocol=Soap12())
)
