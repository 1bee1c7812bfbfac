"""A source and the services that it sends to: the steps of programs, of the line between them and of an operator."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from functools import partial
from typing import Final

from tests.simulator.acts import Operator
from tests.simulator.calls import Calls
from tests.simulator.door import Door
from tests.simulator.machine import Neighbourhood
from tests.simulator.oracle import Oracle
from tests.simulator.place import Files, Place
from tests.simulator.policies import SOURCED
from tests.simulator.process import Process, Work
from tests.simulator.source import WAYS, Program, Terms
from tests.simulator.stored import Stored
from tests.simulator.wire import Letter, Wire
from wsrm_mq.delivery.delivery import Delivery, Outcome
from wsrm_mq.source.acts import act
from wsrm_mq.store.applications import SENDING

MOST: Final = 12
"""Requests of a schedule: more than the window of a new sequence."""
_ACTS: Final = ("hold", "resume", "resume", "resend", "close", "terminate")
_AT_ONCE: Final = (1, 1, 1, 2, 3, 5)


class Sending:
    """``draw`` chooses what the programs and the line of a schedule are like."""

    def __init__(
        self, place: Place, oracle: Oracle, services: Stored, draw: random.Random, counts: Counter[str]
    ) -> None:
        place.outbox.empty()
        self._place = place
        self._counts = counts
        self.terms = Terms.drawn(draw)
        self.partner = draw.choice(sorted(SOURCED))
        self.asks = draw.choice([0, 0.3, 1])
        """How often a request is replied to."""
        self.neighbours = Neighbourhood("source")
        outbox = Stored(place.outbox.reader)
        self.wire = Wire(counts, draw.choice([0, 0.15, 0.3]))
        self.calls = Calls(oracle, outbox, services, self.wire, self.terms, counts)
        self._operator = Operator(place.outbox.operator, place.clock, self.neighbours, oracle, outbox, draw)
        self._made = 0
        self._at: dict[Process, list[Letter]] = defaultdict(list)
        """Requests that services are at."""

    # processes

    def source(self, files: Files) -> Process:
        """A process whose program sends."""
        policy, clock = self.terms.policy, self._place.clock

        def work_of(process: Process) -> Work:
            process.program = Program(process, self.wire, self.terms)
            return process.program.work(process)

        watched = self.calls.sent_by
        return Process(
            files, clock, self.neighbours, work_of, 1, lambda _partner: policy, watched, self._counts, SENDING
        )

    def open_door(self, process: Process) -> None:
        """Requests come in at a process."""
        process.door = Door(process, self.partner)

    # steps

    def put(self, process: Process, draw: random.Random) -> bool:
        """A program sends a request or several."""
        if process.program is None or self._made >= MOST:
            return False
        first, self._made = self._made + 1, self._made + draw.choice(_AT_ONCE)
        put = partial(process.program.put, draw.choice(self.terms.addresses), list(range(first, self._made + 1)))
        process.tasks.start(partial(put, is_asked=draw.random() < self.asks), "program")
        return True

    def do(self, process: Process, draw: random.Random) -> bool:
        """A program ends its sequence, or does something else about it."""
        if process.program is None:
            return False
        does = partial(process.program.do, draw.choice(WAYS), draw.choice(self.terms.addresses))
        process.tasks.start(does, "program")
        return True

    def operate(self, draw: random.Random) -> bool:
        return self._act(draw.choice(_ACTS), draw.choice(self.terms.addresses))

    def _act(self, name: str, to: str) -> bool:
        is_done = self._operator.commit(lambda tx: act(tx, name, to, actor="alice", reason="so"))
        if is_done:
            self.calls.look()
        return is_done

    def carry(self, services: list[Process], draw: random.Random) -> bool:
        """A request or an answer arrives, or does not. ``services``: the processes that listen."""
        wire = self.wire
        if not wire.is_busy:
            return False
        if not wire.requests or (wire.answers and draw.random() < 0.5):
            wire.answered(draw)
        elif (letter := wire.request(draw)) is not None:
            if services:
                self._hand_in(draw.choice(services), letter)
            else:
                self._counts["requests refused"] += 1
                letter.end()
        return True

    def _hand_in(self, process: Process, letter: Letter) -> None:
        door = process.door
        assert door is not None

        def serve() -> None:
            self.wire.answers.append((letter, door.answer(letter)))
            self._at[process].remove(letter)

        self._at[process].append(letter)
        process.tasks.start(serve, "request")

    def is_killed(self, process: Process) -> None:
        """What it was asked is not answered."""
        for letter in self._at.pop(process, ()):
            letter.end()

    def lose_state(self) -> None:
        """The services have a store that knows nothing. None of them runs."""
        self.calls.state_is_lost()
        self._place.empty()

    # the service

    def answer(self, process: Process, delivery: Delivery, text: str) -> Outcome:
        """Of a service that has taken a request."""
        assert process.door is not None
        soap = self.terms.soap
        content = f'<s:Envelope xmlns:s="{soap.namespace}"><s:Body><n>{text}</n></s:Body></s:Envelope>'
        return process.door.answered(delivery, soap.media_type, content.encode() if delivery.wants_reply else b"")

    # the end

    def heal(self, sources: list[Process]) -> None:
        """The line holds, nothing is held back, and what could not be reached is tried again."""
        self.wire.loss = 0
        for to in self.terms.addresses:
            self._act("resume", to)
        for process in sources:
            if process.program is not None:
                process.program._persistent.try_now()

    def check_end(self, process: Process) -> None:
        program = process.program
        assert program is not None
        done = [
            text
            for text, one in self.calls.requests.items()
            if one.is_two_way and self.calls.standing[one.position].outcome == "delivered"
        ]
        replies = {text: program._reply_at(self.calls.requests[text].position) for text in done}
        self.calls.check_end({text: reply and reply.content for text, reply in replies.items()})
