"""Frames in terms of queues: a destination, the options of SEND, ACK and SUBSCRIBE, and a message as a MESSAGE.

A header that has no meaning here is its sender's own: of a SEND it is a property of the message, as a text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, cast

from wsrm_mq.errors import ConfigurationError
from wsrm_mq.node.message import Message
from wsrm_mq.server.acts import ENDS, PutOne, Settle
from wsrm_mq.server.stomp.protocol import Frame

QUEUE: Final = "/queue/"
TOPIC: Final = "/topic/"
DURABLE: Final = "durable-subscription-name"
CLIENT: Final = "client-id"
MOST_BACKLOG: Final = 1_000
AUTO_BACKLOG: Final = 64
"""The backlog of a subscription that acknowledges nothing: so many messages share a commit."""


class Destination(NamedTuple):
    """A queue, or a topic or a pattern of topics; the other one is ``None``."""

    queue: str | None
    topic: str | None


def destination_of(frame: Frame) -> Destination:
    """Read the destination of a frame. Raises ``ConfigurationError``."""
    text = frame.headers["destination"]
    for prefix in (QUEUE, TOPIC):
        name = text.removeprefix(prefix)
        if name and name != text:
            return Destination(name, None) if prefix == QUEUE else Destination(None, name)
    raise ConfigurationError(f"`destination` is {text[:100]!r}; it is {QUEUE}NAME, or {TOPIC}PATTERN.")


def _words(text: str) -> list[str]:
    return text.replace(",", " ").split()


class Option(NamedTuple):
    """An option of ``Node.put``, how a header is read as one, and what that has to be."""

    name: str
    read: Callable[[str], object] = str
    is_a: str = "a text"


OPTIONS: Final = {
    "content-type": Option("content_type"),
    "type": Option("type"),
    "sender-message-id": Option("message_id"),
    "priority": Option("priority", int, "a number"),
    "ttl": Option("ttl", float, "seconds"),
    "delay": Option("delay", float, "seconds"),
    "deliver-at": Option("deliver_at", float, "seconds since the epoch"),
    "receive-by": Option("receive_by", float, "seconds since the epoch"),
    "group": Option("group"),
    "journal": Option("journal"),
    "report-to": Option("report_to"),
    "report": Option("report", _words, "names"),
    "durability": Option("durability"),
}
"""The headers of SEND that are options."""
MANDATORY: Final = "mandatory"
_OF_PROTOCOL: Final = {"destination", "content-length", "receipt", "transaction", MANDATORY}


def put_of(frame: Frame) -> PutOne:
    """The message that a SEND puts or publishes. Raises ``ConfigurationError``."""
    queue, topic = destination_of(frame)
    options: dict[str, Any] = {}
    properties: dict[str, str] = {}
    for name, text in frame.headers.items():
        if name in OPTIONS:
            options[OPTIONS[name].name] = _read(OPTIONS[name], name, text)
        elif name not in _OF_PROTOCOL:
            properties[name] = text
    if properties:
        options["properties"] = properties
    if topic is not None and MANDATORY in frame.headers:
        options["mandatory"] = _read(Option(MANDATORY, _truth, "true or false"), MANDATORY, frame.headers[MANDATORY])
    return PutOne(queue, topic, frame.body, options)


def _truth(text: str) -> bool:
    return {"true": True, "false": False}[text]


def _read(option: Option, name: str, text: str) -> object:
    try:
        return option.read(text)
    except (ValueError, KeyError):
        raise ConfigurationError(f"`{name}` is {text[:100]!r}; it is {option.is_a}.") from None


class Wanted(NamedTuple):
    """The options of a SUBSCRIBE."""

    destination: Destination
    mode: str
    backlog: int
    lease: float | None
    filter: str | None
    durable: str | None


def wanted_of(frame: Frame) -> Wanted:
    """Read the options of a SUBSCRIBE. Raises ``ConfigurationError``."""
    headers = frame.headers
    mode = headers.get("ack", "auto")
    usual = AUTO_BACKLOG if mode == "auto" else 1
    asked = cast(int, _header(headers, "prefetch-count", int, "a number, at least 1")) or usual
    lease = cast("float | None", _header(headers, "lease", float, "seconds"))
    destination, durable = destination_of(frame), headers.get(DURABLE)
    if durable is not None and destination.topic is None:
        raise ConfigurationError(f"`{DURABLE}` is of a subscription to {TOPIC}PATTERN; a queue keeps its messages so.")
    return Wanted(destination, mode, min(asked, MOST_BACKLOG), lease, headers.get("selector"), durable)


def _header(headers: Mapping[str, str], name: str, read: Callable[[str], object], is_a: str) -> object:
    text = headers.get(name)
    return None if text is None else _read(Option(name, read, is_a), name, text)


def settle_of(frame: Frame, message: Message) -> Settle:
    """The settlement that an ACK or a NACK asks for: as its header ``action`` says. Raises ``ConfigurationError``."""
    said = frame.headers.get("action", frame.command.lower())
    action = next((one for one in ENDS if one == said), None)
    if action is None:
        raise ConfigurationError(f"`action` is {said[:100]!r}; it is one of {', '.join(ENDS)}.")
    lease = message.lease.fence or 0
    return Settle(position=message.position, lease=lease, action=action, reason=frame.headers.get("reason", ""))


def message_frame(message: Message, subscription: str, ack: str | None) -> Frame:
    """The MESSAGE of a message. ``ack``: what acknowledges it, in 1.2."""
    said = {
        "subscription": subscription,
        "message-id": str(message.position),
        "destination": f"{QUEUE}{message.queue}" if message.topic is None else f"{TOPIC}{message.topic}",
        "ack": ack,
        "content-type": message.content_type,
        "type": message.type,
        "priority": str(message.priority),
        "sender-message-id": message.message_id,
        "timestamp": str(round(message.received_at * 1000)),
        "redelivered": "true" if message.redelivered else None,
        "deliveries": str(message.deliveries),
        "sequence": message.sequence,
        "number": None if message.number is None else str(message.number),
    }
    headers = {name: text for name, text in said.items() if text is not None}
    for name, value in message.properties.items():
        if name and name not in said and name != "content-length":
            headers[name] = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return Frame("MESSAGE", headers, message.body)
