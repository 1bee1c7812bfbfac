"""An RM Source: one sequence, sent until it is acknowledged."""

from __future__ import annotations

import copy
import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.testing.envelopes import EnvelopeFactory
from wsrm_mq.testing.reply import Reply
from wsrm_mq.testing.wire import HTTPAnswer, Wire

W = TypeVar("W", bound=Wire)

_ACCEPTED = (200, 202)
_LATER = 503
_PAUSE_SECONDS = 0.02
"""The time between two tries of a message, and between two looks at the store."""


class Refused(Exception):
    """The destination answered a fault, or another status than of an acceptance or of a request to come later."""


class Unacknowledged(Exception):
    """A message was not acknowledged in time."""


class RMSender(Generic[W]):
    """One sequence on one wire at a time. ``connect`` opens a wire: the first one when there is something to send, the
    next when one broke. ``write`` says how a message is written, from the sequence's identifier, its number, and
    whatever else is given to ``send``; by default it is ``envelopes.message``. Created with ``offer``, it offers
    another sequence for the replies, and each message acknowledges those that came.

    Threads that send at the same time need ``another`` each; ``send_all`` sees to that itself.
    """

    def __init__(
        self,
        connect: Callable[[], W],
        envelopes: EnvelopeFactory | None = None,
        *,
        write: Callable[..., bytes] | None = None,
        identifier: str | None = None,
        **create: Any,
    ) -> None:
        """Without an ``identifier`` a sequence is created; ``create`` are options of
        ``EnvelopeFactory.create_sequence``. Raises ``OSError``, and ``Refused`` where it is not created."""
        self.envelopes = envelopes or EnvelopeFactory()
        self.identifier = identifier or ""
        self.acknowledged: set[int] = set()
        self.offered: str | None = None
        """The sequence for the replies, where the destination has accepted one."""
        self.replies: dict[int, bytes] = {}
        """The replies that came in it, by number."""
        self._connect = connect
        self._write = write or self.envelopes.message
        self._wire: W | None = None
        if identifier is None:
            self.create(**create)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.disconnect()

    def create(self, **options: Any) -> str:
        """Create a sequence for the next messages, and answer its identifier. Raises as the constructor does."""
        answer = self.post(self.envelopes.create_sequence(**options))
        if answer.status not in _ACCEPTED or answer.reply.created is None:
            raise Refused(f"CreateSequence: {_said(answer)}")
        self.identifier = answer.reply.created.identifier
        self.acknowledged, self.replies = set(), {}
        self.offered = options.get("offer") if answer.reply.created.accept is not None else None
        return self.identifier

    def another(self) -> Self:
        """The same sequence, with its acknowledgements, on a wire of its own."""
        twin = copy.copy(self)
        twin._wire = None
        return twin

    @property
    def wire(self) -> W:
        """The wire that is open, or a new one. Raises ``OSError``."""
        if self._wire is None:
            self._wire = self._connect()
        return self._wire

    def disconnect(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def post(self, envelope: bytes) -> HTTPAnswer:
        """Send an envelope, and remember the acknowledgement in its answer. Raises ``OSError`` where the wire breaks;
        the next message opens another."""
        try:
            answer = self.wire.post(envelope, self.envelopes.fields(envelope))
        except OSError:
            self.disconnect()
            raise
        if answer.fields.get("connection") == "close":
            self.disconnect()
        self.hear(answer)
        return answer

    def hear(self, answer: HTTPAnswer) -> None:
        """Remember the acknowledgement of this sequence in an answer, and the answer's place in the offered
        sequence."""
        place = answer.reply.sequence if answer.is_soap else None
        if place is not None and place.identifier == self.offered:
            self.replies.setdefault(place.number, answer.body)
        for ack in answer.reply.acks if answer.is_soap else ():
            if ack.identifier == self.identifier:
                for lower, upper in ack.ranges:
                    self.acknowledged.update(range(lower, upper + 1))

    @property
    def acknowledgement(self) -> str:
        """The header that acknowledges the replies; empty where no sequence was accepted for them."""
        received = AckRanges.of(self.replies).ranges
        return "" if self.offered is None else self.envelopes.acknowledgement_header(self.offered, *received)

    # messages

    def message(self, number: int, *content: Any, **options: Any) -> bytes:
        """The envelope of a message."""
        if self.offered is not None:
            options["headers"] = options.get("headers", "") + self.acknowledgement
        return self._write(self.identifier, number, *content, **options)

    def send(self, number: int, *content: Any, **options: Any) -> HTTPAnswer:
        """Send a message once: ``content`` is its Body, best an ``Operation``; ``options`` are those of
        ``EnvelopeFactory.message``. Status 503 says that it is to be sent again. Raises ``OSError`` and ``Refused``."""
        return self.checked(self.post(self.message(number, *content, **options)))

    def send_until_acknowledged(self, number: int, *content: Any, seconds: float = 30, **options: Any) -> None:
        """Raises ``Unacknowledged`` after ``seconds``, and ``Refused``."""
        for answer in self._sent_again(number, content, options, seconds):
            if answer is not None:
                self.checked(answer)
            if number in self.acknowledged:
                return

    def call(self, number: int, *content: Any, seconds: float = 30, **options: Any) -> Reply:
        """Send a request until its reply is there, which may be a fault. Raises ``Unacknowledged`` after
        ``seconds``."""
        for answer in self._sent_again(number, content, {"reply_to": "", **options}, seconds):
            if answer is not None and answer.is_soap and answer.reply.body is not None:
                return answer.reply
        raise AssertionError("it is sent until it is answered, or too late")

    def _sent_again(
        self, number: int, content: tuple[Any, ...], options: dict[str, Any], seconds: float
    ) -> Iterator[HTTPAnswer | None]:
        """The answers to one message, sent again and again; ``None`` where the wire broke."""
        envelope = self.message(number, *content, **options)
        end = time.monotonic() + seconds
        while True:
            try:
                yield self.post(envelope)
            except OSError:
                yield None
            if time.monotonic() > end:
                raise Unacknowledged(f"message {number} of {self.identifier}, {seconds} s long")
            time.sleep(_PAUSE_SECONDS)

    def wait_until_delivered(self, store: str | os.PathLike[str], *, seconds: float = 10) -> None:
        """Wait until the service has taken all that is acknowledged: its store is this file, of this machine. Raises
        ``Undelivered``."""
        wait_until_delivered(store, self.identifier, self.acknowledged, seconds=seconds)

    def send_all(
        self,
        numbers: Iterable[int],
        *,
        connections: int = 1,
        resend: float = 0.1,
        pace: float = 0.0,
        stop: threading.Event | None = None,
    ) -> None:
        """Send messages in this order on so many wires at once, and those that are not acknowledged again after
        ``resend`` seconds, until all are or ``stop`` is set. ``pace``: seconds between two messages of a wire.
        Raises ``Refused``."""
        stop, lock = stop or threading.Event(), threading.Lock()
        unsent = iter(numbers)
        again: deque[tuple[float, int, bytes]] = deque()

        def take() -> tuple[float, int, bytes] | None:
            """Take a message that is due again, else a new one, else the next that will be due."""
            with lock:
                if not again or again[0][0] > time.monotonic():
                    for number in unsent:
                        return 0.0, number, self.message(number)
                return again.popleft() if again else None

        def work(sender: Self) -> None:
            while not stop.is_set() and (taken := take()) is not None:
                due, number, envelope = taken
                stop.wait(max(pace, due - time.monotonic()))
                if stop.is_set() or number in self.acknowledged:
                    continue
                try:
                    sender.checked(sender.post(envelope))
                except OSError:
                    stop.wait(_PAUSE_SECONDS)
                except Refused:
                    stop.set()
                    raise
                if number not in self.acknowledged:
                    again.append((time.monotonic() + resend, number, envelope))
            sender.disconnect()

        with ThreadPoolExecutor(connections) as pool:
            list(pool.map(work, [self.another() for _ in range(connections)]))

    def checked(self, answer: HTTPAnswer) -> HTTPAnswer:
        """The same answer. Raises ``Refused`` if it neither accepts nor says to come later."""
        if answer.status != _LATER and (answer.status not in _ACCEPTED or (answer.is_soap and answer.reply.fault)):
            raise Refused(f"{self.identifier}: {_said(answer)}")
        return answer

    # the sequence

    def ask(self, **options: Any) -> HTTPAnswer:
        """Send AckRequested."""
        return self.post(self.envelopes.ack_requested(self.identifier, **options))

    def close(self, last: int | None = None, **options: Any) -> HTTPAnswer:
        """Send CloseSequence, with ``last`` as its LastMsgNumber."""
        return self.post(self.envelopes.close(self.identifier, last, **options))

    def terminate(self, last: int | None = None, **options: Any) -> HTTPAnswer:
        """Send TerminateSequence, with ``last`` as its LastMsgNumber."""
        return self.post(self.envelopes.terminate(self.identifier, last, **options))


def _said(answer: HTTPAnswer) -> str:
    fault = answer.reply.fault if answer.is_soap else None
    said = repr(answer.body[:1000]) if fault is None else f"{fault.subcode or fault.code}: {fault.reason}"
    return f"HTTP {answer.status}, {said}"


def shuffled_windows(last: int, window: int, seed: int, twice: float = 0.1) -> Iterator[int]:
    """The numbers from 1 to ``last``, shuffled within windows, a share of them twice, as on a bad network."""
    chance = random.Random(seed)
    for start in range(1, last + 1, window):
        numbers = list(range(start, min(start + window, last + 1)))
        numbers += [n for n in numbers if chance.random() < twice]
        chance.shuffle(numbers)
        yield from numbers


# delivery: an acknowledgement says only that a message is stored


class Undelivered(Exception):
    """A message was not delivered in time, or never will be; says why, as ``wsrm-mq sequence explain`` does."""


def wait_until_delivered(
    store: str | os.PathLike[str], sequence: str, numbers: Collection[int], *, seconds: float = 10
) -> None:
    """Wait until the service has taken these numbers of a sequence. Raises ``Undelivered`` after ``seconds``, and at
    once where one was put aside, was answered with a fault, or stops its sequence for good."""
    from wsrm_mq.store.store import store_path

    path, end = store_path(store), time.monotonic() + seconds
    while not _are_delivered(path, sequence, set(numbers), is_late=time.monotonic() > end):
        time.sleep(_PAUSE_SECONDS)


def _are_delivered(path: Path, identifier: str, wanted: set[int], *, is_late: bool) -> bool:
    from wsrm_mq.store.driver import connect_looker, snapshot
    from wsrm_mq.views.query import parse
    from wsrm_mq.views.reading import messages, sequence
    from wsrm_mq.views.sentences import explanation
    from wsrm_mq.views.verdict import Cause, judge

    with closing(connect_looker(path)) as db, snapshot(db):
        found = {one.number: one for one in messages(db, parse(f"seq:{identifier}")) if one.number in wanted}
        missing = [number for number in sorted(wanted) if number not in found or found[number].state != "delivered"]
        faulted = [number for number, one in found.items() if one.state == "delivered" and one.reason is not None]
        if not missing and not faulted:
            return True
        verdict = judge(db, sequence(db, identifier), time.time_ns() // 1_000_000)
    is_over = any(one.state != "delivered" and one.settled_at is not None for one in found.values())
    if is_late or is_over or faulted or verdict.cause is Cause.BLOCKED:
        told = [
            f"number {number}: {one.state}, {one.reason}, {one.last_error}"
            if (one := found.get(number))
            else f"number {number} never came"
            for number in (*missing, *faulted)
        ]
        raise Undelivered("\n".join((explanation(verdict).sentence, *told)))
    return False
