"""A relay: the calls that programs have enqueued in a database of their own go into the store of an RM Source.

A turn takes some calls, has them stored, deletes them there, and only then forgets that they were stored. So whenever
it is killed each call is in one of the two, or in both and known to be.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, Final

from wsrm_mq.events.telling import Events
from wsrm_mq.outbox import Call, Taking
from wsrm_mq.queue.requests import Destination
from wsrm_mq.queue.sending import OutgoingMessage
from wsrm_mq.sequence.elements import EndpointReference
from wsrm_mq.store.lasting import Lasting, Repeated
from wsrm_mq.versions import ADDRESSING_OF_LABEL, RM_OF_LABEL, SOAP_OF_LABEL

MOST: Final = 100
"""The most calls of a turn: other writers of an SQLite database wait for its end."""
LOOK_SECONDS: Final = 0.2
AGAIN_SECONDS: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Pauses after the first, second, … failure; after more of them as long as after the last."""
_LAST_TURN_SECONDS: Final = 10.0

Act = Callable[[Sequence[Call]], None]


class Relay:
    """``connect`` opens a connection to the database; ``name`` is that of the store; ``keep`` has calls stored that are
    not known there, and ``forget`` has it know them no longer."""

    def __init__(self, connect: Callable[[], Any], name: str, keep: Act, forget: Act, events: Events) -> None:
        self._connect = connect
        self._name = name
        self._keep = keep
        self._forget = forget
        self._events = events
        self._trouble = Repeated()
        self._failures = 0
        self._stopping = threading.Event()
        self._thread = Lasting("wsrm-mq-relay", self._run, self._broke, events)
        self._thread.start()

    def stop(self) -> None:
        """End after the turn that is going on. A database that does not answer is left alone."""
        self._stopping.set()
        self._thread.join(_LAST_TURN_SECONDS)

    def _run(self) -> None:
        if self._stopping.is_set():
            return
        with closing(self._connect()) as connection:
            taking = Taking(connection, self._name)
            while not self._stopping.is_set():
                calls = taking.take(MOST)
                if calls:
                    self._keep(calls)
                    taking.done(calls)
                    self._forget(calls)
                self._trouble.over()
                self._failures = 0
                if len(calls) < MOST:
                    self._stopping.wait(LOOK_SECONDS)

    def _broke(self, error: BaseException) -> None:
        self._trouble.tell(self._events, "relay.waits", error)
        self._stopping.wait(AGAIN_SECONDS[min(self._failures, len(AGAIN_SECONDS) - 1)])
        self._failures += 1


def call_of(to: Destination, message: OutgoingMessage, *, wants_reply: bool, offers: bool) -> Call:
    """A request as it waits in a database."""
    labels = to.rm.label, to.soap.label, to.addressing.label
    names = message.message_id, to.address, message.action
    return Call(*names, *labels, message.content_type, int(wants_reply) | int(offers) << 1, message.body)


def request_of(call: Call) -> tuple[Destination, OutgoingMessage]:
    """Read a call that is stored."""
    versions = RM_OF_LABEL[call.rm], SOAP_OF_LABEL[call.soap], ADDRESSING_OF_LABEL[call.addressing]
    to = EndpointReference(call.destination)
    message = OutgoingMessage(to, call.message_id, call.action, call.content_type, call.envelope)
    return Destination(call.destination, *versions), message
