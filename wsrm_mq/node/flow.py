"""The flow to one consumer and back: messages that are leased ahead, and acknowledgements that wait to be sent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wsrm_mq.events.telling import Events
from wsrm_mq.node.backlog import Backlog
from wsrm_mq.node.batching import Batch
from wsrm_mq.node.message import Message
from wsrm_mq.node.sharing import Load
from wsrm_mq.queue.subscribing import Granted
from wsrm_mq.store.filtering import Filter


@dataclass(slots=True, eq=False)
class Held:
    """A message that is leased. ``leased_until``: ms of the clock of leases; ``None``: until its holder goes."""

    message: Message
    leased_until: int | None
    lane: int | None
    is_acknowledged: bool = False

    @property
    def position(self) -> int:
        return self.message.position


class Flow:
    """The flow of one subscription; its methods may be called by any thread."""

    def __init__(
        self,
        names: Sequence[str],
        granted: Granted,
        batch: Batch[Held],
        wanted: Filter | None,
        clock: Callable[[], int],
        events: Events,
        *,
        is_parallel: bool = False,
    ) -> None:
        """``is_parallel``: several threads take from it, and messages of one ordered group one after the other."""
        self.names = tuple(names)
        self.granted = granted
        self.wanted = wanted
        self.is_open = True
        self.lost = 0
        """Acknowledgements that came when their leases had ended."""
        self._clock = clock
        self._events = events
        self._backlog: Backlog[Held] = Backlog(granted.backlog, granted.lease)
        self._batch = batch
        self._busy: set[int] = set()
        """Groups of which a message is being handled."""
        self._is_parallel = is_parallel
        self._error: BaseException | None = None
        self._waiters: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    @property
    def load(self) -> Load:
        return Load(self._backlog.unsettled, self.granted.backlog)

    @property
    def is_starved(self) -> bool:
        """A consumer waits, and there is no room: what is acknowledged has to be sent."""
        return bool(self._waiters) and self._backlog.room <= 0

    def due_at(self) -> int | None:
        """When the next acknowledgements or renewals are due, ms."""
        with self._lock:
            return min((at for at in (self._batch.due_at, self._backlog.renewed_at) if at is not None), default=None)

    def needs(self, now: int) -> bool:
        """There is something to send or to ask for."""
        with self._lock:
            self._backlog.forget_ended(now)
            due = self._backlog.renewed_at
            wants = self._backlog.room > 0 or self.is_starved or (due is not None and due <= now)
            return self._batch.is_due(now) or (self.is_open and wants)

    # the consumer

    def take(self, waiter: Callable[[], None] | None = None) -> Message | None:
        """The next message; ``None`` where there is none now, or never again: see ``is_open``. Then ``waiter`` is
        called once, when that has changed. Raises the error that ended the flow."""
        with self._lock:
            held = self._backlog.hand_over(self._clock(), self._busy) if self.is_open else None
            if held is None:
                if self._error is not None:
                    raise self._error
                if self.is_open and waiter is not None:
                    self._waiters.append(waiter)
                return None
            if self._is_parallel and held.lane is not None:
                self._busy.add(held.lane)
            return held.message

    def acknowledge(self, message: Message) -> bool:
        """Put the acknowledgement of a message into the batch; answers whether that is due. Of one that is not here it
        is nothing."""
        with self._lock:
            held = self._held(message)
            if held is None or held.is_acknowledged:
                return False
            held.is_acknowledged = True
            now = self._clock()
            self._batch.add(held, now)
            waiters = self._is_free(held.lane)
            is_due = self._batch.is_due(now) or self.is_starved
        _call(waiters)
        return is_due

    def lasts(self, message: Message) -> bool:
        """Whether the message is here and its lease lasts, as far as this clock tells."""
        with self._lock:
            held = self._held(message)
            return held is not None and (held.leased_until is None or held.leased_until > self._clock())

    def is_acknowledged(self, message: Message) -> bool:
        """Whether its acknowledgement waits to be sent."""
        with self._lock:
            held = self._held(message)
            return held is not None and held.is_acknowledged

    @property
    def is_batching(self) -> bool:
        return self._batch.size > 1

    def settled(self, message: Message, *, is_returned: bool = False) -> None:
        """The message was settled otherwise; ``is_returned``: it has gone back, with all of its group behind it."""
        with self._lock:
            held = self._held(message)
            if held is not None:
                self._backlog.settled(held.position)
            if held is not None and is_returned:
                self._backlog.group_returned(held.lane)
            waiters = [] if held is None else self._is_free(held.lane)
        _call(waiters)

    def renewed(self, message: Message, until: int | None) -> None:
        with self._lock:
            held = self._held(message)
            if held is not None:
                held.leased_until = until

    def _held(self, message: Message) -> Held | None:
        """The lease of the message, unless that has ended and it came again."""
        held = self._backlog.handed(message.position)
        return held if held is not None and held.message is message else None

    def _is_free(self, lane: int | None) -> list[Callable[[], None]]:
        if lane not in self._busy:
            return []
        self._busy.discard(lane)
        return self._all_waiters()

    def late(self) -> None:
        """A settlement came when its lease had ended."""
        self._lose(1)

    def _lose(self, count: int) -> None:
        if count:
            with self._lock:
                self.lost += count
            self._events.tell("consumer.late", queue=", ".join(self.names), count=count)

    def finish(self) -> None:
        """Hand no other message over, and wake all who wait."""
        with self._lock:
            self.is_open = False
            waiters = self._all_waiters()
        _call(waiters)

    # the store

    def to_send(self, *, at_once: bool = False) -> list[Held]:
        """Acknowledgements that are due, or all ``at_once``; they are sent from now on."""
        with self._lock:
            is_due = at_once or self._batch.is_due(self._clock()) or self.is_starved
            return self._batch.take() if is_due else []

    def not_sent(self, held: list[Held]) -> None:
        """These wait again."""
        with self._lock:
            for one in held:
                self._batch.add(one, self._clock())

    def sent(self, held: Sequence[Held], lost: int) -> None:
        """These are settled, ``lost`` of them too late."""
        with self._lock:
            for one in held:
                self._backlog.settled(one.position)
        self._lose(lost)

    def to_renew(self) -> list[Held]:
        with self._lock:
            return self._backlog.to_renew(self._clock())

    def renewed_ahead(self, kept: Sequence[Held], until: int, gone: Sequence[Held]) -> None:
        """Leases of what waits were renewed, but for those that are ``gone``."""
        with self._lock:
            for one in kept:
                one.leased_until = until
            self._backlog.drop([one.position for one in gone])

    def arrive(self, held: Sequence[Held]) -> bool:
        """These are leased; answers whether they are taken: the flow is open."""
        with self._lock:
            if not self.is_open:
                return False
            self._backlog.arrive(held)
            waiters = self._all_waiters() if held else []
        _call(waiters)
        return True

    def end(self, error: BaseException | None = None) -> tuple[list[Held], list[Held]]:
        """No message is handed over any more; answers what is acknowledged and not sent, and what else is leased."""
        with self._lock:
            self.is_open, self._error = False, error
            acknowledged = self._batch.take()
            left = [one for part in self._backlog.leave() for one in part if not one.is_acknowledged]
            waiters = self._all_waiters()
        _call(waiters)
        return acknowledged, left

    def _all_waiters(self) -> list[Callable[[], None]]:
        waiters, self._waiters = self._waiters, []
        return waiters


def _call(waiters: list[Callable[[], None]]) -> None:
    for waiter in waiters:
        waiter()
