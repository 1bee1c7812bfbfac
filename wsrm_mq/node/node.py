"""A node: the queues of one store, for the threads of one process. Times are in seconds."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, Final, Literal, TypeVar, cast, overload

from wsrm_mq.errors import (
    ConfigurationError,
    QuotaExceeded,
    StoreUnavailable,
    TransactionAlreadyStarted,
    TransactionNotStarted,
)
from wsrm_mq.events.telling import Events
from wsrm_mq.node.dead_letters import DeadLetters
from wsrm_mq.node.doorbell import Doorbell
from wsrm_mq.node.flow import Flow
from wsrm_mq.node.handling import Consumer
from wsrm_mq.node.message import Message, all_kept
from wsrm_mq.node.payload import LATEST, stored
from wsrm_mq.node.subscription import Acknowledging, Subscription, begin
from wsrm_mq.node.supply import Supply
from wsrm_mq.node.transactions import Transaction
from wsrm_mq.queue import browsing, clearing, declaring, filters, settling, topics
from wsrm_mq.queue import put as putting
from wsrm_mq.queue.browsing import Stats
from wsrm_mq.queue.clearing import Cleared
from wsrm_mq.queue.declaring import Declared
from wsrm_mq.queue.leasing import MOST_COUNTED, Leased, Request, count_ready, lease
from wsrm_mq.queue.policies import FOREVER, QueuePolicy, ms
from wsrm_mq.queue.put import Put
from wsrm_mq.queue.settling import Lease, Settlement
from wsrm_mq.queue.subscribing import Terms
from wsrm_mq.queue.topics import Client, Published
from wsrm_mq.store import consuming, queues
from wsrm_mq.store.applications import CONSUMING
from wsrm_mq.store.clock import Clock, wall_clock
from wsrm_mq.store.filtering import Filter
from wsrm_mq.store.store import Store
from wsrm_mq.store.transaction import Transaction as Unit

R = TypeVar("R")
BLOCKED_SECONDS: Final = 0.25
"""A producer that waits for room looks again so often, whatever it is told."""


class Received(list[Message]):
    """Messages that were received together."""

    def __init__(self, messages: Iterable[Message], remaining: Callable[[], int]) -> None:
        super().__init__(messages)
        self._remaining = remaining

    @property
    def remaining(self) -> int:
        """How many more are ready in the queues now, counted up to 10,000. What is leased is none of them."""
        return self._remaining()


class Node:
    """See ``wsrm_mq.connect``. Its methods may be called by any thread; a transaction is of the thread that began
    it."""

    def __init__(
        self,
        where: str | os.PathLike[str],
        name: str | None = None,
        *,
        auto_create: bool = True,
        clock: Clock = wall_clock,
    ) -> None:
        """``name``: what its consumers are known by. ``auto_create``: a queue that is not there is declared by the
        first message that is put there."""
        self.name = name
        self._auto_create = auto_create
        self.events = Events()
        self.store = Store(where, clock=clock, serving=CONSUMING, events=self.events)
        self.store.open()
        self._pid = os.getpid()
        self.supply = Supply(
            self.store, self._message_of, lambda: self.doorbell.nudge(), lambda: self.doorbell.settled()
        )
        self.doorbell = Doorbell(self.store, self.events, self.supply.ask, self.supply.look)
        self.doorbell.start()
        self._own = threading.local()
        self._subscriptions: dict[Flow, Subscription] = {}
        self._turn = 0

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back what is leased, uncounted, and leave the store."""
        if self.store.is_open and self._pid == os.getpid():
            for subscription in list(self._subscriptions.values()):
                subscription.close()
            self.doorbell.stop()
            self.store.close(_leave)
            self.doorbell.tell()

    # queues

    def declare(self, queue: str, **options: Any) -> QueuePolicy:
        """Make a queue, or change the policy of one; answers its policy. The options are those of ``QueuePolicy``."""
        return self.call(lambda tx: declaring.declare(tx, queue, options)).policy

    def keys(self) -> list[str]:
        """The names of the queues that are declared."""
        with self.store.reader() as db:
            return [name for (name,) in db.execute(consuming.DECLARED_QUEUES)]

    def delete(self, queue: str, *, if_empty: bool = False, force: bool = False) -> Cleared:
        """Delete a queue; what it has is purged. Raises ``QueueBusy`` where something is leased, unless ``force``."""
        return self.call(lambda tx: clearing.delete(tx, declaring.declared(tx, queue), if_empty=if_empty, force=force))

    def purge(self, queue: str, lower: int = 0, upper: int | None = None) -> Cleared:
        """Give up what is not leased, between two positions where those are given."""
        return self.call(lambda tx: clearing.purge(tx, declaring.declared(tx, queue), lower, upper))

    def stats(self, queue: str) -> Stats:
        """Count the messages of a queue, by state."""
        with self.store.reader() as db:
            return browsing.stats(db, declaring.read(db, queue), self.store.clock())

    # putting

    @overload
    def put(
        self, queue: str, body: object, *, wait: Literal[True] = True, timeout: float | None = None, **options: Any
    ) -> int: ...
    @overload
    def put(self, queue: str, body: object, *, wait: Literal[False], **options: Any) -> Future[int]: ...
    def put(
        self, queue: str, body: object, *, wait: bool = True, timeout: float | None = None, **options: Any
    ) -> int | Future[int]:
        """Put a message; answers its position, once it is on the disk. ``options`` are ``type``, ``message_id``,
        ``properties``, ``content_type``, ``priority``, ``ttl``, ``deliver_at``, ``delay``, ``group`` and
        ``receive_by``. Within a transaction it answers 0: the transaction has the position when it is committed. Where
        the queue has no room and its ``overflow`` is ``block``, it waits up to ``timeout`` seconds; ``None``: for ever.
        Raises ``QuotaExceeded``. Without ``wait`` it answers a confirmation at once, whose ``result()`` is the
        position, or raises: several of them share a commit."""
        if not wait:
            return self._put_soon(queue, self._stored(body, options))
        return self._put(queue, [self._stored(body, options)], timeout)[0]

    def put_many(
        self, queue: str, bodies: Iterable[object], *, timeout: float | None = None, **options: Any
    ) -> list[int]:
        """Put messages together, all or none of them; answers their positions. See ``put``."""
        return self._put(queue, [self._stored(body, options) for body in bodies], timeout)

    def _put_soon(self, queue: str, one: Put) -> Future[int]:
        if self.in_transaction:
            raise ConfigurationError("`wait=False` is for a put by itself: a transaction is waited for at its end.")
        auto_create = self._auto_create
        return self.submit(
            lambda tx: putting.put_many(tx, declaring.found(tx, queue, auto_create=auto_create), [one])[0],
            size=len(one.body),
        )

    def _stored(self, body: object, options: dict[str, Any]) -> Put:
        return stored(body, now=self.store.clock(), **{"client": self.name, **options})

    def _put(self, queue: str, many: list[Put], timeout: float | None) -> list[int]:
        open_one = self._open_one
        auto_create = self._auto_create

        def verb(tx: Unit) -> list[int]:
            found = declaring.found(tx, queue, auto_create=auto_create)
            return putting.put_many(tx, found, many)

        size = sum(len(one.body) for one in many)
        if open_one is not None:
            at = len(open_one.positions)
            open_one.positions += [0] * len(many)

            def later(tx: Unit) -> None:
                open_one.positions[at : at + len(many)] = verb(tx)

            open_one.verbs.append(later)
            open_one.size += size
            return [0] * len(many)
        return self._when_there_is_room(queue, lambda: self.call(verb, size=size, wakes=True), timeout)

    def _when_there_is_room(self, queue: str, put: Callable[[], R], timeout: float | None) -> R:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            rings = self.doorbell.rings
            try:
                return put()
            except QuotaExceeded as error:
                with self.store.reader() as db:
                    waits = declaring.read(db, queue).policy.overflow == "block" and not error.lasts
                left = BLOCKED_SECONDS if deadline is None else min(BLOCKED_SECONDS, deadline - time.monotonic())
                if not waits or left <= 0:
                    raise
                self.doorbell.wait(rings, left)

    # topics

    def bind(self, pattern: str, queue: str, *, filter: str | None = None) -> None:
        """From now on what is published to a topic of ``pattern``, and fits ``filter``, goes into ``queue`` too. In a
        pattern ``*`` is one level, and ``#`` at its end all that may follow."""

        def verb(tx: Unit) -> None:
            topics.bind(tx, pattern, declaring.found(tx, queue, auto_create=self._auto_create), filter)

        self.call(verb)

    def unbind(self, pattern: str, queue: str) -> int:
        """Nothing of ``pattern`` goes into ``queue`` any more. Answers how many bindings there were."""
        return self.call(lambda tx: topics.unbind(tx, pattern, declaring.declared(tx, queue)))

    def publish(self, topic: str, body: object, *, mandatory: bool = False, **options: Any) -> Published:
        """Put a message into every queue that is bound to ``topic``, or into none of them; answers its position in the
        first, and their names. ``options``: see ``put``. Where no queue takes it, that is on record as ``unrouted``;
        ``mandatory``: ``Unrouted`` is raised too. Within a transaction it answers neither. Raises ``QuotaExceeded``,
        also where a queue would have its producers wait."""
        one = self._stored(body, options)
        topics.check_topic(topic)
        open_one = self._open_one
        if open_one is not None:
            at = len(open_one.positions)
            open_one.positions.append(0)

            def later(tx: Unit) -> None:
                open_one.positions[at] = topics.publish(tx, topic, one, mandatory=mandatory).position or 0

            open_one.verbs.append(later)
            open_one.size += len(one.body)
            return Published(None, ())
        done = self.call(lambda tx: topics.publish(tx, topic, one), size=len(one.body), wakes=True)
        if mandatory and not done.queues:
            raise topics.unrouted(topic)
        return done

    # transactions

    def transaction(self) -> Transaction:
        """Begin a transaction of this thread, for a ``with`` statement: what is put and settled in it is done together
        at its end, or not at all where that raises. Raises ``TransactionAlreadyStarted``."""
        return self.begin()

    def begin(self) -> Transaction:
        """Begin a transaction, which ``commit`` or ``rollback`` ends."""
        if self._open_one is not None:
            raise TransactionAlreadyStarted("This thread has begun a transaction. End it: `commit()` or `rollback()`.")
        self._own.transaction = Transaction(self.commit, self.rollback)
        return self._own.transaction  # type: ignore[no-any-return]

    def commit(self) -> list[int]:
        """Do what the transaction has collected; answers the positions of what was put in it."""
        done = self._ended()
        self.call(done, size=done.size, wakes=True)
        for told in done.committed:
            told()
        return done.positions

    def rollback(self) -> None:
        """Forget what the transaction has collected."""
        self._ended()

    @property
    def in_transaction(self) -> bool:
        """Whether this thread has begun a transaction."""
        return self._open_one is not None

    def at_commit(self, told: Callable[[], object]) -> None:
        """Have ``told`` called when the transaction of this thread is committed."""
        open_one = self._open_one
        assert open_one is not None
        open_one.committed.append(told)

    @property
    def _open_one(self) -> Transaction | None:
        return getattr(self._own, "transaction", None)

    def _ended(self) -> Transaction:
        done = self._open_one
        if done is None:
            raise TransactionNotStarted("This thread has begun no transaction. Begin one: `begin()`.")
        self._own.transaction = None
        return done

    # consuming

    def receive(
        self,
        queue: str | Sequence[str],
        max: int = 1,
        *,
        max_bytes: int | None = None,
        wait: float = 0.0,
        lease: float | None = None,
        filter: str | Filter | None = None,
        consumer: str | None = None,
        lessee: int | None = None,
    ) -> Received:
        """Lease up to ``max`` messages of a queue, or of several with a fair part of each. ``wait``: so long, where
        nothing is ready. ``lease``: seconds, ``None``: as the queue says. Raises ``QueueBusy`` where another consumer
        alone reads a queue."""
        names = [queue] if isinstance(queue, str) else list(queue)
        if not names:
            raise ConfigurationError("There is no queue to receive from: name one, or several.")
        if not isinstance(max, int) or max < 1:
            raise ConfigurationError(f"`max` is {max!r}; it is at least 1.")
        if lease is not None and not 0 < lease <= LATEST:
            raise ConfigurationError(
                f"`lease` is {lease!r}; it is more than 0 seconds, or None for what the queue says."
            )
        wanted = filters.parse(filter) if isinstance(filter, str) else filter
        request = Request(
            max, max_bytes, None if lease is None else ms(lease), wanted, consumer or self.name or "", lessee
        )
        deadline = time.monotonic() + wait
        while True:
            rings = self.doorbell.rings
            found, offset = self.call(lambda tx: self._lease(tx, names, request))
            left = deadline - time.monotonic()
            if found or left <= 0:
                return Received(
                    (Message(self, one, _shown(one.until, offset)) for one in found), lambda: self._count(names, wanted)
                )
            self.doorbell.wait(rings, min(left, 1.0))

    def _lease(self, tx: Unit, names: list[str], request: Request) -> tuple[list[Leased], int]:
        self._turn += 1
        turned = names[self._turn % len(names) :] + names[: self._turn % len(names)]
        found = lease(tx, [declaring.found(tx, name, auto_create=self._auto_create) for name in turned], request)
        return found, tx.now - tx.measured

    def _count(self, names: list[str], wanted: Filter | None) -> int:
        with self.store.reader() as db:
            now = self.store.reached()
            return min(MOST_COUNTED, sum(count_ready(db, declaring.read(db, name), wanted, now) for name in names))

    def subscribe(
        self,
        queue: str | Sequence[str] = (),
        *,
        topic: str | None = None,
        client: str | None = None,
        name: str | None = None,
        max_backlog: int = 1,
        filter: str | None = None,
        lease: float | None = None,
        ack_batch: int | None = None,
        ack_timeout: float = 1.0,
        is_parallel: bool = False,
    ) -> Subscription:
        """Begin to consume a queue, or several with a fair part of each. ``client``: the consumer's name, ``None``: the
        node's. ``max_backlog``: so many messages it may have that are not acknowledged; what the queue allows is
        granted. ``lease``: seconds, ``None``: as the queue says. Acknowledgements are sent ``ack_batch`` together,
        ``None``: a third of the backlog, or when the oldest is ``ack_timeout`` seconds old. ``is_parallel``: several
        messages are handled at a time, those of one ordered group one after the other. Raises ``QueueBusy`` where
        another consumer alone reads a queue.

        ``topic``, instead of a queue: consume what is published to topics of this pattern and fits ``filter``. The
        subscription ``name`` of the client collects that in a queue of its own from now on, also while no program
        consumes it, until ``unsubscribe``."""
        if topic is not None:
            if queue or name is None:
                raise ConfigurationError("A subscription to a `topic` has a `name`, and no `queue` beside it.")
            queue, filter = self.subscribe_durable(topic, name, client=client, filter=filter), None
        if not queue:
            raise ConfigurationError("A subscription is to a `queue`, to several, or to a `topic`: give one.")
        terms = Terms(client or self.name or "", name, max_backlog, None if lease is None else ms(lease), filter)
        names = [queue] if isinstance(queue, str) else list(queue)
        acknowledging = Acknowledging(ack_batch, ms(ack_timeout), is_parallel)
        flow = begin(self, names, terms, acknowledging, auto_create=self._auto_create)
        subscription = self._subscriptions[flow] = Subscription(self, flow)
        self.supply.add(flow)
        return subscription

    def subscribe_durable(self, topic: str, name: str, *, client: str | None = None, filter: str | None = None) -> str:
        """Begin a subscription to topics without consuming it; answers the name of its queue. See ``subscribe``."""
        who = client or self.name or ""
        return self.call(lambda tx: topics.subscribe_durable(tx, who, name, topic, filter)).name

    def unsubscribe(self, name: str, *, client: str | None = None) -> Cleared:
        """End a subscription to topics: nothing is collected for it any more, and what was is purged."""
        return self.call(lambda tx: topics.unsubscribe(tx, client or self.name or "", name))

    def clients(self) -> list[Client]:
        """Who has subscribed to queues and topics, and whether it is there."""
        with self.store.reader() as db:
            return topics.clients(db, self.store.instances, self.store.clock())

    def consume(
        self,
        queue: str | Sequence[str],
        function: Callable[[Message], object],
        *,
        threads: int = 1,
        max_backlog: int | None = None,
        **options: Any,
    ) -> Consumer:
        """Have ``function`` called with each message, by ``threads`` threads: it is acknowledged when that returns, and
        has failed when it raises. ``max_backlog``: one message a thread, if none is given. The other ``options`` are
        those of ``subscribe``."""
        subscription = self.subscribe(queue, max_backlog=max_backlog or threads, is_parallel=True, **options)
        return Consumer(subscription, function, threads)

    def forget(self, flow: Flow) -> None:
        """The subscription of a flow is closed."""
        self.supply.remove(flow)
        self._subscriptions.pop(flow, None)

    def _message_of(self, flow: Flow, one: Leased, offset: int) -> Message:
        return Message(self._subscriptions.get(flow), one, _shown(one.until, offset))

    def ack(self, messages: Sequence[Message]) -> list[Settlement]:
        """The messages are taken; answers what became of each. Raises ``LeaseLost`` where the lease of one had ended:
        the others are settled all the same."""
        may_free_group = any(one.number is not None for one in messages)
        try:
            return self._settle(messages, settling.ack, wakes=may_free_group)
        finally:
            self.doorbell.settled()  # of what is in no group nothing else is ready: only room was made

    def release(self, messages: Sequence[Message]) -> list[Settlement]:
        """The messages go back to their places. See ``ack``."""
        return self._settle(messages, settling.release, wakes=True)

    def nack(self, messages: Sequence[Message], error: object = "") -> list[Settlement]:
        """The consumer has failed with an error. See ``ack``."""
        return self._settle(messages, lambda tx, leases: settling.nack(tx, leases, _text(error)), wakes=True)

    def reject(self, messages: Sequence[Message], reason: object = "") -> list[Settlement]:
        """The messages are dead letters at once, with ``reason`` as their last error. See ``ack``."""
        error = _text(reason) or None
        return self._settle(messages, lambda tx, leases: settling.reject(tx, leases, error=error), wakes=True)

    def expire(self, messages: Sequence[Message]) -> list[Settlement]:
        """The messages are dead letters at once: they are no longer wanted. See ``ack``."""
        return self._settle(messages, settling.expire, wakes=True)

    def renew(self, messages: Sequence[Message], lease: float | None = None) -> list[Settlement]:
        """The leases begin anew, for ``lease`` seconds, or as long as the queue says. See ``ack``."""
        answers = self._settle(
            messages, lambda tx, leases: settling.renew(tx, leases, None if lease is None else ms(lease))
        )
        return answers

    def hand_back(self, messages: Sequence[Message]) -> list[Settlement]:
        """Messages that were not begun go back, and nothing is counted. See ``ack``."""
        return self._settle(messages, settling.hand_back, wakes=True)

    def _settle(
        self,
        messages: Sequence[Message],
        verb: Callable[[Unit, Sequence[Lease]], list[Settlement]],
        *,
        wakes: bool = False,
    ) -> list[Settlement]:
        leases = [one.lease for one in messages]
        open_one = self._open_one
        if open_one is not None:
            open_one.verbs.append(lambda tx: all_kept(messages, verb(tx, leases)))
            return [Settlement.SETTLED] * len(leases)
        return all_kept(messages, self.call(lambda tx: verb(tx, leases), wakes=wakes, keep=True))

    def ack_at(self, queue: str, position: int) -> Settlement:
        """Settle the message at ``position`` as taken, in no lease's name: what another consumer has leased is not
        touched, unless the queue's leasing is ``sublet``."""
        return self.call(lambda tx: settling.ack(tx, [Lease(position)]), wakes=True)[0]

    def received(self, queue: str, message_id: str) -> Settlement:
        """The message of this id was received: it is settled, also where another consumer has it, unless it was
        before."""

        def verb(tx: Unit) -> Settlement:
            return clearing.received(tx, declaring.declared(tx, queue), message_id)

        return self.call(verb, wakes=True)

    def settle(self, queue: str, filter: str | Filter, action: str = "ack") -> Cleared:
        """Settle what fits a filter, delivered or not, in one transaction: ``ack``, ``expire`` or ``reject``. What
        others have leased is skipped, unless the queue's leasing is ``sublet``."""
        if action not in clearing.ACTIONS:
            raise ConfigurationError(f"`action` is {action!r}; it is one of {', '.join(clearing.ACTIONS)}.")
        wanted = filters.parse(filter) if isinstance(filter, str) else filter
        return self.call(
            lambda tx: clearing.settle_where(tx, declaring.declared(tx, queue), wanted, action), wakes=True
        )

    # looking

    def peek(
        self,
        queue: str,
        *,
        after: int = 0,
        limit: int = 50,
        filter: str | Filter | None = None,
    ) -> list[Message]:
        """Look at up to ``limit`` messages behind the position ``after``, whatever their state; nothing changes. Raises
        ``PeekForbidden``."""
        wanted = filters.parse(filter) if isinstance(filter, str) else filter
        with self.store.reader() as db:
            found = declaring.read(db, queue)
            seen = browsing.peek(db, found, self.store.clock(), after, limit, wanted)
        return [_looked_at(found, one) for one in seen]

    def get(self, queue: str, position: int) -> Message | None:
        """Look at the message at ``position``; ``None`` where it is not in the queue, or settled."""
        with self.store.reader() as db:
            found = declaring.read(db, queue)
            seen = browsing.get(db, found, self.store.clock(), position)
        return None if seen is None else _looked_at(found, seen)

    def dead(self, queue: str) -> DeadLetters:
        """The dead letters of a queue."""
        return DeadLetters(self, queue)

    # the store

    def call(self, verb: Callable[[Unit], R], *, size: int = 0, wakes: bool = False, keep: bool = False) -> R:
        """Run a verb in a transaction. ``wakes``: something may be ready then. ``keep``: it is tried until it is
        stored, also where the disk is full."""
        if self._pid != os.getpid():
            raise StoreUnavailable(
                f"{self.store.path}: the node was opened in another process, of which this one is a fork.",
                "Call `connect` in the child.",
            )
        result = self.store.call(verb, size=size, keep=keep)
        if wakes:
            self.doorbell.tell()
        return result

    def submit(self, verb: Callable[[Unit], R], *, size: int = 0, keep: bool = False) -> Future[R]:
        """Have a verb run in a transaction after which something may be ready; waits for nothing."""
        done: Future[R] = Future()
        done.set_running_or_notify_cancel()

        def committed(result: R | None, error: BaseException | None) -> None:
            if error is not None:
                done.set_exception(error)
                return
            done.set_result(cast(R, result))
            self.doorbell.tell_soon()

        self.store.submit(verb, committed, size=size, keep=keep)
        return done


def _looked_at(queue: Declared, one: browsing.Peeked) -> Message:
    until = None if one.leased_until is None else one.leased_until / 1000
    seen = Leased(queue, one.seen, 0)
    return Message(None, seen, until, state=one.state, reason=one.reason or None, last_error=one.last_error)


def _shown(until: int, offset: int) -> float | None:
    return None if until >= FOREVER else (until + offset) / 1000


def _text(error: object) -> str:
    if isinstance(error, BaseException):
        return f"{type(error).__name__}: {error}"
    return str(error)


def _leave(tx: Unit) -> None:
    """Nothing is leased here any more, and nothing of it is counted."""
    while clearing.leave(tx):
        continue
    tx.execute(queues.LEAVE, {"key": tx.instance, "now": tx.now})
    tx.count_now()
