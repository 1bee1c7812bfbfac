"""An RM Source: what it has sent, what it was told, and what it sends next."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Final

from tests.simulator.oracle import Oracle, Truth
from tests.simulator.policies import policy_of, wants_reply
from tests.simulator.process import Process
from wsrm_mq.queue.arrival import Arrival, Body, CreateReceipt, EndReceipt, MessageReceipt, Sender
from wsrm_mq.queue.creation import create
from wsrm_mq.queue.lifecycle import lifecycle
from wsrm_mq.queue.policy import Acknowledge
from wsrm_mq.queue.settle import Settlement
from wsrm_mq.sequence.elements import (
    CloseSequence,
    CreateSequence,
    SequenceAcknowledgement,
    SequenceHeader,
    TerminateSequence,
)
from wsrm_mq.sequence.states import Act
from wsrm_mq.versions import WSA_2005, WSRM_1_1, SOAPVersion

QUEUE: Final = "orders"
HIGHEST: Final = 10
"""The highest number that a partner sends."""
MOST_SEQUENCES: Final = 4
Arrived = Callable[[int, str, int, bytes, bool], None]
"""``arrived(position, sequence, number, body, is_two_way)``."""
_LOSS: Final = 0.06
"""How often a message is lost on its way, and how often an answer is."""


class Partner:
    def __init__(
        self,
        name: str,
        oracle: Oracle,
        counts: Counter[str],
        disorder: float,
        arrived: Arrived = lambda *_: None,
    ) -> None:
        """``disorder``: how often a message is sent before, or long after, its turn. ``arrived`` is told of each that
        is stored."""
        self.name = name
        self.identifier: str | None = None
        self.sent: set[int] = set()
        self.acknowledged: set[int] = set()
        self.is_over = False
        self.process: Process | None = None
        """The one that it has sent to last."""
        self.unanswered = 0
        """How many of its messages have no answer yet."""
        self.policy = policy_of(name)
        self._disorder = disorder
        self._oracle = oracle
        self._counts = counts
        self._arrived = arrived
        self._sender = Sender(QUEUE, WSRM_1_1, SOAPVersion.SOAP_1_1, WSA_2005, peer="192.0.2.1", partner=name)

    @property
    def unacknowledged(self) -> list[int]:
        return sorted(self.sent - self.acknowledged)

    @property
    def missing(self) -> list[int]:
        """Numbers below the highest that were never sent."""
        return [number for number in range(1, max(self.sent, default=0)) if number not in self.sent]

    # what it sends

    def send_something(self, process: Process, draw: random.Random) -> bool:
        """To this process; ``False``: it has nothing to send."""
        if self.identifier is None or (self.is_over and draw.random() < 0.3):
            return self.create(process)
        number = min(self._next_number(draw), HIGHEST)
        self._counts["messages repeated"] += number in self.sent
        if draw.random() < _LOSS:
            self._counts["messages lost"] += 1
            self.sent.add(number)
        else:
            self.send(process, number, is_heard=draw.random() >= _LOSS)
        return True

    def _next_number(self, draw: random.Random) -> int:
        highest = max(self.sent, default=0)
        way = draw.random()
        if self.unacknowledged and way < 0.25:
            return draw.choice(self.unacknowledged)
        if self.sent and way < 0.33:
            return draw.choice(sorted(self.sent))
        if draw.random() >= self._disorder:
            return highest + 1
        return draw.choice([*self.missing, highest + 2, highest + 3])

    def send(self, process: Process, number: int, *, is_heard: bool = True) -> None:
        """``is_heard``: the answer arrives."""
        identifier = self.identifier
        assert identifier is not None
        self.sent.add(number)
        self.unanswered += 1
        is_two_way = wants_reply(self.name, number)
        waits = is_two_way or self.policy.acknowledge is Acknowledge.DELIVERED
        body = b"<Envelope>%d</Envelope>" % number
        arrival = Arrival(
            sender=self._sender,
            header=SequenceHeader(identifier, number),
            message_id=f"urn:message:{number}",
            action="urn:put",
            environ="{}",
            connection=None,
            body=Body(body),
            policy=self.policy,
            wants_reply=is_two_way,
            named=not waits,
            waits=waits,
        )

        def answered(receipt: MessageReceipt, settled: Settlement | None) -> None:
            self.unanswered -= 1
            if not is_heard:
                self._counts["answers lost"] += 1
                return
            if receipt.fault is None and waits and settled is None and not receipt.settled:
                return  # an empty 202
            said = receipt.acknowledgement if settled is None else settled.acknowledgement
            self._told(identifier, said, is_over=receipt.fault is not None)

        def is_stored(receipt: MessageReceipt) -> None:
            if receipt.act is Act.ACCEPT:
                self._oracle.truths[identifier].accepted.add(number)
                assert receipt.position is not None
                self._arrived(receipt.position, identifier, number, body, is_two_way)

        process.message(arrival, answered, is_stored)

    def create(self, process: Process) -> bool:
        if len(self._oracle.truths) >= MOST_SEQUENCES:
            return False

        def answered(receipt: CreateReceipt) -> None:
            assert receipt.created is not None
            self.identifier = receipt.created.terms.identifier
            self.sent, self.acknowledged, self.is_over = set(), set(), False

        def is_stored(receipt: CreateReceipt) -> None:
            assert receipt.created is not None, receipt.fault
            identifier = receipt.created.terms.identifier
            self._oracle.truths[identifier] = Truth(identifier, self.policy, self.name)

        wanted = CreateSequence(None, None, None)
        process.submit(lambda tx: create(tx, self._sender, wanted, None, self.policy), answered, is_stored)
        return True

    @property
    def may_end(self) -> bool:
        return self.identifier is not None and not self.is_over and bool(self.sent)

    def end(self, process: Process, draw: random.Random) -> None:
        """Close or terminate its sequence; the last number that it says may be one that never came."""
        identifier = self.identifier
        assert identifier is not None
        last = draw.choice([None, max(self.sent), max(self.sent) + 1])
        element = draw.choice([TerminateSequence, CloseSequence])(identifier, last)
        self.is_over = self.is_over or isinstance(element, TerminateSequence)

        def answered(receipt: EndReceipt) -> None:
            self._told(identifier, receipt.acknowledgement, is_over=True)

        process.submit(lambda tx: lifecycle(tx, self._sender, element, self.policy), answered)

    # what it is told

    def _told(self, identifier: str, said: SequenceAcknowledgement | None, *, is_over: bool) -> None:
        if said is not None:
            numbers = {number for lower, upper in said.ranges for number in range(lower, upper + 1)}
            self._oracle.acknowledged(identifier, numbers)
            if self.identifier == identifier:
                self.acknowledged |= numbers
        if is_over and self.identifier == identifier:
            self.is_over = True
