"""An RM Destination that stores nothing: it answers each request with an acknowledgement of all that has come. It may
stand behind a network of its own, which is slow, and loses messages.

    python -m bench.source_peer [--rtt MS] [--loss SHARE]

A third of what is lost never arrives, and a third is answered and the answer lost: the connection ends. The last
third a proxy takes, says so (202), and loses. Prints its port as JSON; what it has counted is
answered to a GET, and a POST to /down leaves it deaf for so many seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
from typing import Any, Final

from wsrm_mq.sequence.ranges import EMPTY, AckRanges

_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_NUMBER: Final = re.compile(rb"MessageNumber>(\d+)<")
_IDENTIFIER: Final = re.compile(rb"Identifier[^>]*>([^<]+)<")
_MESSAGE_ID: Final = re.compile(rb"MessageID[^>]*>([^<]+)<")
_RM: Final = "http://docs.oasis-open.org/ws-rx/wsrm/200702"
_ENVELOPE: Final = (
    '<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/" xmlns:a="http://www.w3.org/2005/08/addressing" '
    f'xmlns:r="{_RM}"><s:Header>{{}}</s:Header><s:Body>{{}}</s:Body></s:Envelope>'
)
_HEAD: Final = "HTTP/1.1 {}\r\nContent-Type: text/xml\r\nContent-Length: {}\r\n\r\n"


class Destination:
    """The sequences that it has, and what it has counted. One begins with its first message."""

    def __init__(self, rtt: float, loss: float) -> None:
        self._rtt = rtt
        self._loss = loss
        self._received: dict[str, AckRanges] = {}
        self._created = 0
        self._random = random.Random(1)
        self._deaf_until = 0.0
        self.came = 0
        """Messages that have come, however often each."""

    async def answer(self, request: bytes, body: bytes) -> bytes | None:
        """The answer to a request; ``None``: there is none, and the connection ends."""
        loop = asyncio.get_running_loop()
        if request.startswith(b"GET"):
            numbers = sum(one.count() for one in self._received.values())
            return _http("200 OK", json.dumps({"came": self.came, "numbers": numbers}))
        if request.startswith(b"POST /down"):
            self._deaf_until = loop.time() + float(body)
            return _http("200 OK", "")
        if loop.time() < self._deaf_until:
            return None
        if self._rtt:
            await asyncio.sleep(self._rtt * self._random.uniform(0.75, 1.25))
        number = _NUMBER.search(body)
        lost = self._random.randrange(3) if number and self._random.random() < self._loss else None
        if lost == 0:
            return None
        if lost == 2:
            return _http("202 Accepted", "")
        said = self._said(body, None if number is None else int(number[1]))
        return None if lost == 1 else said

    def _said(self, body: bytes, number: int | None) -> bytes:
        named = _IDENTIFIER.search(body)
        if number is None or named is None:
            self._created += 1
            return _http(
                "200 OK", _lifecycle(body, f"urn:bench:{self._created}" if named is None else named[1].decode())
            )
        self.came += 1
        identifier = named[1].decode()
        received = self._received[identifier] = self._received.get(identifier, EMPTY).add(number)
        said = f"<r:Identifier>{identifier}</r:Identifier>{_ranges(received)}"
        action = f"<a:Action>{_RM}/SequenceAcknowledgement</a:Action>"
        header = f"{action}<r:SequenceAcknowledgement>{said}</r:SequenceAcknowledgement>"
        return _http("200 OK", _ENVELOPE.format(header, ""))


def _ranges(ranges: AckRanges) -> str:
    said = "".join(f'<r:AcknowledgementRange Lower="{lower}" Upper="{upper}"/>' for lower, upper in ranges)
    return said or "<r:None/>"


def _lifecycle(body: bytes, identifier: str) -> str:
    asked = next(name for name in ("CreateSequence", "CloseSequence", "TerminateSequence") if name.encode() in body)
    message_id = _MESSAGE_ID.search(body)
    relates_to = "" if message_id is None else f"<a:RelatesTo>{message_id[1].decode()}</a:RelatesTo>"
    response = f"<r:{asked}Response><r:Identifier>{identifier}</r:Identifier></r:{asked}Response>"
    return _ENVELOPE.format(f"<a:Action>{_RM}/{asked}Response</a:Action>{relates_to}", response)


def _http(status: str, content: str) -> bytes:
    return f"{_HEAD.format(status, len(content))}{content}".encode()


async def _serve(destination: Destination) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                request = await reader.readuntil(b"\r\n\r\n")
                length = _LENGTH.search(request)
                body = await reader.readexactly(int(length[1])) if length else b""
                answer = await destination.answer(request, body)
                if answer is None:
                    return
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    server: Any = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await server.serve_forever()


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m bench.source_peer")
    options.add_argument("--rtt", type=float, default=0.0, help="ms for each exchange, give or take a quarter")
    options.add_argument("--loss", type=float, default=0.0, help="share of messages that are lost, 0 to 1")
    chosen = options.parse_args()
    asyncio.run(_serve(Destination(chosen.rtt / 1_000, chosen.loss)))


if __name__ == "__main__":
    main()
