"""python to_gsoap.py URL ACKS_TO TEXT...: puts an order for each text, which the server acknowledges at ACKS_TO."""

import sys
from xml.sax.saxutils import escape

from wsrm_mq.source import RMSource

ENVELOPE = """<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body>
<o:put xmlns:o="urn:example:orders"><o:text>{}</o:text></o:put>
</s:Body></s:Envelope>"""
url, acks_to, *texts = sys.argv[1:]
with RMSource("outbox.db", expires=3600, acks_to=acks_to) as source:
    for text in texts:
        source.send(ENVELOPE.format(escape(text)).encode(), to=url, action="urn:example:orders/put")
    source.flush(timeout=20)
    print(source.waiting, "wait")
