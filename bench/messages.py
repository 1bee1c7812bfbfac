"""The requests of every case: one-way, SOAP 1.2, WS-RM 1.1, an envelope of 1 KB where nothing else is said."""

from __future__ import annotations

from typing import Final

from wsrm_mq.testing import EnvelopeFactory, Reply

__all__ = ["FACTORY", "FIELD_WIDTH", "create_sequence", "http_request", "identifier_in", "message"]

FACTORY: Final = EnvelopeFactory(to="http://127.0.0.1/orders")
FIELD_WIDTH: Final = 12
"""Of the two fields that the load generator patches."""
_MESSAGE_ID: Final = "urn:uuid:6ba7b810-9dad-41d1-{connection:04x}-{number:012x}"
_BODY: Final = '<p:put xmlns:p="urn:example:orders"><p:text>{text}</p:text></p:put>'
_PATH: Final = "/orders"


def create_sequence() -> bytes:
    return FACTORY.create_sequence(expires="PT24H")


def identifier_in(answer: bytes) -> str:
    """The identifier that a CreateSequenceResponse grants."""
    created = Reply.parse(answer).created
    if created is None:
        raise ValueError(f"not a CreateSequenceResponse: {answer!r}")
    return created.identifier


def message(identifier: str, number: int, *, connection: int = 0, size: int = 1_024) -> bytes:
    """An envelope of ``size`` bytes, or a little more where that is less than its headers."""

    def render(text: str) -> bytes:
        return FACTORY.message(
            identifier,
            f"{number:{FIELD_WIDTH}d}",
            _BODY.format(text=text),
            message_id=_MESSAGE_ID.format(connection=connection, number=number),
        )

    return render("x" * max(0, size - len(render(""))))


def http_request(envelope: bytes) -> bytes:
    lines = (
        f"POST {_PATH} HTTP/1.1",
        "Host: 127.0.0.1",
        f"Content-Type: {FACTORY.content_type}",
        f"Content-Length: {len(envelope)}",
    )
    return "\r\n".join((*lines, "", "")).encode() + envelope
