"""The outbox: what a program puts is in a store of its own first, and leaves from there once, in order, however long
the other side is away, and whatever dies meanwhile.

It is a queue of kind ``outgoing`` whose messages are one ordered group: their numbers are those of a **lane** that the
other side remembers, so that what it has is not taken again. The name of the lane is the store's and the queue's: a
copy of the store that was adopted, or a queue that was made anew, begins another one. The outbox knows nothing of how
messages leave: a ``Wire`` does.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, Protocol

from wsrm_mq import errors
from wsrm_mq.events.telling import Events
from wsrm_mq.node.apart import DeadLetters
from wsrm_mq.node.message import Message
from wsrm_mq.node.node import Node
from wsrm_mq.queue import declaring
from wsrm_mq.store.identity import identify
from wsrm_mq.store.lasting import Lasting, Repeated

GROUP: Final = "outbox"
MOST: Final = 500
"""Messages that leave together, and bytes of theirs unless one alone has more."""
MOST_BYTES: Final = 4 * 1024 * 1024
LOOK_SECONDS: Final = 1.0
AGAIN_SECONDS: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Pauses after the first, second, … failure; after more of them as long as after the last."""
_POLICY: Final[dict[str, Any]] = {
    "lease": None,
    "max_failures": None,
    "retry": [0],  # a program that died while it sent has not failed at a message
    "on_poison": "skip",
    "dedupe_window": 0,
}
_LATER: Final = (errors.NotAnswered, errors.StoreUnavailable, errors.NotAuthenticated)
"""The other side is away: the same may be taken later."""
_UNREADABLE: Final = (errors.BadRequest, errors.ConfigurationError, errors.QueryError)
"""The other side cannot read what was sent, and never will."""


class Leaving(NamedTuple):
    """A message that is to leave. ``header``: what the wire was given with it. ``waited``: seconds."""

    number: int
    body: bytes
    content_type: str | None
    header: dict[str, Any]
    waited: float


class Sent(NamedTuple):
    """The other side's answer. ``last``: the highest number that it has of the lane. ``refused``: it will never take
    the message of the number behind that, and why."""

    last: int
    refused: errors.WSRMError | None = None


class Wire(Protocol):
    """How messages leave."""

    def last(self, lane: str) -> int:
        """The highest number of a lane that the other side has; 0: none yet."""

    def send(self, lane: str, after: int, messages: Sequence[Leaving]) -> Sent:
        """Send messages of a lane, which come behind the number ``after``. Raises ``NotAnswered``,
        ``StoreUnavailable`` and the like where they may be sent again, ``LaneGap`` where the other side has less than
        that, and ``BadRequest`` and the like where it cannot read one of them, and has taken none."""


class Outbox:
    """The outbox of one destination in a store. Its methods may be called by any thread."""

    def __init__(self, store: str | os.PathLike[str], destination: str, wire: Wire, telling: Events) -> None:
        self.queue = f"outgoing:{destination}"
        self._wire = wire
        self._telling = telling
        self._trouble = Repeated()
        self._stopping = threading.Event()
        self.node = Node(store)
        made = self.node.call(lambda tx: declaring.declare(tx, self.queue, _POLICY, "outgoing"))
        with self.node.store.reader() as db:
            self.lane = f"{identify(db).id}-{made.key}"
        self._after: int | None = None
        """The last number that is known to be at the other side; ``None``: it was not asked yet."""
        self._thread = Lasting("wsrm-mq-outbox", self._loop, self._broke, telling)
        self._thread.start()

    def put(self, body: bytes, content_type: str | None, header: dict[str, Any]) -> Future[int]:
        """Have a message stored; answers a confirmation, whose ``result()`` is its position in the outbox."""
        return self.node.put(self.queue, body, wait=False, **_options(content_type, header))

    def put_many(self, ones: Sequence[tuple[bytes, str | None, dict[str, Any]]]) -> list[int]:
        """Store messages together, all or none of them; answers their positions in the outbox."""
        with self.node.transaction() as done:
            for body, content_type, header in ones:
                self.node.put(self.queue, body, **_options(content_type, header))
        return done.positions

    @property
    def waiting(self) -> int:
        """How many messages wait to be taken by the other side."""
        return self.node.stats(self.queue).messages

    @property
    def dead(self) -> DeadLetters:
        """The messages that the other side has refused, each with its reason as ``last_error``."""
        return self.node.dead(self.queue)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until the other side has all of them, ``timeout`` seconds at most; answers whether it has."""
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            self.node.send([]).result(timeout)  # what was put without waiting is counted once it is stored
        except TimeoutError:
            return False
        while self.waiting:
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(0.02)
        return True

    def close(self) -> None:
        """Leave the store; what waits stays there for the next time."""
        self._stopping.set()
        self._thread.join()
        self.node.close()

    # the thread

    def _loop(self) -> None:
        while not self._stopping.is_set():
            batch = list(self.node.receive(self.queue, MOST, max_bytes=MOST_BYTES, wait=LOOK_SECONDS))
            try:
                self._send_all(batch)
            except BaseException:
                self.node.hand_back(batch)
                raise

    def _send_all(self, batch: list[Message]) -> None:
        tries = 0
        while batch and not self._stopping.is_set():
            try:
                batch, trouble = self._send(batch)
            except errors.WSRMError as error:
                trouble = error
            if trouble is None:
                tries = 0
                self._trouble.over()
            else:
                self._trouble.tell(self._telling, "outbox.waits", trouble)
                self._stopping.wait(AGAIN_SECONDS[min(tries, len(AGAIN_SECONDS) - 1)])
                tries += 1

    def _broke(self, error: BaseException) -> None:
        self._trouble.tell(self._telling, "outbox.waits", error)
        self._stopping.wait(LOOK_SECONDS)

    def _send(self, batch: list[Message]) -> tuple[list[Message], errors.WSRMError | None]:
        """Send a batch; answers what is left of it, and why that has to wait."""
        if self._after is None:
            self._has(self._wire.last(self.lane), _number(batch[0]) - 1)
        after = min(self._after or 0, _number(batch[0]) - 1)  # of what comes again it has some already
        try:
            sent = self._wire.send(self.lane, after, [_leaving(one) for one in batch])
        except errors.LaneGap as gap:
            self._has(gap.expected, after)
            return batch, None
        except _UNREADABLE as error:
            if len(batch) > 1:  # one of them is the reason: it is found by halves
                half = len(batch) // 2
                left, trouble = self._send(batch[:half])
                return left + batch[half:], trouble
            sent = Sent(after, error)
        self._after = sent.last
        taken = [one for one in batch if _number(one) <= sent.last]
        self.node.ack(taken)
        left = batch[len(taken) :]
        if sent.refused is None or _may_come_later(sent.refused):
            return left, sent.refused
        refused, left = left[0], left[1:]
        self.node.reject([refused], sent.refused)
        self._telling.tell("outbox.refused", queue=self.queue, position=refused.position, error=sent.refused)
        return left, None

    def _has(self, last: int, expected: int) -> None:
        """The other side has the numbers up to ``last``; more of them have left before."""
        if last < expected:
            self._telling.tell("outbox.gap", queue=self.queue, lower=last + 1, upper=expected)
        self._after = last


def _number(message: Message) -> int:
    assert message.number is not None
    return message.number


def _options(content_type: str | None, header: dict[str, Any]) -> dict[str, Any]:
    return {"group": GROUP, "content_type": content_type, "properties": {"header": header}}


def _leaving(one: Message) -> Leaving:
    waited = max(time.time() - one.received_at, 0.0)
    return Leaving(_number(one), one.body, one.content_type, one.properties["header"], waited)


def _may_come_later(error: errors.WSRMError) -> bool:
    return isinstance(error, _LATER) or (isinstance(error, errors.QuotaExceeded) and not error.lasts)
