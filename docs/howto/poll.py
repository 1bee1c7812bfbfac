"""Stands in for a partner that polls: python poll.py URL TEXT... sends orders whose acknowledgements it fetches."""

import sys
from urllib.parse import urlsplit
from uuid import uuid4

from wsrm_mq.testing import EnvelopeFactory, HTTPWire, Operation, RMSender, SOAPVersion

address, *texts = sys.argv[1:]
url = urlsplit(address)
own = f"http://docs.oasis-open.org/ws-rx/wsmc/200702/anonymous?id={uuid4()}"
speak = EnvelopeFactory(soap=SOAPVersion.SOAP_1_1, to=address)
with RMSender(lambda: HTTPWire(url.port, url.path, host=url.hostname), speak, acks_to=own) as sender:
    for number, text in enumerate(texts, 1):
        sender.send(number, Operation("{urn:example:orders}put", text=text))
    answer = sender.post(speak.make_connection(own))
    print(f"polled: HTTP {answer.status}; acknowledged {sorted(sender.acknowledged)}")
    sender.terminate(len(texts))
