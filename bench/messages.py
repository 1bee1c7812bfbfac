"""The requests of every case: SOAP 1.2, WS-RM 1.1, an envelope of 1 KB where nothing else is said."""

from __future__ import annotations

from typing import Final

from wsrm_mq.testing import EnvelopeFactory, Reply

__all__ = [
    "FACTORY",
    "MESSAGE_ID",
    "NUMBER",
    "PATH",
    "UNKNOWN",
    "create_sequence",
    "http_request",
    "identifier_in",
    "message",
    "reply",
    "template",
]

FACTORY: Final = EnvelopeFactory(to="http://127.0.0.1/orders")
NUMBER: Final = 999_999_999_999
"""In a template: where it stands, the load generator writes. It fills its field of twelve characters."""
MESSAGE_ID: Final = "urn:uuid:22222222-9dad-41d1-80b4-222222222222"
"""In a template: where it stands, the load generator writes index and number."""
UNKNOWN: Final = "urn:uuid:00000000-0000-4000-8000-{:012x}"
"""An identifier that no server knows, made with a number."""
_FIELD_WIDTH: Final = 12
_BODY: Final = '<p:{name} xmlns:p="urn:example:orders"><p:text>{text}</p:text></p:{name}>'
PATH: Final = "/orders"


def create_sequence(message_id: str | None = None) -> bytes:
    return FACTORY.create_sequence(expires="PT24H", **({"message_id": message_id} if message_id else {}))


def identifier_in(answer: bytes) -> str:
    """The identifier that a CreateSequenceResponse grants."""
    created = Reply.parse(answer).created
    if created is None:
        raise ValueError(f"not a CreateSequenceResponse: {answer!r}")
    return created.identifier


def message(
    identifier: str, number: int, *, message_id: str | None = None, size: int = 1_024, two_way: bool = False
) -> bytes:
    """An envelope of ``size`` bytes, or a little more where that is less than its headers."""
    name = "ask" if two_way else "put"

    def render(text: str) -> bytes:
        return FACTORY.message(
            identifier,
            f"{number:{_FIELD_WIDTH}d}",
            _BODY.format(name=name, text=text),
            action=f"urn:example:orders/{name}",
            message_id=message_id or f"urn:uuid:6ba7b810-9dad-41d1-80b4-{number:012x}",
            reply_to="" if two_way else "none",
        )

    return render("x" * max(0, size - len(render(""))))


def template(identifier: str, *, two_way: bool = False) -> bytes:
    """A message in which the load generator finds its fields: where ``identifier`` stands it writes that of each step,
    which has to be as long."""
    return message(identifier, NUMBER, message_id=MESSAGE_ID, two_way=two_way)


def reply(size: int = 1_024) -> bytes:
    """What an application answers to a two-way message."""
    body = _BODY.format(name="askResponse", text="x" * (size - 256))
    return FACTORY.envelope("urn:example:orders/askResponse", body, message_id=None, to=None)


def http_request(envelope: bytes) -> bytes:
    lines = (
        f"POST {PATH} HTTP/1.1",
        "Host: 127.0.0.1",
        f"Content-Type: {FACTORY.content_type}",
        f"Content-Length: {len(envelope)}",
    )
    return "\r\n".join((*lines, "", "")).encode() + envelope
