"""Stands in for a partner: python send.py URL TEXT... sends an order for each text, and ends its sequence."""

import sys
from urllib.parse import urlsplit

from wsrm_mq.testing import EnvelopeFactory, HTTPWire, Operation, RMSender, SOAPVersion

address, *texts = sys.argv[1:]
url = urlsplit(address)
speak = EnvelopeFactory(soap=SOAPVersion.SOAP_1_1, to=address)
with RMSender(lambda: HTTPWire(url.port, url.path, host=url.hostname), speak) as sender:
    for number, text in enumerate(texts, 1):
        sender.send_until_acknowledged(number, Operation("{urn:example:orders}put", text=text))
        print(f"sent {number}; acknowledged {sorted(sender.acknowledged)}")
    sender.terminate(len(texts))
