"""The demo's partner: an RM Source on a bad line, which sends again whatever is not acknowledged."""

from __future__ import annotations

import enum
import threading
import time
from collections import deque
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from random import Random
from typing import Final

from wsrm_mq.demo.server import HOST, DemoFailed
from wsrm_mq.testing import EnvelopeFactory, Reply

__all__ = ["Line", "Source", "Traffic"]

RESEND: Final = 0.5
"""Seconds after which a message that is not acknowledged is sent again."""
PACE: Final = 0.03
"""Seconds between two messages of a connection, for the eye: without it all would be sent before much is done."""
WINDOW: Final = 48
"""How far above the lowest number not acknowledged one may be sent."""

_ORDER: Final = '<o:put_order xmlns:o="urn:example:orders"><o:n>{n}</o:n><o:text>order {n}</o:text></o:put_order>'


class Fate(enum.Enum):
    ARRIVES = enum.auto()
    REQUEST_LOST = enum.auto()
    """Half of it arrives and the connection breaks."""
    ANSWER_LOST = enum.auto()
    """The service has it, and the source does not know."""


@dataclass(frozen=True, slots=True)
class Line:
    """What a line does to transmissions; chances from 0 to 1. The same seed does the same to each of them."""

    loss: float
    duplicates: float
    seed: int

    def fate(self, number: int, transmission: int) -> Fate:
        random = self._random("loss", number, transmission)
        if random.random() >= self.loss:
            return Fate.ARRIVES
        return random.choice((Fate.REQUEST_LOST, Fate.ANSWER_LOST))

    def repeats(self, number: int, transmission: int) -> bool:
        return self._random("duplicate", number, transmission).random() < self.duplicates

    def _random(self, *parts: object) -> Random:
        return Random(f"{self.seed} {parts}")


@dataclass(slots=True)
class Traffic:
    """What went over the line."""

    transmissions: int = 0
    requests_lost: int = 0
    answers_lost: int = 0
    duplicates: int = 0
    """Repeated by the line; what the source sent again is no duplicate in this sense."""
    connections: int = 0


class Source:
    """Sends ``messages`` orders in one sequence over several keep-alive connections, a thread each."""

    def __init__(self, port: int, messages: int, connections: int, line: Line) -> None:
        self.messages = messages
        self.traffic = Traffic()
        self.acknowledged: set[int] = set()
        self.identifier = ""
        self._port = port
        self._line = line
        self._factory = EnvelopeFactory()
        self._random = Random(line.seed)
        self._lock = threading.Lock()
        self._due = dict.fromkeys(range(1, messages + 1), 0.0)
        self._transmissions = dict.fromkeys(self._due, 0)
        self._again: deque[int] = deque()
        self._stop = threading.Event()
        self._fault: str | None = None
        self._threads = [threading.Thread(target=self._send, daemon=True) for _ in range(connections)]

    @property
    def is_done(self) -> bool:
        """Everything is acknowledged. Raises ``DemoFailed`` if the sequence was ended by a fault."""
        if self._fault is not None:
            raise DemoFailed(f"The service answered a fault: {self._fault}")
        return len(self.acknowledged) == self.messages

    def create(self) -> None:
        created = self._ask(self._factory.create_sequence()).created
        if created is None:
            raise DemoFailed("The sequence was not created.")
        self.identifier = created.identifier

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Send nothing more; what is on its way arrives first."""
        self._stop.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout=15)

    def close_and_terminate(self) -> None:
        """Raises ``DemoFailed`` if the final acknowledgement does not name every message.

        Nothing may be sent any more: what came after the end would be of an unknown sequence.
        """
        self.stop()
        final = self._ask(self._factory.close(self.identifier, self.messages))
        if [ack.ranges for ack in final.acks if ack.final] != [((1, self.messages),)]:
            raise DemoFailed(f"The final acknowledgement is {final.acks}.")
        self._ask(self._factory.terminate(self.identifier, self.messages))

    # ---- messages

    def _send(self) -> None:
        connection = Connection(self._port, self._factory, self.traffic)
        while (number := self._next()) is not None:
            self._stop.wait(PACE)
            try:
                self._transmit(connection, number)
            except (OSError, HTTPException):  # nobody there, or killed while it answered
                connection.close()
                self._stop.wait(0.05)
        connection.close()

    def _next(self) -> int | None:
        """The number to send now, any within the window that is due; ``None`` once all is acknowledged."""
        while not self._stop.is_set():
            with self._lock:
                if self._again:
                    return self._again.popleft()
                missing = [number for number in self._due if number not in self.acknowledged]
                if not missing:
                    return None
                now = time.monotonic()
                due = [n for n in missing if n < missing[0] + WINDOW and self._due[n] <= now]
                if due:
                    number = self._random.choice(due)
                    self._due[number] = now + RESEND
                    return number
            self._stop.wait(0.01)
        return None

    def _transmit(self, connection: Connection, number: int) -> None:
        with self._lock:
            self._transmissions[number] += 1
            transmission = self._transmissions[number]
            self.traffic.transmissions += 1
            if self._line.repeats(number, transmission):
                self.traffic.duplicates += 1
                self._again.append(number)
        envelope = self._factory.message(
            self.identifier, number, _ORDER.format(n=number), action="urn:example:orders/put_order"
        )
        match self._line.fate(number, transmission):
            case Fate.REQUEST_LOST:
                self._count("requests_lost")
                connection.post_half(envelope)
            case Fate.ANSWER_LOST:
                connection.post(envelope)
                connection.close()
                self._count("answers_lost")
            case Fate.ARRIVES:
                self._hear(connection.post(envelope))

    def _hear(self, reply: Reply | None) -> None:
        if reply is None:
            return
        with self._lock:
            if reply.fault is not None:
                self._fault = f"{reply.fault.subcode or reply.fault.code}: {reply.fault.reason}"
                self._stop.set()
            for ack in reply.acks:
                for lower, upper in ack.ranges:
                    self.acknowledged.update(range(lower, upper + 1))

    def _count(self, what: str) -> None:
        with self._lock:
            setattr(self.traffic, what, getattr(self.traffic, what) + 1)

    def _ask(self, envelope: bytes) -> Reply:
        """Send a protocol message that has an answer, on a connection of its own."""
        connection = Connection(self._port, self._factory, self.traffic)
        try:
            reply = connection.post(envelope)
        except (OSError, HTTPException) as error:
            raise DemoFailed(f"The server does not answer: {error}") from error
        finally:
            connection.close()
        if reply is None or reply.fault is not None:
            raise DemoFailed(f"The service answered {reply.fault if reply else 'nothing'}.")
        return reply


class Connection:
    """A keep-alive connection; opened when it is needed, and again when it broke."""

    def __init__(self, port: int, factory: EnvelopeFactory, traffic: Traffic) -> None:
        self._http = HTTPConnection(HOST, port, timeout=10)
        self._content_type = factory.content_type
        self._traffic = traffic

    def post(self, envelope: bytes) -> Reply | None:
        """The envelope answered; ``None`` for an empty answer or an HTTP error without a fault."""
        self._begin(envelope)
        self._http.send(envelope)
        answer = self._http.getresponse()
        content = answer.read()
        is_soap = answer.headers.get_content_type() in ("text/xml", "application/soap+xml")
        return Reply.parse(content) if content and is_soap else None

    def post_half(self, envelope: bytes) -> None:
        self._begin(envelope)
        self._http.send(envelope[: len(envelope) // 2])
        self._http.close()

    def close(self) -> None:
        self._http.close()

    def _begin(self, envelope: bytes) -> None:
        if self._http.sock is None:
            self._http.connect()
            self._traffic.connections += 1
        self._http.putrequest("POST", "/orders")
        self._http.putheader("Content-Type", self._content_type)
        self._http.putheader("Content-Length", str(len(envelope)))
        self._http.endheaders()
