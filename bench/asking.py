"""Single requests to a server that is measured, outside of the load."""

from __future__ import annotations

import http.client

from bench import messages

__all__ = ["create_sequence", "request"]


def create_sequence(port: int) -> str:
    """Its identifier."""
    return messages.identifier_in(request(port, "POST", "/orders", messages.create_sequence()))


def request(port: int, method: str, path: str, envelope: bytes | None = None) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=3_600)
    try:
        connection.request(method, path, envelope, {"Content-Type": messages.FACTORY.content_type} if envelope else {})
        response = connection.getresponse()
        answer = response.read()
    finally:
        connection.close()
    if response.status != 200:
        raise RuntimeError(f"{method} {path}: {response.status} {answer[:500]!r}")
    return answer
