"""Orders as an RM Source writes them: the requests of the service in ``tests/servers/orders.py``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol
from xml.sax.saxutils import escape

from wsrm_mq.testing import EnvelopeFactory, HTTPAnswer, HTTPWire, RMSender, http_request

NAMESPACE: Final = "urn:example:orders"
PUT_ORDER: Final = f"{NAMESPACE}/put_order"
PUT_ONCE: Final = f"{NAMESPACE}/put_once"
ECHO: Final = f"{NAMESPACE}/echo"


def put_order(n: object, text: str = "") -> str:
    """The body of a one-way order."""
    return f'<t:put_order xmlns:t="{NAMESPACE}"><t:n>{n}</t:n><t:text>{escape(text)}</t:text></t:put_order>'


def echo(text: str) -> str:
    """The body of a two-way request."""
    return f'<t:echo xmlns:t="{NAMESPACE}"><t:text>{escape(text)}</t:text></t:echo>'


class Listening(Protocol):
    """What a sender needs to know of its server: where it listens now."""

    @property
    def port(self) -> int: ...


@dataclass(frozen=True)
class Orders(EnvelopeFactory):
    """Envelopes and HTTP requests in one combination of versions. Options are those of ``EnvelopeFactory``."""

    path: str = "/orders"

    def put(self, identifier: str | None, number: Any, text: str = "", **options: Any) -> bytes:
        """A one-way order in a sequence. Its n is the message number if that is one."""
        n = options.pop("n", number if isinstance(number, int) else 0)
        return self.message(identifier, number, put_order(n, text), **{"action": PUT_ORDER, "reply_to": "", **options})

    def put_once(self, identifier: str, number: int, text: str = "") -> bytes:
        """The same for the operation that has its effect exactly once, crashes or not."""
        body = put_order(number, text).replace("put_order", "put_once")
        return self.message(identifier, number, body, action=PUT_ONCE, reply_to="")

    def put_plain(self, n: int, text: str = "", **options: Any) -> bytes:
        """A one-way order without WS-RM."""
        return self.envelope(PUT_ORDER, put_order(n, text), reply_to="", **options)

    def echo(self, identifier: str, number: Any, text: str, **options: Any) -> bytes:
        """A two-way request in a sequence."""
        return self.message(identifier, number, echo(text), **{"action": ECHO, "reply_to": "", **options})

    def request(self, envelope: bytes, *lines: str, content_type: str | None = None) -> bytes:
        """A whole HTTP request. ``lines`` are more header lines; an empty ``content_type`` is left out."""
        content_type = self.content_type if content_type is None else content_type
        return http_request(self.path, envelope, *([f"Content-Type: {content_type}"] if content_type else []), *lines)


class OrderSender(RMSender[HTTPWire]):
    """Sends orders to a server that may die and come back: its ``port`` is read anew for each connection."""

    def __init__(self, server: Listening, orders: Orders | None = None, **options: Any) -> None:
        self.orders = orders or Orders()
        options = {"write": self.orders.put, **options}
        super().__init__(lambda: HTTPWire(server.port, self.orders.path), self.orders, **options)

    def echo(self, number: int, text: str) -> HTTPAnswer:
        """Send a two-way request."""
        return self.post(self.orders.echo(self.identifier, number, text, headers=self.acknowledgement))

    def request_put(self, number: int, text: str = "", *lines: str) -> bytes:
        """The HTTP request of an order, for the wire."""
        return self.orders.request(self.message(number, text), *lines)

    def request_echo(self, number: int, text: str) -> bytes:
        return self.orders.request(self.orders.echo(self.identifier, number, text))


def chunked(payload: bytes, sizes: Iterable[int]) -> bytes:
    """``payload`` in HTTP chunks of these sizes, the rest in one more."""
    parts, rest = [], payload
    for size in sizes:
        parts.append(rest[:size])
        rest = rest[size:]
    parts.append(rest)
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts if part) + b"0\r\n\r\n"
