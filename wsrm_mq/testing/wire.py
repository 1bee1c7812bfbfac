"""The wire of a sender, and the answers on it: a keep-alive connection over HTTP, written and read by hand."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Protocol, Self

from lxml import etree

from wsrm_mq.testing.reply import Reply
from wsrm_mq.versions import SOAPVersion

_NO_BODY: Final = (204, 304)
_SOAP_TYPES: Final = tuple(version.media_type for version in SOAPVersion)


@dataclass(frozen=True)
class HTTPAnswer:
    """One HTTP response. The names of its ``fields`` are in lower case."""

    status: int
    fields: dict[str, str]
    body: bytes = field(repr=False)
    reason: str = ""

    @property
    def is_soap(self) -> bool:
        """Whether it is said to be an envelope."""
        return bool(self.body) and self.fields.get("content-type", "").startswith(_SOAP_TYPES)

    @cached_property
    def reply(self) -> Reply:
        """The envelope in it. Raises as ``Reply.parse`` does where there is none."""
        return Reply.parse(self.body)

    @cached_property
    def tree(self) -> Any:
        return etree.fromstring(self.body)

    def elements(self, name: str) -> list[Any]:
        """Elements with the local name ``name``; none of an empty answer."""
        return list(self.tree.iter("{*}" + name)) if self.body else []

    def texts(self, name: str) -> list[str]:
        return [element.text or "" for element in self.elements(name)]

    def text(self, name: str) -> str | None:
        """Text of the first element with the local name ``name``."""
        return next(iter(self.texts(name)), None)

    @property
    def acked(self) -> list[tuple[int, int]] | None:
        """Ranges of the only acknowledgement; ``None`` without one."""
        if not self.elements("SequenceAcknowledgement"):
            return None
        return list(self.reply.ack.ranges)

    @property
    def fault(self) -> str | None:
        """Local name of the most particular fault code; ``None`` if this is no fault."""
        for name in ("FaultCode", "Subcode", "faultcode", "Code"):
            if found := self.elements(name):
                return "".join(map(str, found[0].itertext())).strip().rpartition(":")[2]
        return None


class Wire(Protocol):
    """Leads to one service. ``OSError`` says that it broke, and not whether the request arrived."""

    def post(self, body: bytes, fields: Mapping[str, str]) -> HTTPAnswer: ...

    def post_half(self, body: bytes, fields: Mapping[str, str]) -> None:
        """Break off in the middle of the body."""

    def close(self) -> None: ...


def http_request(path: str, body: bytes, *lines: str) -> bytes:
    """A POST over HTTP/1.1. ``lines`` are header lines; one that says how long the body is replaces ours."""
    head = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", *lines]
    if not any(line.lower().startswith(("content-length", "transfer-encoding")) for line in lines):
        head.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*head, "", ""]).encode() + body


class HTTPWire:
    """One TCP connection."""

    def __init__(
        self, port: int, path: str = "/", *, host: str = "127.0.0.1", timeout: float = 20, own_port: int = 0
    ) -> None:
        """``timeout`` in seconds; ``own_port``: to come from this port, 0 from any."""
        self.path = path
        self.socket = socket.create_connection((host, port), timeout, ("", own_port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self.socket.makefile("rb")

    def __enter__(self) -> Self:
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

    def post(self, body: bytes, fields: Mapping[str, str]) -> HTTPAnswer:
        return self.ask(self._request(body, fields))

    def post_half(self, body: bytes, fields: Mapping[str, str]) -> None:
        self.send(self._request(body, fields)[: -(len(body) // 2 or 1)])
        self.close()

    def _request(self, body: bytes, fields: Mapping[str, str]) -> bytes:
        return http_request(self.path, body, *(f"{name}: {value}" for name, value in fields.items()))

    def ask(self, request: bytes) -> HTTPAnswer:
        """``request`` is all of HTTP."""
        self.send(request)
        return self.read()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self) -> HTTPAnswer:
        """The next response. Raises ``ConnectionError`` if the server closes before its end."""
        version, status, *reason = self._line().decode("latin-1").split(maxsplit=2)
        fields = {}
        while line := self._line().strip():
            name, _, value = line.decode("latin-1").partition(":")
            fields[name.strip().lower()] = value.strip()
        if version == "HTTP/1.0" and fields.get("connection") != "keep-alive":
            fields["connection"] = "close"
        body = self._body(fields) if int(status) >= 200 and int(status) not in _NO_BODY else b""
        return HTTPAnswer(int(status), fields, body, " ".join(reason).strip())

    def _body(self, fields: Mapping[str, str]) -> bytes:
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
            raise ConnectionError(f"closed after {line!r}, before the end of the response")
        return line

    def _exactly(self, size: int) -> bytes:
        content = self._reader.read(size)
        if len(content) < size:
            raise ConnectionError(f"closed after {len(content)} of {size} bytes of a body")
        return content
