"""An RM Source at the level of bytes: one connection to an orders server, in one combination of versions.

The envelopes are those of ``wsrm_mq.testing``; what the server did is read from its answers, from the service's
own database and from the store.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from wsrm_mq.testing import HTTPAnswer, HTTPWire
from wsrm_mq.versions import WSA_2004, WSA_2005, WSRM_1_0, WSRM_1_1, SOAPVersion

from .orders import Orders
from .orders_server import OrdersServer, within
from .stored import Stored

OPPOSITES: Final = ((WSRM_1_0, SOAPVersion.SOAP_1_1, WSA_2004), (WSRM_1_1, SOAPVersion.SOAP_1_2, WSA_2005))
"""Two combinations in which each version has its turn: what holds in both is repeated in the others at length."""


def combination(*versions: Any) -> Any:
    """The parameters ``rm``, ``soap`` and ``addressing``."""
    rm, soap, addressing = versions
    id = f"rm{rm.label}-soap{soap.label}-wsa{addressing.label[:4]}"
    return pytest.param(*versions, id=id, marks=() if versions in OPPOSITES else pytest.mark.long)


_COMBINATIONS: Final = [
    combination(rm, soap, addressing)
    for rm, addressing in ((WSRM_1_0, WSA_2004), (WSRM_1_0, WSA_2005), (WSRM_1_1, WSA_2005))
    for soap in SOAPVersion
]
_NAMES: Final = ("rm", "soap", "addressing")


def _where(rm: object) -> Any:
    return pytest.mark.parametrize(_NAMES, [each for each in _COMBINATIONS if rm in (None, each.values[0])])


every_version: Final = _where(None)
"""Run a test that takes the fixture ``source`` or ``speak`` in every combination that goes together: in ``OPPOSITES``,
and at length in the others."""
in_1_0: Final = _where(WSRM_1_0)
in_1_1: Final = _where(WSRM_1_1)
each_rm: Final = pytest.mark.parametrize(_NAMES, OPPOSITES, ids=["rm1.0", "rm1.1"])
"""Each RM version once, for what depends on nothing else."""
each_rm_at_length: Final = pytest.mark.parametrize(
    _NAMES,
    [pytest.param(*OPPOSITES[0], id="rm1.0", marks=pytest.mark.long), pytest.param(*OPPOSITES[1], id="rm1.1")],
)
"""The same for what takes seconds: in RM 1.0 at length."""
in_one_version: Final = pytest.mark.parametrize(
    _NAMES, [pytest.param(WSRM_1_1, SOAPVersion.SOAP_1_2, WSA_2005, id="rm1.1-soap1.2")]
)
"""For what comes before any version: HTTP and XML."""


class Source:
    """One connection, any number of sequences. ``speak`` writes what the methods here do not; ``fields`` are header
    lines of every request."""

    def __init__(
        self, server: OrdersServer, speak: Orders, path: str | None = None, *, fields: tuple[str, ...] = ()
    ) -> None:
        self.server = server
        self.fields = fields
        self.speak = speak.having(path=path) if path else speak
        self.store = Stored(server.store)
        self.wire = HTTPWire(server.port)

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.wire.close()

    # requests

    def request(self, envelope: bytes, *lines: str, content_type: str | None = None) -> bytes:
        """A whole HTTP request, as ``Orders.request`` writes it."""
        return self.speak.request(envelope, *self.fields, *lines, content_type=content_type)

    def post(self, envelope: bytes, *lines: str, content_type: str | None = None) -> HTTPAnswer:
        return self.wire.ask(self.request(envelope, *lines, content_type=content_type))

    def create(self, **options: Any) -> str:
        """Create a sequence, as ``EnvelopeFactory.create_sequence`` writes it; its Identifier."""
        answer = self.post(self.speak.create_sequence(**options))
        created = answer.reply.created
        assert created is not None, answer.body
        return created.identifier

    def opened(self, *numbers: int) -> str:
        """A new sequence in which the server has accepted ``numbers``; its Identifier."""
        identifier = self.create()
        for number in numbers:
            assert self.put(identifier, number).status == 200
        return identifier

    def put(self, identifier: str | None, number: Any, text: str = "", **options: Any) -> HTTPAnswer:
        """Send a one-way order in a sequence."""
        return self.post(self.speak.put(identifier, number, text, **options))

    def echo(self, identifier: str, number: Any, text: str, **options: Any) -> HTTPAnswer:
        """Send a two-way request in a sequence."""
        return self.post(self.speak.echo(identifier, number, text, **options))

    def put_plain(self, n: int, text: str = "", **options: Any) -> HTTPAnswer:
        """Send a one-way order without WS-RM."""
        return self.post(self.speak.put_plain(n, text, **options))

    def ask(self, *identifiers: str, **options: Any) -> HTTPAnswer:
        """Send AckRequested by itself."""
        return self.post(self.speak.ack_requested(*identifiers, **options))

    def close(self, identifier: str, last: int | None = None, **options: Any) -> HTTPAnswer:
        return self.post(self.speak.close(identifier, last, **options))

    def terminate(self, identifier: str, last: int | None = None, **options: Any) -> HTTPAnswer:
        return self.post(self.speak.terminate(identifier, last, **options))

    def send(self, envelope: bytes) -> None:
        """Send it and do not wait for the answer: ``wire.read`` has it later."""
        self.wire.send(self.request(envelope))

    def reconnect(self) -> None:
        """A new connection, after the server was started anew."""
        self.wire.close()
        self.wire = HTTPWire(self.server.port)

    # what the server did

    def delivered(self, identifier: str) -> list[int]:
        """The orders of a sequence whose operation ended, in that order, once nothing more can be delivered."""
        assert within(30, lambda: self.store.unsettled(identifier), lambda left: left == 0) == 0
        return [n for (n,) in self._service("effects", "n", identifier)]

    def soon(self, identifier: str, wanted: list[int]) -> list[int]:
        """The same, at the latest after 20 seconds: for what is settled before its operation ends."""

        def seen() -> list[int]:
            return [n for (n,) in self._service("effects", "n", identifier)]

        return within(20, seen, lambda numbers: numbers == wanted)

    def texts(self, identifier: str) -> list[str]:
        """The same orders' texts."""
        self.delivered(identifier)
        return [text for (text,) in self._service("effects", "text", identifier)]

    def calls(self, identifier: str) -> list[int]:
        """The message numbers of a sequence for which an operation began, each time it began."""
        return [number for (number,) in self._service("calls", "number", identifier)]

    def _service(self, table: str, column: str, identifier: str) -> list[tuple[Any, ...]]:
        return self.server.rows(f"select {column} from {table} where sequence = ? order by rowid", identifier)


def good_exchange(server: OrdersServer, speak: Orders) -> None:
    """The server is well: a new sequence on a new connection takes a message, delivers it and ends."""
    with Source(server, speak) as source:
        identifier = source.create()
        assert source.put(identifier, 1).reply.ack.ranges == ((1, 1),)
        assert source.delivered(identifier) == [1]
        assert source.terminate(identifier, 1 if speak.rm.has_close else None).status in (200, 202)
