"""Clients that behave badly in every way that HTTP lets them, and let nothing go before it is acknowledged."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from tests.support.orders import Listening, Orders, OrderSender
from wsrm_mq.testing import HTTPWire, Refused, Unacknowledged, shuffled_windows

PATIENCE_SECONDS = 120.0
"""For one acknowledgement, while servers die and start."""


ORDERS = Orders()

WISHES = (("", 1200), ("fail=1", 12), ("fail=4", 1), ("fail=999", 1), ("sleep=0.3", 8))
LASTING = ("fail=4", "fail=999")
"""What fails so often is blocked: the ladder has fewer steps."""


class Client:
    """Sends sequence after sequence until it is told to stop, finishes the one it is at, and remembers what it was
    told. Its choices depend on ``seed`` alone."""

    def __init__(
        self, server: Listening, seed: str, over: threading.Event, orders: Orders = ORDERS, *, may_fail: bool = True
    ) -> None:
        """``may_fail``: some of what it sends tells the service to fail."""
        self._server = server
        self._orders = orders
        self._wishes = WISHES if may_fail else WISHES[:1]
        self._chance = random.Random(seed)
        self._over = over
        self.sources: list[OrderSender] = []
        """One for each sequence."""
        self.trouble: list[str] = []
        self.made_to_fail: set[tuple[str, int]] = set()
        """Sequence and number of what the service was told to fail oftener than the ladder has steps."""
        self._gaps: set[str] = set()
        """Sequences of which a number is never sent."""

    def run(self) -> None:
        while not self._over.is_set():
            try:
                self._sequence()
            except OSError:  # nothing listens: the sequence could not be created
                time.sleep(0.1)
            except (Refused, Unacknowledged) as error:
                self.trouble.append(f"{type(error).__name__}: {error}")

    def _sequence(self) -> None:
        source = OrderSender(self._server, self._orders, write=self._order)
        self.sources.append(source)
        chance = self._chance
        length = chance.randint(5, 120)
        in_order, leaves_gap = chance.random() < 0.4, chance.random() < 0.1
        missing = chance.randint(2, length) if leaves_gap else 0
        if leaves_gap:  # nothing that is asked behind it has an answer before the end
            self._gaps.add(source.identifier)
        plan = range(1, length + 1) if in_order else shuffled_windows(length, 12, chance.randrange(2**32))
        sent: set[int] = set()
        for number in plan:
            if self._over.is_set():
                break
            if number == missing:
                continue
            self._send(source, number)
            sent.add(number)
        for number in sorted(sent if leaves_gap else range(1, max(sent, default=0) + 1)):
            source.send_until_acknowledged(number, seconds=PATIENCE_SECONDS)
        if leaves_gap or chance.random() < 0.5:
            self._end(source, max(sent, default=None))
        source.disconnect()

    def _send(self, source: OrderSender, number: int) -> None:
        """Send it in some way; it may not arrive, and its answer may not come."""
        ways: list[tuple[Callable[[OrderSender, bytes], None], int]] = [
            (self._properly, 80),
            (self._without_reading, 5),
            (self._half, 4),
            (self._in_pieces, 3),
            (self._and_close, 5),
            (self._twice, 5),
        ]
        [way] = self._chance.choices([way for way, _ in ways], [weight for _, weight in ways])
        try:
            way(source, source.message(number))
        except OSError:
            source.disconnect()
            time.sleep(0.02)

    def _order(self, identifier: str, number: int) -> bytes:
        """The same operation each time it is sent."""
        fixed = random.Random(f"{identifier} {number}")
        if fixed.random() < 0.1 and identifier not in self._gaps:
            return self._orders.echo(identifier, number, f"t{number}")
        [wish] = fixed.choices([wish for wish, _ in self._wishes], [weight for _, weight in self._wishes])
        if wish in LASTING:
            self.made_to_fail.add((identifier, number))
        return self._orders.put(identifier, number, wish)

    def _end(self, source: OrderSender, last: int | None) -> None:
        """Close or terminate it; what was acknowledged has to be delivered all the same. ``last`` is left out where
        the time was over before anything was sent."""
        end = self._chance.choice([source.close, source.terminate])
        give_up = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < give_up:
            with suppress(OSError):
                answer = end(last)
                if answer.status in (200, 202):
                    return
                if answer.status != 503:
                    source.checked(answer)
            time.sleep(0.05)
        raise Refused(f"{source.identifier} could not be ended in {PATIENCE_SECONDS:.0f} s")

    # ways

    def _properly(self, source: OrderSender, envelope: bytes) -> None:
        source.wire.send(source.orders.request(envelope))
        self._read(source, source.wire)

    def _without_reading(self, source: OrderSender, envelope: bytes) -> None:
        source.wire.send(source.orders.request(envelope))
        time.sleep(self._chance.choice([0, 0.01]))
        source.disconnect()

    def _half(self, source: OrderSender, envelope: bytes) -> None:
        request = source.orders.request(envelope)
        source.wire.send(request[: self._chance.randrange(1, len(request))])
        time.sleep(self._chance.choice([0, 0.05]))
        source.disconnect()

    def _in_pieces(self, source: OrderSender, envelope: bytes) -> None:
        request = source.orders.request(envelope)
        at = self._chance.randrange(1, len(request))
        for piece in (request[:at], request[at:]):
            source.wire.send(piece)
            time.sleep(0.05)
        self._read(source, source.wire)

    def _and_close(self, source: OrderSender, envelope: bytes) -> None:
        self._properly(source, envelope)
        source.disconnect()

    def _twice(self, source: OrderSender, envelope: bytes) -> None:
        """At once, on two connections: two workers, perhaps."""
        with HTTPWire(self._server.port) as other:
            other.send(source.orders.request(envelope))
            self._properly(source, envelope)
            self._read(source, other)

    def _read(self, source: OrderSender, wire: HTTPWire) -> None:
        answer = wire.read()
        source.hear(answer)
        source.checked(answer)
