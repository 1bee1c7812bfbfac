"""An RM Source of a service that was deployed."""

from __future__ import annotations

import time
from typing import Final

from wsrm_mq.testing import EnvelopeFactory, HTTPAnswer, HTTPWire, RMSender, http_request
from wsrm_mq.versions import SOAPVersion

SPEAK: Final = EnvelopeFactory(soap=SOAPVersion.SOAP_1_1)
UPGRADE: Final = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk")


class Client(RMSender[HTTPWire]):
    """``path`` is where the service is. No sequence is created before ``create``."""

    def __init__(self, port: int, path: str = "/orders", identifier: str = "") -> None:
        super().__init__(lambda: HTTPWire(port, path), SPEAK, identifier=identifier)
        self.local_port: int = self.wire.socket.getsockname()[1]

    def offer(self, content: bytes) -> HTTPAnswer:
        """Post it with an offer of HTTP/2, as Java's HTTP client does by itself; the body in a segment of its own."""
        request = http_request(self.wire.path, content, f"Content-Type: {SPEAK.content_type}", *UPGRADE)
        self.wire.send(request.removesuffix(content))
        time.sleep(0.05)
        return self.wire.ask(content)

    def put_plain(self, message_id: str) -> HTTPAnswer:
        """A one-way message without WS-RM."""
        return self.post(SPEAK.envelope("urn:example:orders/put", message_id=message_id, reply_to="none"))
