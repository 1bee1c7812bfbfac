"""A program that sends by an RM Source of the product, from a store of its own; the runtime of its process is that of
the product on tasks, as it is for services."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, Literal, NamedTuple

from tests.simulator.door import ASK, PUT
from tests.simulator.policies import HOUR
from tests.simulator.process import Process, Work
from tests.simulator.wire import Wire
from wsrm_mq.delivery.chores import tell_ends
from wsrm_mq.delivery.hanging import SENDING
from wsrm_mq.delivery.hearing import Hearing
from wsrm_mq.delivery.posting import Posting, has_taken
from wsrm_mq.errors import StoreError
from wsrm_mq.queue.policy import QueuePolicy, Resend
from wsrm_mq.source import RMSource
from wsrm_mq.source.persistent import Persistent
from wsrm_mq.versions import WSA_2004, WSA_2005, WSRM_1_0, WSRM_1_1, AddressingVersion, RMVersion, SOAPVersion

ADDRESSES: Final = ("http://services.example/orders", "http://services.example/bills")
LADDERS: Final = ((1_000,) * 3, (300, 1_000), (3_000,) * 4)
"""Milliseconds between the sendings of a message that is not acknowledged."""
WAYS: Final = ("end",) * 4 + ("close",) * 3 + ("terminate", "create", "create", "try now", "try now")
"""What a program does beside sending."""
_ENVELOPE: Final = b'<s:Envelope xmlns:s="%s"><s:Body><n>%d</n></s:Body></s:Envelope>'


class Terms(NamedTuple):
    """What the programs of a schedule have in common."""

    rm: RMVersion
    addressing: AddressingVersion
    soap: SOAPVersion
    offers: bool
    policy: QueuePolicy
    addresses: tuple[str, ...]

    @classmethod
    def drawn(cls, draw: random.Random) -> Terms:
        rm = draw.choice([WSRM_1_1, WSRM_1_1, WSRM_1_0])
        addressing = draw.choice([WSA_2005, WSA_2004]) if rm is WSRM_1_0 else WSA_2005
        policy = QueuePolicy(
            resend=Resend(draw.choice(LADDERS)),
            max_expires=draw.choice([HOUR // 2, 7 * 24 * HOUR]),
            inactivity=draw.choice([None, 600_000]),
            retain=HOUR,
            retain_ended=2 * HOUR,
        )
        soap, offers = draw.choice(list(SOAPVersion)), draw.random() < 0.5
        return cls(rm, addressing, soap, offers, policy, ADDRESSES[: draw.choice([1, 1, 2])])


class Program(RMSource):
    """``RMSource`` as it is, over the runtime of a process of the simulator in the place of an engine."""

    def __init__(self, process: Process, wire: Wire, terms: Terms) -> None:
        clock = process.store.clock
        self.terms = terms
        self.rm, self.addressing, self.offers, self.acks_to = terms.rm, terms.addressing, terms.offers, None
        self.signers, self._at_signers = {}, {}
        self._policy = terms.policy
        self._engine = process  # type: ignore[assignment]
        self._persistent = Persistent(
            partial(wire.post, process),
            lambda: clock() / 1000,
            process.events.tell,
            knows=partial(has_taken, process.store),
            on_room=lambda: process.watch.look_soon(),
        )

    def work(self, process: Process) -> Work:
        """As an engine has it that sends."""
        hearing = Hearing(lambda _partner: self._policy, process.events, process.hand_over)  # type: ignore[arg-type]
        posting = Posting(process.store, self._persistent, hearing, _no_service)
        ends = partial(tell_ends, process.store, lambda claim: process.dispatcher.give(claim))
        return Work(posting, self._persistent.left_alone, SENDING, (self._tend, ends))

    # calls of the program, each in a task of its own

    def put(self, to: str, texts: list[int], *, is_asked: bool) -> None:
        """Send these, one after the other; a program that is killed, or refused, sends no more."""
        verb, action = (self.ask, ASK) if is_asked else (self.send, PUT)
        with suppress(StoreError):
            for text in texts:
                verb(_ENVELOPE % (self.terms.soap.namespace.encode(), text), to=to, action=action)

    def do(self, way: str, to: str) -> None:
        """One of ``WAYS``."""
        soap: Literal["1.1", "1.2"] = "1.1" if self.terms.soap is SOAPVersion.SOAP_1_1 else "1.2"
        acts: dict[str, Callable[[], object]] = {
            "end": lambda: self.end(to, 0.0),
            "close": lambda: self.close_sequence(to),
            "terminate": lambda: self.terminate(to),
            "create": lambda: self.create_sequence(to, soap=soap),
            "try now": self.try_now,
        }
        with suppress(StoreError):
            acts[way]()


def _no_service(_delivery: object) -> None:
    raise AssertionError("nothing is delivered here")
