"""For tests of services that use this package: an RM Source, the wires that it sends on, and a clock.

::

    wire = WSGIWire(application)            # or ASGIWire(application), or HTTPWire(8080)
    sender = RMSender(lambda: wire)           # creates a sequence
    sender.send(2)                          # any order
    sender.send(1)
    assert sender.acknowledged == {1, 2}
    line = Line(loss=0.2, duplicates=0.1)   # loses requests and answers
    lossy = RMSender(lambda: LossyWire(wire, line))
    lossy.send_all(range(1, 51), connections=4)
    lossy.terminate(50)

``EnvelopeFactory`` writes the requests and ``Reply`` reads the answers, for what a sender does not do.
"""

from wsrm_mq.testing.clock import ManualClock
from wsrm_mq.testing.envelopes import FRESH, EnvelopeFactory
from wsrm_mq.testing.in_process import ASGIWire, WSGIWire
from wsrm_mq.testing.lossy import Fate, Line, LossyWire, Traffic
from wsrm_mq.testing.reply import Ack, Created, Place, Reply, ReplyFault
from wsrm_mq.testing.sender import Refused, RMSender, Unacknowledged, shuffled_windows
from wsrm_mq.testing.wire import HTTPAnswer, HTTPWire, Wire, http_request

__all__ = [
    "FRESH",
    "ASGIWire",
    "Ack",
    "Created",
    "EnvelopeFactory",
    "Fate",
    "HTTPAnswer",
    "HTTPWire",
    "Line",
    "LossyWire",
    "ManualClock",
    "Place",
    "RMSender",
    "Refused",
    "Reply",
    "ReplyFault",
    "Traffic",
    "Unacknowledged",
    "WSGIWire",
    "Wire",
    "http_request",
    "shuffled_windows",
]
