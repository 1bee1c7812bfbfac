"""python to_gsoap.py URL TEXT...: puts an order for each text, and has the server say which it has."""

import sys
from xml.sax.saxutils import escape

from wsrm_mq.source import RMSource

ENVELOPE = """<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body>
<o:put xmlns:o="urn:example:orders"><o:text>{}</o:text></o:put>
</s:Body></s:Envelope>"""
url, *texts = sys.argv[1:]
with RMSource("outbox.db", expires=3600) as source:
    for text in texts:
        source.send(ENVELOPE.format(escape(text)).encode(), to=url, action="urn:example:orders/put")
    while not source.flush(timeout=1):
        source.close_sequence(url)
    print(source.waiting, "wait")
