"""The demo's partner: an RM Source on a bad line, which sends messages again until they are acknowledged."""

from __future__ import annotations

import threading
from typing import Final

from wsrm_mq.demo.server import DemoFailed
from wsrm_mq.testing import (
    EnvelopeFactory,
    HTTPAnswer,
    HTTPWire,
    Line,
    LossyWire,
    Refused,
    RMSender,
    shuffled_windows,
)

RESEND: Final = 0.5
"""Seconds after which a message that is not acknowledged is sent again."""
PACE: Final = 0.03
"""Seconds between two messages of a connection, for the eye: without it all would be sent before much is done."""
WINDOW: Final = 24
"""Within so many the messages are shuffled."""

_ORDER: Final = '<o:put_order xmlns:o="urn:example:orders"><o:n>{n}</o:n><o:text>order {n}</o:text></o:put_order>'
_ENVELOPES: Final = EnvelopeFactory()


def _order(identifier: str, number: int) -> bytes:
    return _ENVELOPES.message(identifier, number, _ORDER.format(n=number), action="urn:example:orders/put_order")


class Source:
    """Sends ``messages`` orders in one sequence over several keep-alive connections, a thread each."""

    def __init__(self, port: int, messages: int, connections: int, line: Line) -> None:
        self.messages = messages
        self.traffic = line.traffic
        self._connections = connections
        self._seed = line.seed
        self.sender = RMSender(
            lambda: LossyWire(HTTPWire(port, "/orders", timeout=10), line), _ENVELOPES, write=_order, identifier=""
        )
        self._stop = threading.Event()
        self._refused: Refused | None = None
        self._thread = threading.Thread(target=self._send, daemon=True)

    @property
    def is_done(self) -> bool:
        """Everything is acknowledged. Raises ``DemoFailed`` if the sequence was ended by a fault."""
        if self._refused is not None:
            raise DemoFailed(f"The service answered a fault: {self._refused}")
        return len(self.sender.acknowledged) == self.messages

    def create(self) -> None:
        try:
            self.sender.create()
        except (OSError, Refused) as error:
            raise DemoFailed(f"The sequence was not created: {error}") from error

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Send nothing more, after the messages that are on their way."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=15)
        self.sender.disconnect()

    def close_and_terminate(self) -> None:
        """Raises ``DemoFailed`` if the final acknowledgement does not name every message.

        Nothing may be sent any more: a message after the end would be of an unknown sequence.
        """
        self.stop()
        try:
            final: HTTPAnswer = self.sender.checked(self.sender.close(self.messages))
            if [ack.ranges for ack in final.reply.acks if ack.final] != [((1, self.messages),)]:
                raise DemoFailed(f"The final acknowledgement is {final.reply.acks}.")
            self.sender.checked(self.sender.terminate(self.messages))
        except (OSError, Refused) as error:
            raise DemoFailed(f"The sequence was not ended: {error}") from error

    def _send(self) -> None:
        numbers = shuffled_windows(self.messages, WINDOW, self._seed, twice=0)
        try:
            self.sender.send_all(numbers, connections=self._connections, resend=RESEND, pace=PACE, stop=self._stop)
        except Refused as error:
            self._refused = error
