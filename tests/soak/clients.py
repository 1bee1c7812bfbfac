"""Clients that behave badly in every way that HTTP lets them, and let nothing go before it is acknowledged."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

from tests.crash.witness import Server, Source, shuffled_windows
from tests.support.raw import Wire

__all__ = ["Client"]

PATIENCE_SECONDS = 120.0
"""For one acknowledgement, while servers die and start."""


LASTING = ("fail=4", "fail=999")
"""What fails so often is blocked: the ladder has fewer steps."""


class Refused(Exception):
    """An answer that no honest client should get."""


class Client:
    """Sends sequence after sequence until it is told to stop, finishes the one it is at, and remembers what it was
    told. Its choices depend on ``seed`` alone."""

    def __init__(self, server: Server, seed: str, over: threading.Event) -> None:
        self._server = server
        self._chance = random.Random(seed)
        self._over = over
        self.sources: list[Source] = []
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
            except OSError:  # nobody listens: the sequence could not be created
                time.sleep(0.1)
            except (Refused, AssertionError, EOFError) as error:
                if not isinstance(error, EOFError):
                    self.trouble.append(f"{type(error).__name__}: {error}")

    def _sequence(self) -> None:
        source = Source(self._server)
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
            self._until_acknowledged(source, number)
        if leaves_gap or chance.random() < 0.5:
            self._end(source, max(sent, default=None))
        source.close()

    def _send(self, source: Source, number: int) -> None:
        """Send it in some way; it may not arrive, and its answer may not come."""
        ways: list[tuple[Callable[[Source, bytes], None], int]] = [
            (self._properly, 80),
            (self._without_reading, 5),
            (self._half, 4),
            (self._in_pieces, 3),
            (self._and_close, 5),
            (self._twice, 5),
        ]
        [way] = self._chance.choices([way for way, _ in ways], [weight for _, weight in ways])
        try:
            way(source, self._request(source, number))
        except (OSError, EOFError):
            source.close()
            time.sleep(0.02)

    def _request(self, source: Source, number: int) -> bytes:
        """The same message each time it is sent."""
        fixed = random.Random(f"{source.identifier} {number}")
        if fixed.random() < 0.1 and source.identifier not in self._gaps:
            return source.dialect.request(source.dialect.echo(source.identifier, number, f"t{number}"))
        wishes = [("", 1200), ("fail=1", 12), ("fail=4", 1), ("fail=999", 1), ("sleep=0.3", 8)]
        [wish] = fixed.choices([wish for wish, _ in wishes], [weight for _, weight in wishes])
        if wish in LASTING:
            self.made_to_fail.add((source.identifier, number))
        return source.dialect.request(source.dialect.put(source.identifier, number, wish))

    def _until_acknowledged(self, source: Source, number: int) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while number not in source.acknowledged:
            if time.monotonic() > end:
                raise Refused(f"{source.identifier} {number} was not acknowledged in {PATIENCE_SECONDS:.0f} s")
            try:
                self._properly(source, self._request(source, number))
            except (OSError, EOFError):
                source.close()
            if number not in source.acknowledged:
                time.sleep(0.05)

    def _end(self, source: Source, last: int | None) -> None:
        """Close or terminate it; what was acknowledged has to be delivered all the same. ``last`` is left out where
        the time was over before anything was sent."""
        dialect = source.dialect
        end = self._chance.choice([dialect.close, dialect.terminate])(source.identifier, last)
        give_up = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < give_up:
            try:
                answer = source.wire().ask(dialect.request(end))
            except (OSError, EOFError):
                source.close()
                answer = None
            if answer is not None and answer.status != 503:
                if answer.status not in (200, 202):
                    raise Refused(f"{source.identifier}: {answer.status} {answer.body[:1500]!r}")
                return
            time.sleep(0.05)
        raise Refused(f"{source.identifier} could not be ended in {PATIENCE_SECONDS:.0f} s")

    # ways

    def _properly(self, source: Source, request: bytes) -> None:
        wire = source.wire()
        wire.send(request)
        self._read(source, wire)

    def _without_reading(self, source: Source, request: bytes) -> None:
        source.wire().send(request)
        time.sleep(self._chance.choice([0, 0.01]))
        source.close()

    def _half(self, source: Source, request: bytes) -> None:
        source.wire().send(request[: self._chance.randrange(1, len(request))])
        time.sleep(self._chance.choice([0, 0.05]))
        source.close()

    def _in_pieces(self, source: Source, request: bytes) -> None:
        at = self._chance.randrange(1, len(request))
        wire = source.wire()
        for piece in (request[:at], request[at:]):
            wire.send(piece)
            time.sleep(0.05)
        self._read(source, wire)

    def _and_close(self, source: Source, request: bytes) -> None:
        self._properly(source, request)
        source.close()

    def _twice(self, source: Source, request: bytes) -> None:
        """At once, on two connections: two workers, perhaps."""
        with Wire(self._server.port) as other:
            other.send(request)
            self._properly(source, request)
            self._read(source, other)

    def _read(self, source: Source, wire: Wire) -> None:
        answer = wire.read()
        if answer.status not in (200, 202, 503):
            raise Refused(f"{source.identifier}: {answer.status} {answer.body[:1500]!r}")
        if answer.body and answer.status != 503 and answer.fault:
            raise Refused(f"{source.identifier}: {answer.body[:600]!r}")
        if answer.status != 503:
            source.hear(answer)
