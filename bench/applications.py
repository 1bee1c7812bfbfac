"""The application of every case: it reads the request and does nothing, or sleeps; and it knows what it has seen."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from bench.messages import FACTORY

__all__ = ["ASGIApplication", "Account", "Environ", "WSGIApplication", "asgi_null", "live", "wsgi_null"]

Environ = dict[str, Any]
WSGIApplication = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]
ASGIApplication = Callable[[Any, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]]

_TYPE: Final = FACTORY.content_type


class Account:
    """When the application was called, and whether in order. Times are CLOCK_MONOTONIC, ns."""

    def __init__(self, stop_at: int | None = None) -> None:
        self._stop_at = stop_at
        self._count = itertools.count(1)
        self._last_numbers: dict[str, int] = {}
        self.calls = 0
        self.first_calls: dict[str, list[int]] = {}
        """When numbers 1 and 2 of each sequence came, of the first sequences."""
        self.last_call = 0
        self.out_of_order = 0

    def note(self, request: Mapping[str, Any]) -> None:
        """``request`` is an environ or a scope. Stays for ever in the call that is to be the last. Who asks for a WSDL
        brings no message."""
        if "GET" in (request.get("REQUEST_METHOD"), request.get("method")):
            return
        now = time.monotonic_ns()
        self.calls = next(self._count)
        identifier = request.get("wsrm.sequence_id")
        if identifier is not None:
            number = request["wsrm.message_number"]
            self.out_of_order += number != self._last_numbers.get(identifier, 0) + 1
            self._last_numbers[identifier] = number
            if number <= 2 and len(self.first_calls) < 100:
                self.first_calls.setdefault(identifier, []).append(now)
        if self.calls == self._stop_at:
            threading.Event().wait()

    def done(self) -> None:
        self.last_call = time.monotonic_ns()

    def state(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}


def wsgi_null(account: Account, answer: bytes, sleep: float = 0.0) -> WSGIApplication:
    headers = [("Content-Type", _TYPE), ("Content-Length", str(len(answer)))]

    def application(environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        account.note(environ)
        environ["wsgi.input"].read()
        if sleep:
            time.sleep(sleep)
        account.done()
        start_response("200 OK", headers)
        return [answer]

    return application


def asgi_null(account: Account, answer: bytes, sleep: float = 0.0) -> ASGIApplication:
    headers = [(b"content-type", _TYPE.encode()), (b"content-length", b"%d" % len(answer))]

    async def application(scope: Any, receive: Callable[[], Awaitable[Any]], send: Any) -> None:
        if scope["type"] == "lifespan":
            await live(receive, send)
            return
        account.note(scope)
        while (await receive()).get("more_body"):
            pass
        if sleep:
            await asyncio.sleep(sleep)
        account.done()
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    return application


async def live(receive: Callable[[], Awaitable[Any]], send: Any) -> None:
    for _ in range(2):
        event = (await receive())["type"]
        await send({"type": f"{event}.complete"})
