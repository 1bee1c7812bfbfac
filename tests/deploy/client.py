"""One keep-alive connection to a service that was deployed."""

from __future__ import annotations

import time
from typing import Final

from tests.support.raw import Answer, Wire
from wsrm_mq.testing import EnvelopeFactory
from wsrm_mq.versions import SOAPVersion

SPEAK = EnvelopeFactory(soap=SOAPVersion.SOAP_1_1)

PUT: Final = '<o:put xmlns:o="urn:example:orders"><o:text>an order</o:text></o:put>'


class Client:
    """``path`` is where the service is."""

    def __init__(self, port: int, path: str = "/orders") -> None:
        self.path = path
        self.wire = Wire(port)
        self.local_port: int = self.wire.socket.getsockname()[1]

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.wire.close()

    def post(self, envelope: bytes) -> Answer:
        fields = (
            f"POST {self.path} HTTP/1.1",
            "Host: 127.0.0.1",
            f"Content-Type: {SPEAK.content_type}",
            f"Content-Length: {len(envelope)}",
        )
        return self.wire.ask("\r\n".join([*fields, "", ""]).encode() + envelope)

    def offer(self, content: bytes) -> Answer:
        """Post it with an offer of HTTP/2, as Java's HTTP client does by itself; the body in a segment of its own."""
        self.wire.send(
            b"POST /orders HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
            b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk\r\n"
            + f"Content-Type: {SPEAK.content_type}\r\nContent-Length: {len(content)}\r\n\r\n".encode()
        )
        time.sleep(0.05)
        return self.wire.ask(content)

    def create(self) -> str:
        created = self.post(SPEAK.create_sequence()).reply.created
        assert created is not None
        return created.identifier

    def put(self, identifier: str, number: int, body: str = PUT) -> Answer:
        return self.post(SPEAK.message(identifier, number, body))

    def put_plain(self, message_id: str) -> Answer:
        """A one-way message without WS-RM."""
        return self.post(SPEAK.envelope("urn:example:orders/put", message_id=message_id, reply_to="none"))
