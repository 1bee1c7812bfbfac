"""Stands in for a partner with an address of its own: python listen.py URL TEXT... sends orders, whose
acknowledgements come to a port of its own."""

import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import urlsplit

from wsrm_mq.testing import EnvelopeFactory, HTTPWire, Operation, Reply, RMSender, SOAPVersion

address, *texts = sys.argv[1:]
url = urlsplit(address)
is_acknowledged = threading.Event()


class Endpoint(BaseHTTPRequestHandler):
    def do_POST(self):
        reply = Reply.parse(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(202)
        self.end_headers()
        if any(ack.ranges == ((1, len(texts)),) for ack in reply.acks):
            is_acknowledged.set()

    def log_message(self, *_):
        """Say nothing."""


endpoint = HTTPServer(("127.0.0.1", 0), Endpoint)
threading.Thread(target=endpoint.serve_forever, daemon=True).start()
here = f"http://127.0.0.1:{endpoint.server_port}/"
with RMSender(
    lambda: HTTPWire(url.port, url.path, host=url.hostname),
    EnvelopeFactory(soap=SOAPVersion.SOAP_1_1, to=address),
    acks_to=here,
) as sender:
    for number, text in enumerate(texts, 1):
        answer = sender.send(
            number, Operation("{urn:example:orders}put", text=text), ack_requested=number == len(texts)
        )
        print(f"sent {number}: HTTP {answer.status}", flush=True)
    print("all acknowledged" if is_acknowledged.wait(30) else "not acknowledged")
    sender.terminate(len(texts))
