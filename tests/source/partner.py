"""The RM Destination of a partner, by the bytes that it gets and answers: it stands where the wire would be."""

from __future__ import annotations

import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final

from wsrm_mq.envelope.fault import fault
from wsrm_mq.envelope.render import create_sequence_response, ending, sequence_acknowledgement
from wsrm_mq.errors import NotAnswered
from wsrm_mq.outbound.posting import Answer
from wsrm_mq.sequence.elements import CloseSequence, SequenceAcknowledgement, TerminateSequence
from wsrm_mq.sequence.faults import Fault
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.testing import EnvelopeFactory, Reply

THERE: Final = "http://partner.example/orders"
ACTION: Final = "urn:example:orders/put"
LOST: Final = NotAnswered(f"{THERE}: the line broke")
"""In place of an answer: nothing of it comes."""
Said = bytes | Answer | Exception | None


class Partner:
    """A destination that names sequences ``urn:there:1``, …, acknowledges all that it gets, and remembers it.
    ``says`` answers in its place where it answers something; ``takes`` tells whether it takes a message."""

    def __init__(self, speak: EnvelopeFactory) -> None:
        self.speak = speak
        self.bodies: list[bytes] = []
        self.received: list[Reply] = []
        self.numbers: dict[str, set[int]] = defaultdict(set)
        self.says: Callable[[Reply], Said] = lambda _received: None
        self.takes: Callable[[Reply], bool] = lambda _received: True
        self.expires: int | None = None
        self._names = (f"urn:there:{number}" for number in itertools.count(1))
        self._created: dict[str, str] = {}
        self._lock = threading.Lock()

    def post(self, _url: str, headers: Mapping[str, str], body: bytes, who: str | None = None) -> Answer:
        received = Reply.parse(body)
        with self._lock:
            self.bodies.append(body)
            self.received.append(received)
            said = self.says(received)
            if isinstance(said, Exception):
                raise said
            if isinstance(said, Answer):
                return said
            content = said or self.answer(received)
        return self.answered(200 if content else 202, content)

    def answered(self, status: int, content: bytes = b"", **headers: str) -> Answer:
        fields = {"Content-Type": self.speak.soap.media_type if content else "text/plain", **headers}
        return Answer(status, "", list(fields.items()), content)

    def answer(self, received: Reply) -> bytes:
        """What a destination answers."""
        rm, versions = self.speak.rm, (self.speak.soap, self.speak.addressing, self.speak.rm)
        local = (received.action or "").removeprefix(f"{rm.namespace}/")
        if local == "CreateSequence":
            name = self._created.setdefault(received.message_id or "", "") or next(self._names)
            self._created[received.message_id or ""] = name
            return create_sequence_response(*versions, received.message_id, name, expires=self.expires)
        if local == "AckRequested":
            return self.acknowledging(*self.numbers)
        if received.sequence is not None:
            if self.takes(received):
                self.numbers[received.sequence.identifier].add(received.sequence.number)
            return self.acknowledging(received.sequence.identifier)
        identifier = text(received, "Identifier")
        element = (CloseSequence if local == "CloseSequence" else TerminateSequence)(identifier)
        if not rm.has_close:
            return b""
        return ending(*versions, received.message_id, element, [self.ack(identifier, final=True)], is_response=True)

    def ack(self, identifier: str, *, final: bool = False) -> SequenceAcknowledgement:
        return SequenceAcknowledgement(identifier, AckRanges.of(self.numbers[identifier]).ranges, final=final)

    def acknowledging(self, *identifiers: str) -> bytes:
        versions = (self.speak.soap, self.speak.addressing, self.speak.rm)
        return sequence_acknowledgement(*versions, [self.ack(one) for one in identifiers])

    def saying_ack(self, identifier: str, *ranges: tuple[int, int], **said: Any) -> bytes:
        """An acknowledgement of whatever it is told."""
        return self.speak.acknowledgement(identifier, *ranges, **said)

    def fault(self, what: Fault, status: int = 500) -> Answer:
        return self.answered(status, fault(what, self.speak.soap, self.speak.addressing, self.speak.rm, None))

    # what it got

    def saying(self, local: str) -> list[Reply]:
        """What came under the Action of WS-RM that ends so."""
        return [one for one in self.received if one.action == self.speak.rm.action(local)]

    @property
    def places(self) -> list[tuple[str, int]]:
        """Sequence and number of each message, in the order in which they came."""
        return [one.sequence[:2] for one in self.received if one.sequence is not None]

    def texts(self) -> list[str]:
        """The texts of the orders that it got, once each, in the order of sequences and numbers."""
        found = {one.sequence[:2]: one for one in self.received if one.sequence is not None and one.body is not None}
        return [(one.body.text or "") for _place, one in sorted(found.items())]

    def within(self, look: Callable[[], object], seconds: float = 5) -> bool:
        """Whether it becomes true in time."""
        end = time.monotonic() + seconds
        while not look():
            if time.monotonic() > end:
                return False
            time.sleep(0.005)
        return True


def text(received: Reply, local: str) -> str:
    """The text of a child of the body."""
    found = received.body.find(f"{{*}}{local}")
    return "" if found is None else found.text or ""


def envelope(speak: EnvelopeFactory, what: str = "two seats") -> bytes:
    """A request as a program writes it, without any header."""
    soap = speak.soap.namespace
    body = f'<p:put xmlns:p="urn:example:orders">{what}</p:put>'
    return f'<s:Envelope xmlns:s="{soap}"><s:Body>{body}</s:Body></s:Envelope>'.encode()
