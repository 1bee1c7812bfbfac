"""One keep-alive connection to a service that was deployed."""

from __future__ import annotations

from tests.support.raw import Answer, Wire
from wsrm_mq.testing import EnvelopeFactory

SPEAK = EnvelopeFactory()


class Client:
    def __init__(self, port: int) -> None:
        self.wire = Wire(port)
        self.local_port: int = self.wire.socket.getsockname()[1]

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.wire.close()

    def post(self, envelope: bytes) -> Answer:
        fields = (
            "POST /orders HTTP/1.1",
            "Host: 127.0.0.1",
            f"Content-Type: {SPEAK.content_type}",
            f"Content-Length: {len(envelope)}",
        )
        return self.wire.ask("\r\n".join([*fields, "", ""]).encode() + envelope)

    def create(self) -> str:
        created = self.post(SPEAK.create_sequence()).reply.created
        assert created is not None
        return created.identifier

    def put(self, identifier: str, number: int) -> Answer:
        return self.post(SPEAK.message(identifier, number))

    def put_plain(self, message_id: str) -> Answer:
        """A one-way message without WS-RM."""
        return self.post(SPEAK.envelope("urn:example:orders/put", message_id=message_id, reply_to="none"))
