"""For tests of services that use this package: an RM Source, the wires that it sends on, and a clock.

::

    wire = WSGIWire(application)            # or ASGIWire(application), or HTTPWire(8080)
    sender = RMSender(lambda: wire)           # creates a sequence
    sender.send(2, Operation("{urn:example:orders}put", text="a window"))  # any order
    sender.send(1, Operation("{urn:example:orders}put", text="two seats"))
    assert sender.acknowledged == {1, 2}    # they are stored
    sender.wait_until_delivered("wsrm.db")  # and the service has taken them
    line = Line(loss=0.2, duplicates=0.1)   # loses requests and answers
    lossy = RMSender(lambda: LossyWire(wire, line), EnvelopeFactory(soap=SOAPVersion.SOAP_1_1))
    lossy.send_all(range(1, 51), connections=4)
    lossy.terminate(50)

``EnvelopeFactory`` writes the requests, in SOAP 1.2 and WS-RM 1.1 unless it is told (``rm``, ``soap``, ``addressing``),
and ``Reply`` reads the answers. ``with Lifespan(application):`` starts and stops an ASGI application.
"""

from wsrm_mq.testing.envelopes import FRESH, EnvelopeFactory, Operation
from wsrm_mq.testing.reply import Ack, Created, ManualClock, Place, Reply, ReplyFault
from wsrm_mq.testing.sender import (
    Refused,
    RMSender,
    Unacknowledged,
    Undelivered,
    shuffled_windows,
    wait_until_delivered,
)
from wsrm_mq.testing.wire import (
    ASGIWire,
    Fate,
    HTTPAnswer,
    HTTPWire,
    Lifespan,
    Line,
    LossyWire,
    Traffic,
    Wire,
    WSGIWire,
    http_request,
)
from wsrm_mq.versions import WSA_2004, WSA_2005, WSRM_1_0, WSRM_1_1, AddressingVersion, RMVersion, SOAPVersion

__all__ = [
    "FRESH",
    "WSA_2004",
    "WSA_2005",
    "WSRM_1_0",
    "WSRM_1_1",
    "ASGIWire",
    "Ack",
    "AddressingVersion",
    "Created",
    "EnvelopeFactory",
    "Fate",
    "HTTPAnswer",
    "HTTPWire",
    "Lifespan",
    "Line",
    "LossyWire",
    "ManualClock",
    "Operation",
    "Place",
    "RMSender",
    "RMVersion",
    "Refused",
    "Reply",
    "ReplyFault",
    "SOAPVersion",
    "Traffic",
    "Unacknowledged",
    "Undelivered",
    "WSGIWire",
    "Wire",
    "http_request",
    "shuffled_windows",
    "wait_until_delivered",
]
