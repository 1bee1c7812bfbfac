"""The flow to one consumer and back: messages that are leased ahead, and acknowledgements that wait to be sent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from wsrm_mq.errors import SubscriptionClosed
from wsrm_mq.events.telling import Events
from wsrm_mq.node.backlog import Backlog, Held
from wsrm_mq.node.batching import Batch
from wsrm_mq.node.message import Message
from wsrm_mq.node.sharing import Load
from wsrm_mq.queue import settling
from wsrm_mq.queue.settling import Settlement
from wsrm_mq.queue.subscribing import Granted
from wsrm_mq.store.filtering import Filter
from wsrm_mq.store.transaction import Transaction

LAST: Final = 2**63


class Rest(NamedTuple):
    """The leases of a flow that has ended. ``acknowledged``: that is still to be sent. ``seen``: its consumer has got
    these; ``ahead``: it has not."""

    acknowledged: Sequence[Held] = ()
    seen: Sequence[Held] = ()
    ahead: Sequence[Held] = ()

    def settle(self, tx: Transaction) -> None:
        """Settle what is acknowledged, give back the others."""
        settling.ack(tx, [one.message.lease for one in self.acknowledged])
        settling.hand_back(tx, [one.message.lease for one in self.ahead])
        settling.put_back(tx, [one.message.lease for one in self.seen])


class Flow:
    """The flow of one subscription; its methods may be called by any thread."""

    def __init__(
        self,
        names: Sequence[str],
        granted: Granted,
        batch: Batch,
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
        self.is_paused = False
        """It leases nothing and hands nothing over."""
        self.beside: tuple[Flow, ...] = ()
        """Flows of the same consumer from other stores: together they have as much as was granted, but each has room
        for one message, so that all can tell which comes first."""
        self.lost = 0
        """Acknowledgements that came when their leases had ended."""
        self._clock = clock
        self._events = events
        self._backlog = Backlog()
        self._batch = batch
        self._behind: list[Held] = []
        """Messages that are acknowledged while one before them in their group is not: they can be settled behind it."""
        self._busy: dict[int, Held] = {}
        """The messages of groups that are being handled, whatever became of their leases, by their positions."""
        self._is_parallel = is_parallel
        self._error: BaseException | None = None
        self.closed_by: str | None = None
        """The cause of its end, in words; ``None``: it is open, or an error has ended it."""
        self._waiters: list[Callable[[], None]] = []
        self._came_at = clock()
        """When its consumer last took, settled or renewed something, ms."""
        self._lock = threading.Lock()

    @property
    def is_attended(self) -> bool:
        """Whether its consumer waits, or has come within the time of a lease. Otherwise no lease of what waits for it
        is renewed, and no more is leased: a consumer that hangs, or that was dropped without `close`, keeps nothing."""
        lease = self.granted.lease
        return lease is None or bool(self._waiters) or self._clock() - self._came_at < lease

    @property
    def load(self) -> Load:
        unsettled, granted = self._backlog.unsettled, self.granted.backlog
        if self.is_paused or not self.is_attended:
            return Load(granted, granted)
        if not self.beside:
            return Load(unsettled, granted)
        others = sum(flow._backlog.unsettled for flow in self.beside)
        return Load(min(unsettled + others, granted if unsettled else granted - 1), granted)

    @property
    def first(self) -> tuple[int, int]:
        """The order of the message that is handed over next among those of other flows; the last where none is."""
        with self._lock:
            held = self._backlog.next
            return (0, LAST) if held is None else (-held.message.priority, held.position)

    @property
    def is_starved(self) -> bool:
        """A consumer waits, and nothing can come before what is acknowledged is sent: there is no room, or what comes
        next lies behind that in its group."""
        return bool(self._waiters) and (
            self.load.room <= 0 or any(one.message.frees_others for one in self._batch.waiting)
        )

    def due_at(self) -> int | None:
        """When the next acknowledgements or renewals are due, ms."""
        with self._lock:
            if not self._is_used:
                return None
            all_of_it = self._batch.due_at, self._renewed_at, self._left_at
            return min((at for at in all_of_it if at is not None), default=None)

    @property
    def _is_used(self) -> bool:
        return bool(self._backlog.unsettled or self._batch.waiting)

    @property
    def _renewed_at(self) -> int | None:
        """When leases of what waits are to be renewed, while its consumer is there."""
        return self._backlog.renewed_at(self.granted.lease, self._stuck()) if self.is_attended else None

    @property
    def _left_at(self) -> int | None:
        """When what waits is left by its consumer, unless that comes before: see ``is_attended``. ``None``: never."""
        lease = self.granted.lease
        if lease is None or self._waiters or self._backlog.next is None:
            return None
        left_at = self._came_at + lease
        return left_at if left_at > self._clock() or self._loose() else None

    def _loose(self) -> list[Held]:
        """The messages in no group that wait; a barrier message is leased by none."""
        return [one for one in self._backlog.waiting if one.lane is None and not one.message.is_barrier]

    @property
    def has_room(self) -> bool:
        return self.is_open and self.load.room > 0

    def is_due(self, now: int) -> bool:
        """There is something to send."""
        with self._lock:
            if not self._is_used:
                return False
            self._forget_ended(now)
            is_full = self._batch.is_due(now) or bool(self._batch.waiting and self.is_starved)
            ahead = (self._renewed_at, self._left_at) if self.is_open else ()
            return is_full or any(at is not None and at <= now for at in ahead)

    def _forget_ended(self, now: int) -> None:
        for one in self._backlog.forget_ended(now):
            one.message.lost = True
        self._fill_batch(now)

    # the consumer

    def take(self, waiter: Callable[[], None] | None = None) -> Message | None:
        """The next message; ``None`` where there is none now. Then ``waiter`` is called once, when that has changed.
        Raises the error that ended the flow, and ``SubscriptionClosed``."""
        with self._lock:
            self._came_at = self._clock()
            self._forget_ended(self._came_at)
            busy = {one.lane for one in self._busy.values()}
            is_on = self.is_open and not self.is_paused
            held = self._backlog.hand_over(self._came_at, busy) if is_on else None
            if held is None:
                self.check_open()
                if waiter is not None:
                    self._waiters.append(waiter)
                return None
            if held.message.is_barrier:
                self._backlog.settled(held.position)
            if self._is_parallel and held.lane is not None:
                self._busy[held.position] = held
                held.handed_at = self._came_at
            if held.is_renewed and held.leased_until is not None:
                held.message.leased_until = time.time() + (held.leased_until - self._came_at) / 1000
            return held.message

    def recall(self) -> list[Message]:
        """The messages that wait for their turn, but for barriers, as if they were handed over: they are to go back."""
        with self._lock:
            held = self._backlog.hand_over_all()
            barriers = [one for one in held if one.message.is_barrier]
            for one in barriers:
                self._backlog.settled(one.position)
            self._backlog.arrive(barriers)
            return [one.message for one in held if not one.message.is_barrier]

    def check_open(self) -> None:
        """Raises the error that ended the flow, and ``SubscriptionClosed``."""
        if self._error is not None:
            raise self._error
        if not self.is_open:
            raise SubscriptionClosed(
                f"The subscription to {', '.join(self.names)} is closed, by {self.closed_by}: more messages may be "
                "there. `node.subscribe` begins another one."
            )

    def unwait(self, waiter: Callable[[], None]) -> None:
        """``waiter`` is not to be called any more."""
        with self._lock, suppress(ValueError):
            self._waiters.remove(waiter)

    def acknowledge(self, message: Message) -> bool:
        """Put the acknowledgement of a message into the batch; answers whether that is due. Of one that was settled it
        is nothing, and of one whose lease has ended it is told as late."""
        with self._lock:
            waiters, is_due = self._is_free(message), False
            held = self._held(message)
            if held is not None and not held.is_acknowledged:
                held.is_acknowledged = True
                self._behind.append(held)
                now = self._clock()
                self._fill_batch(now)
                is_due = bool(self._batch.waiting) and (self._batch.is_due(now) or self.is_starved)
        _call(waiters)
        if held is None and message.lost:
            self.late()
        return is_due

    def _fill_batch(self, now: int) -> None:
        """Put the acknowledgements into the batch that need not wait for another one of their group."""
        for one in [one for one in self._behind if not self._backlog.has_before(one)]:
            self._behind.remove(one)
            self._batch.add(one, now)

    def handed_over(self) -> list[int]:
        """The positions of the messages that the consumer has, acknowledged ones included that are not sent."""
        with self._lock:
            return [one.position for one in self._backlog.at_consumer]

    def lasts(self, message: Message) -> bool:
        """Whether the message is here and its lease lasts, as far as this clock tells."""
        with self._lock:
            return self._lasts(message)

    def _lasts(self, message: Message) -> bool:
        held = self._has(message)
        return held is not None and (held.leased_until is None or held.leased_until > self._clock())

    def is_over(self, message: Message) -> bool:
        """Whether the lease of a message has ended, of which no more is known: then its group goes on."""
        with self._lock:
            if self._lasts(message):
                return False
            waiters = self._is_free(message)
        _call(waiters)
        return True

    def is_acknowledged(self, message: Message) -> bool:
        """Whether its acknowledgement waits to be sent."""
        with self._lock:
            held = self._held(message)
            return held is not None and held.is_acknowledged

    @property
    def is_sending(self) -> bool:
        """Whether an acknowledgement is on its way, or about to be."""
        with self._lock:
            return any(one.is_acknowledged and one not in self._behind for one in self._backlog.at_consumer)

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
                self._backlog.group_returned(held.lane, held.fence)
            self._fill_batch(self._clock())
            waiters = self._is_free(message)
        _call(waiters)

    def renewed(self, message: Message, until: int | None) -> None:
        with self._lock:
            held = self._held(message)
            if held is not None:
                self._backlog.renewed(held, until)

    def _held(self, message: Message) -> Held | None:
        """See ``_has``. Its consumer has come for it."""
        self._came_at = self._clock()
        return self._has(message)

    def _has(self, message: Message) -> Held | None:
        """The lease of the message, unless that has ended and it came again."""
        held = self._backlog.handed(message.position)
        return held if held is not None and held.message is message else None

    def _is_free(self, message: Message) -> list[Callable[[], None]]:
        """The group of a message that was handled."""
        held = self._busy.get(message.position)
        if held is None or held.message is not message:
            return []
        del self._busy[message.position]
        return self._all_waiters()

    def _stuck(self) -> set[int | None]:
        """Groups of which the consumer has had one message for as long as a lease lasts: it may hang there. The
        messages that wait behind that one do not have their leases renewed."""
        lease, now = self.granted.lease, self._clock()
        return set() if lease is None else {one.lane for one in self._busy.values() if now - one.handed_at >= lease}

    def late(self) -> None:
        """A settlement came when its lease had ended."""
        self._lose(1)

    def _lose(self, count: int) -> None:
        if count:
            with self._lock:
                self.lost += count
            self._events.tell("consumer.late", queue=", ".join(self.names), count=count)

    def wake(self) -> None:
        """Have all who wait look again."""
        with self._lock:
            waiters = self._all_waiters()
        _call(waiters)

    def finish(self, by: str) -> None:
        """Hand no other message over, and wake all who wait. ``by``: see ``closed_by``."""
        with self._lock:
            self.is_open, self.closed_by = False, self.closed_by or by
            waiters = self._all_waiters()
        _call(waiters)

    # the store

    def to_send(self, *, at_once: bool = False) -> list[Held]:
        """Acknowledgements that are due, or all ``at_once``; they are sent from now on."""
        with self._lock:
            is_due = at_once or self._batch.is_due(self._clock()) or self.is_starved
            return self._batch.take() if is_due else []

    def not_sent(self, held: list[Held]) -> None:
        """Have messages wait again that were not sent."""
        with self._lock:
            for one in held:
                self._batch.add(one, self._clock())

    def sent(self, held: Sequence[Held], lost: int) -> None:
        """Note that messages are settled, ``lost`` of them too late."""
        with self._lock:
            for one in held:
                if self._backlog.handed(one.position) is one:  # else it was too late, and has come again
                    self._backlog.settled(one.position)
        self._lose(lost)

    def to_renew(self) -> list[Held]:
        with self._lock:
            return self._backlog.to_renew(self._clock(), self.granted.lease, self._stuck()) if self.is_attended else []

    def to_take_back(self) -> list[Held]:
        """Messages that wait for a consumer that does not come: it is not to be charged for what it has not begun."""
        with self._lock:
            left = [] if self.is_attended or not self.is_open else self._loose()
            self._backlog.drop([one.position for one in left])
            return left

    def renewed_ahead(self, held: Sequence[Held], answers: Sequence[Settlement], until: int) -> list[Held]:
        """Leases of what waits were renewed, as the ``answers`` say: what is not kept so is not handed over. Answers
        what is leased anew and not here any more, as its lease seemed to have ended meanwhile."""
        answered = list(zip(held, answers, strict=True))
        with self._lock:
            renewed = [one for one, answer in answered if answer is Settlement.SETTLED]
            here = {*self._backlog.waiting, *self._backlog.at_consumer}
            for one in renewed:
                self._backlog.renewed(one, until)
            self._backlog.drop([one.position for one, answer in answered if answer is not Settlement.SETTLED])
            return [one for one in renewed if one not in here]

    def withdraw(self, leases: Mapping[int, int]) -> list[Message]:
        """The messages of these leases, which are fences by position, were settled otherwise: those that wait are not
        handed over. Answers these."""
        with self._lock:
            gone = [one.message for one in self._backlog.waiting if leases.get(one.position) == one.fence]
            self._backlog.drop([one.position for one in gone])
            return gone

    def begun_anew(self, granted: Granted) -> None:
        """Its subscription was forgotten, with all that it had leased, and another one begun: all comes again. What
        waits to be sent is too late."""
        with self._lock:
            self.granted = granted
            self._backlog.leave()
            self._busy.clear()
            late = len(self._batch.take()) + len(self._behind)
            self._behind.clear()
            waiters = self._all_waiters()
        self._lose(late)
        _call(waiters)

    def arrive(self, held: Sequence[Held]) -> bool:
        """Take messages that were leased; answers whether they are taken: the flow is open."""
        with self._lock:
            if not self.is_open:
                return False
            self._backlog.arrive(held)
            waiters = self._all_waiters() if held else []
            if waiters:  # its consumer was there until now, however long it has waited
                self._came_at = self._clock()
        _call(waiters)
        return True

    def abandon(self, error: BaseException) -> None:
        """This process is a fork of the one that consumes. Another thread of that may have the lock."""
        self._lock = threading.Lock()
        self._waiters, self._behind = [], []
        self.end(error)

    def end(self, error: BaseException | None = None) -> Rest:
        """No message is handed over any more, ``error`` is raised instead; answers what it has leased. What is
        acknowledged behind one of its group that is not comes again with that, and is told as late."""
        with self._lock:
            self.is_open, self._error = False, self._error or error
            ahead, seen = self._backlog.leave()
            late, self._behind = self._behind, []
            rest = Rest(self._batch.take(), [one for one in seen if not one.is_acknowledged or one in late], ahead)
            waiters = self._all_waiters()
        self._lose(len(late))
        _call(waiters)
        return rest

    def _all_waiters(self) -> list[Callable[[], None]]:
        waiters, self._waiters = self._waiters, []
        return waiters


def _call(waiters: list[Callable[[], None]]) -> None:
    for waiter in waiters:
        waiter()
