"""Messages and HTTP written by hand, for what a client library would not let through.

``Dialect`` writes envelopes in one combination of versions, ``Wire`` is a socket that sends segments as it is
told, ``Answer`` is what came back.
"""

from __future__ import annotations

import socket
import struct
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from xml.sax.saxutils import escape, quoteattr

import pytest
from lxml import etree

from wsrm_mq.testing import Reply
from wsrm_mq.versions import WSA_2005, WSRM_1_0, WSRM_1_1, AddressingVersion, RMVersion, SOAPVersion

NAMESPACE: Final = "urn:example:orders"
PUT_ORDER: Final = f"{NAMESPACE}/put_order"

both_versions: Final = pytest.mark.parametrize("rm", [WSRM_1_1, WSRM_1_0], ids=["rm1.1", "rm1.0"])
"""Run a test that takes the fixture ``dialect`` in both RM versions, and in 1.1 alone."""
in_1_1: Final = pytest.mark.parametrize("rm", [WSRM_1_1], ids=["rm1.1"])


def order(n: object, text: str = "") -> str:
    """The body of a put_order."""
    return f"<t:put_order><t:n>{n}</t:n><t:text>{escape(text)}</t:text></t:put_order>"


@dataclass(frozen=True, slots=True)
class Dialect:
    """Envelopes in one combination of versions."""

    rm: RMVersion = WSRM_1_1
    soap: SOAPVersion = SOAPVersion.SOAP_1_2
    addressing: AddressingVersion = WSA_2005
    path: str = "/orders"

    def envelope(self, action: str | None, header: str = "", body: str = "", *, message_id: str | None = None) -> bytes:
        """An envelope with the addressing headers a request needs.

        ``header`` and ``body`` are XML that may use the prefixes s, a, r and t."""
        addressing = f"<a:Action>{escape(action)}</a:Action>" if action else ""
        addressing += f"<a:MessageID>{message_id or uuid.uuid4().urn}</a:MessageID>"
        addressing += f"<a:ReplyTo><a:Address>{self.addressing.anonymous}</a:Address></a:ReplyTo>"
        namespaces = {
            "s": self.soap.namespace,
            "a": self.addressing.namespace,
            "r": self.rm.namespace,
            "t": NAMESPACE,
        }
        declarations = "".join(f" xmlns:{prefix}={quoteattr(uri)}" for prefix, uri in namespaces.items())
        return (
            f"<s:Envelope{declarations}><s:Header>{addressing}{header}</s:Header><s:Body>{body}</s:Body></s:Envelope>"
        ).encode()

    def create(self, inner: str | None = None) -> bytes:
        """CreateSequence; ``inner`` replaces the children, which are an anonymous AcksTo."""
        if inner is None:
            inner = self.acks_to(self.addressing.anonymous)
        return self.envelope(self.rm.action("CreateSequence"), body=f"<r:CreateSequence>{inner}</r:CreateSequence>")

    def acks_to(self, address: str) -> str:
        return f"<r:AcksTo><a:Address>{escape(address)}</a:Address></r:AcksTo>"

    def sequence(self, identifier: str, number: object) -> str:
        """The Sequence header block. ``number`` may be what no number is."""
        return (
            f'<r:Sequence s:mustUnderstand="1"><r:Identifier>{escape(identifier)}</r:Identifier>'
            f"<r:MessageNumber>{number}</r:MessageNumber></r:Sequence>"
        )

    def put(self, identifier: str, number: object, text: str = "", n: int | None = None) -> bytes:
        """One order in a sequence. Its own number is the message number unless ``n`` says otherwise."""
        return self.envelope(PUT_ORDER, self.sequence(identifier, number), order(number if n is None else n, text))

    def plain_put(self, n: int, text: str = "") -> bytes:
        """One order without WS-RM."""
        return self.envelope(PUT_ORDER, body=order(n, text))

    def echo(self, identifier: str, number: int, text: str) -> bytes:
        body = f"<t:echo><t:text>{escape(text)}</t:text></t:echo>"
        return self.envelope(f"{NAMESPACE}/echo", self.sequence(identifier, number), body)

    def ack_requested(self, identifier: str) -> bytes:
        block = f"<r:AckRequested><r:Identifier>{escape(identifier)}</r:Identifier></r:AckRequested>"
        return self.envelope(self.rm.action("AckRequested"), block)

    def close(self, identifier: str, last: int | None = None) -> bytes:
        return self._lifecycle("CloseSequence", identifier, last)

    def terminate(self, identifier: str, last: int | None = None) -> bytes:
        return self._lifecycle("TerminateSequence", identifier, last)

    def _lifecycle(self, name: str, identifier: str, last: int | None) -> bytes:
        inner = f"<r:Identifier>{escape(identifier)}</r:Identifier>"
        inner += f"<r:LastMsgNumber>{last}</r:LastMsgNumber>" if last is not None else ""
        return self.envelope(self.rm.action(name), body=f"<r:{name}>{inner}</r:{name}>")

    def request(self, payload: bytes, *fields: str) -> bytes:
        """A whole HTTP request around an envelope. ``fields`` are more header lines."""
        lines = [
            f"POST {self.path} HTTP/1.1",
            "Host: 127.0.0.1",
            f"Content-Type: {self.soap.media_type}; charset=utf-8",
        ]
        if not any(field.lower().startswith("transfer-encoding") for field in fields):
            lines.append(f"Content-Length: {len(payload)}")
        return "\r\n".join([*lines, *fields, "", ""]).encode() + payload


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP response."""

    status: int
    fields: dict[str, str]
    body: bytes = field(repr=False)

    @property
    def reply(self) -> Reply:
        """What the envelope says."""
        return Reply.parse(self.body)

    def tree(self) -> etree._Element:
        return etree.fromstring(self.body)

    def text(self, name: str) -> str | None:
        """Text of the first element with the local name ``name``."""
        return next(iter(self.texts(name)), None)

    def texts(self, name: str) -> list[str]:
        return [element.text or "" for element in self.elements(name)]

    def elements(self, name: str) -> list[etree._Element]:
        return list(self.tree().iter("{*}" + name)) if self.body else []

    @property
    def acked(self) -> list[tuple[int, int]] | None:
        """Ranges of the one acknowledgement; None without one."""
        blocks = self.elements("SequenceAcknowledgement")
        assert len(blocks) < 2
        if not blocks:
            return None
        return [(int(r.get("Lower", "")), int(r.get("Upper", ""))) for r in blocks[0].iter("{*}AcknowledgementRange")]

    @property
    def fault(self) -> str | None:
        """Local name of the most particular fault code, or None if this is no fault."""
        for name in ("FaultCode", "Subcode", "faultcode", "Code"):
            if found := self.elements(name):
                value = "".join(str(part) for part in found[0].itertext())
                return value.strip().rpartition(":")[2]
        return None


class Wire:
    """One TCP connection to a server, HTTP/1.1, written and read by hand."""

    def __init__(self, port: int, timeout: float = 20, *, own_port: int = 0) -> None:
        """``own_port``: to come from this port, 0 from any."""
        self.socket = socket.create_connection(("127.0.0.1", port), timeout, ("127.0.0.1", own_port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self.socket.makefile("rb")

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._reader.close()
        self.socket.close()

    def reset(self) -> None:
        """Break it off: its port is free at once."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self) -> Answer:
        """The next response; ``EOFError`` if the server closed before the end of it."""
        status = int(self._line().split()[1])
        fields = {}
        while line := self._line().strip():
            name, _, value = line.decode().partition(":")
            fields[name.strip().lower()] = value.strip()
        if status < 200:
            return Answer(status, fields, b"")
        return Answer(status, fields, self._body(fields))

    def _body(self, fields: dict[str, str]) -> bytes:
        if fields.get("transfer-encoding") == "chunked":
            parts = []
            while size := int(self._line(), 16):
                parts.append(self._exactly(size))
                self._line()
            self._line()
            return b"".join(parts)
        if "content-length" in fields:
            return self._exactly(int(fields["content-length"]))
        return self._reader.read() if fields.get("connection") == "close" else b""

    def _line(self) -> bytes:
        line = self._reader.readline()
        if not line.endswith(b"\n"):
            raise EOFError(f"closed after {line!r}, before the end of the response")
        return line

    def _exactly(self, size: int) -> bytes:
        content = self._reader.read(size)
        if len(content) < size:
            raise EOFError(f"closed after {len(content)} of {size} bytes of a body")
        return content

    def ask(self, request: bytes) -> Answer:
        self.send(request)
        return self.read()


def open_sequence(wire: Wire, dialect: Dialect) -> str:
    """CreateSequence with an anonymous AcksTo; the new sequence's Identifier."""
    answer = wire.ask(dialect.request(dialect.create()))
    assert answer.status == 200, answer.body
    identifier = answer.text("Identifier")
    assert identifier
    return identifier


def put(wire: Wire, dialect: Dialect, identifier: str, number: int, text: str = "") -> Answer:
    """Send one order in a sequence and read the answer."""
    return wire.ask(dialect.request(dialect.put(identifier, number, text)))


def chunked(payload: bytes, sizes: Iterable[int]) -> bytes:
    """``payload`` in HTTP chunks of these sizes, the rest in one more."""
    parts, rest = [], payload
    for size in sizes:
        parts.append(rest[:size])
        rest = rest[size:]
    parts.append(rest)
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts if part) + b"0\r\n\r\n"
