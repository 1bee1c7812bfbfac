"""Answers: JSON, a message, or several of them. A client that does not read on is cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from wsrm_mq.parts import content_type, new_boundary, written

PIECE: Final = 64 * 1024
"""The bytes that are written at a time."""


class CutOff(Exception):
    """A client does not read its answer."""


class Pieces(Response):
    """An answer in pieces, none of which is copied as a whole. ``pause_seconds``: so long its client may pause."""

    def __init__(self, status: int, headers: Mapping[str, str], pieces: Sequence[bytes], pause_seconds: float) -> None:
        self.status_code = status
        self.background = None
        self._pieces = pieces
        self._pause = pause_seconds
        self.init_headers({**headers, "Content-Length": str(sum(map(len, pieces)))})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        waiting = bytearray()
        for piece in self._pieces:
            for at in range(0, len(piece), PIECE):
                waiting += memoryview(piece)[at : at + PIECE]
                if len(waiting) >= PIECE:
                    await self._send(send, bytes(waiting), more=True)
                    waiting.clear()
        await self._send(send, bytes(waiting), more=False)

    async def _send(self, send: Send, piece: bytes, *, more: bool) -> None:
        try:
            async with asyncio.timeout(self._pause):
                await send({"type": "http.response.body", "body": piece, "more_body": more})
        except TimeoutError:
            raise CutOff from None


def as_json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def one(headers: Mapping[str, str], body: bytes, pause_seconds: float) -> Response:
    """A message by itself."""
    return Pieces(200, headers, [body], pause_seconds)


def several(messages: Sequence[tuple[Mapping[str, str], bytes]], pause_seconds: float) -> Response:
    """Messages together."""
    boundary = new_boundary()
    pieces = list(written(boundary, messages))
    return Pieces(200, {"Content-Type": content_type(boundary)}, pieces, pause_seconds)


def nothing() -> Response:
    return Response(status_code=204)
