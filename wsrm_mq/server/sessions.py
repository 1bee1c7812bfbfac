"""Sessions: the presence of clients on other machines, and what each has leased.

A session ends when its client says so, when its socket is closed, or when it was silent for too long, as a clock tells
that is never set. Then its leases return at once, and nothing of them is counted. When the server dies, so do all of
its sessions: the store frees what an instance had.

All methods are of one event loop, and none blocks it.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from wsrm_mq.errors import (
    KeeperGone,
    LeaseLost,
    NotAllowed,
    NotFound,
    SessionEnded,
    StoreUnavailable,
    SubscriptionClosed,
)
from wsrm_mq.node import Node
from wsrm_mq.node.message import RETURNS, Message
from wsrm_mq.node.opened import Opened
from wsrm_mq.node.subscription import Subscription
from wsrm_mq.queue import declaring, settling, subscribing
from wsrm_mq.queue.expiring import holder_died, holder_left
from wsrm_mq.queue.settling import Lease, Settlement
from wsrm_mq.server.acts import PutOne, Settle, collect, hand_back, settled
from wsrm_mq.server.answers import Answers, Consumer
from wsrm_mq.server.bounds import Bounds, Use
from wsrm_mq.server.waiting import Lines, Wanted, give_back, taken
from wsrm_mq.store.transaction import Transaction as Unit

WATCH_SECONDS: Final = 0.25
"""The time between two looks for sessions that were silent for too long."""
REMEMBERED: Final = 10_000
LATE_SECONDS: Final = 60.0
"""A lease that has ended is forgotten so much later: the clock of the store is another one."""
SHARED_SECONDS: Final = 60.0


@dataclass(slots=True, eq=False)
class Had:
    """A message that a session has leased; ``subscription``: by which. ``until``: when the lease ends, by the clock of
    sessions, and ``lasts``, how many seconds it had; both ``None``: it has no end. ``is_over``: that was noted.
    ``request``: the number of the request by whose answer it left."""

    message: Message
    subscription: Subscription | None
    lasts: float | None
    until: float | None
    is_over: bool = False
    request: int | None = None


class Session:
    """One client of one principal. ``name`` is a secret of both sides. ``timeout``: it ends when it was silent for so
    many seconds; ``None``: never by that."""

    def __init__(self, sessions: Sessions, principal: str, client: str, timeout: float | None) -> None:
        self.name = secrets.token_urlsafe(24)
        self.principal = principal
        self.client = client
        self.timeout = timeout
        self.is_open = True
        self.heard_at = sessions.clock()
        self.seen_at = time.time()
        """When it was heard last, in seconds since the epoch: to be shown."""
        self._sessions = sessions
        self._node = sessions.node
        self._use = sessions.use_of(principal)
        self._busy = 0
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._had: dict[int, Had] = {}
        self._through: dict[tuple[int, int], None] = {}
        """Position and lease of what it has settled, the last ``REMEMBERED``: a request whose answer was lost comes
        again."""
        self._subscriptions: dict[int, Subscription] = {}
        self._received_from: set[str] = set()
        self.answers = Answers()
        self._returning = asyncio.Lock()
        """Held while messages that its client has not got go back: the end of one return would let a subscription go on
        amid another one."""
        self.clients: set[str] = set()
        """The names of clients as which it has subscribed."""

    # presence

    @contextmanager
    def heard(self) -> Iterator[None]:
        """A request of it runs: it is there as long as that does. Raises ``SessionEnded``."""
        self._check()
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            self.hear()

    def hear(self) -> None:
        """Note that its client is there."""
        self.heard_at, self.seen_at = self._sessions.clock(), time.time()

    def is_silent(self, now: float) -> bool:
        """Whether its client was silent for too long; of the session of requests that name none, whether nothing is
        left of it."""
        if self._busy or (self.timeout is None and (self._had or not self._sessions.is_shared(self))):
            return False
        return now - self.heard_at >= (self.timeout or SHARED_SECONDS)

    def _check(self) -> None:
        if not self.is_open:
            raise SessionEnded("This session has ended. Begin another one; what it had leased comes again.")

    @property
    def positions(self) -> Set[int]:
        """The positions of the messages that it has."""
        return self._had.keys()

    @property
    def leased(self) -> int:
        """How many messages it has."""
        return len(self._had)

    @property
    def subscriptions(self) -> list[int]:
        return list(self._subscriptions)

    async def end(self, *, has_died: bool = False) -> None:
        """Give back what it has, and close its subscriptions. Who waits in it is told ``SessionEnded``. ``has_died``:
        its client is gone and has not said so, which counts against the message that it was at, as the death of a
        consumer's process does; nothing else of it is a failure."""
        if not self.is_open:
            return
        self.is_open = False
        self._sessions.forget(self)
        self._ended.set_result(None)
        subscriptions, had = list(self._subscriptions.values()), list(self._had.values())
        gone = self.clients.difference(*(one.clients for one in self._sessions.all))
        await asyncio.to_thread(self._leave, subscriptions, had, gone, has_died=has_died)
        for one in list(self._had.values()):
            self._dropped(one)
        self._use.give("leases", sum(one.max_backlog for one in subscriptions))
        self._use.give("subscriptions", len(subscriptions))
        self._use.give("sessions")

    def _leave(self, subscriptions: list[Subscription], had: list[Had], gone: set[str], *, has_died: bool) -> None:
        for subscription in subscriptions:
            subscription.pause(is_on=True)
        homes = self._by_home(had)
        ahead: dict[Opened, list[Lease]] = {self._node: []} if self._received_from else {}
        for message in [found for one in subscriptions for part in one.parts for found in part.flow.recall()]:
            ahead.setdefault(self._home_of(message), []).append(message.lease)
        for home in homes | ahead:
            with suppress(KeeperGone):
                verb = partial(self._put_back, ahead.get(home, []), homes.get(home, []), has_died)
                home.call(verb, wakes=True, keep=True)
        for subscription in subscriptions:
            with suppress(KeeperGone):
                subscription.close()
        for name in gone:
            self._node.call(partial(subscribing.client_gone, name=name))

    def _put_back(self, ahead: list[Lease], had: list[Had], has_died: bool, tx: Unit) -> None:
        """``ahead``: what was not sent to its client, and is none of what that has died at."""
        settling.hand_back(tx, ahead)
        leases = [one.message.lease for one in had]
        (holder_died if has_died else holder_left)(tx, leases, f"its consumer is gone: {self.client}")
        settling.put_back(tx, leases)
        for name in self._received_from:
            row = tx.queue_row(name)
            if row is not None:
                declaring.let_go(tx, declaring.Declared(*row), self._consumer)

    @property
    def _consumer(self) -> str:
        """Its name as a reader of a queue that one consumer alone may read."""
        return f"{self.client} ({self.name[:6]})"

    def _by_home(self, had: Sequence[Had]) -> dict[Opened, list[Had]]:
        homes: dict[Opened, list[Had]] = {}
        for one in had:
            homes.setdefault(self._home_of(one.message), []).append(one)
        return homes

    def _home_of(self, message: Message) -> Opened:
        home = message.home
        return home if isinstance(home, Opened) else self._node

    # leasing

    async def receive(
        self,
        queues: Sequence[str],
        most: int = 1,
        *,
        wait: float = 0.0,
        filter: str | None = None,
        gone: Sequence[asyncio.Future[None]] = (),
        **options: Any,
    ) -> list[Message]:
        """See ``Node.receive``; ``wait`` costs no thread. It ends when one of ``gone`` is done. Raises ``SessionEnded``
        and ``LimitReached``."""
        if owed := self.answers.owed(queues, most):
            return owed
        self._use.room("leases")
        options["consumer"] = self._consumer
        wanted = Wanted(tuple(queues), filter, lambda: self._use.part_of(most, "leases"), options)
        self._received_from.update(queues)
        with self._use.taken("waiting"):
            found = await self._sessions.lines.receive(wanted, wait, [self._ended, *gone])
        if self._sessions.is_shared(self) and any(one.leased_until is None and not one.is_barrier for one in found):
            await give_back(self._node, found)
            raise NotAllowed("A lease that has no end is of a session: begin one, or name the seconds of the `lease`.")
        return await self._given(found, None)

    async def _given(self, found: list[Message], subscription: Subscription | None) -> list[Message]:
        """Note messages that are given to its client."""
        if not self.is_open:
            if subscription is None:
                await give_back(self._node, found)
            self._check()
        for one in found:
            if not one.is_barrier:
                if subscription is None and one.position not in self._had:
                    self._use.add("leases")
                lasts = None if one.leased_until is None else one.leased_until - time.time()
                until = None if lasts is None else self._sessions.clock() + lasts
                self._had[one.position] = Had(one, subscription, lasts, until)
        return found

    async def subscribe(
        self, queues: Sequence[str] = (), *, client: str | None = None, max_backlog: int = 1, **options: Any
    ) -> Subscription:
        """See ``Node.subscribe``. It is known by its ``key``, and ends with the session at the latest."""
        self._check()
        backlog = min(max_backlog, self._use.room("leases"))
        self._use.take("subscriptions")
        self._use.add("leases", backlog)
        who, begin = client or self.client, self._node.subscribe
        try:
            subscription = await asyncio.to_thread(
                begin, tuple(queues), client=who, max_backlog=backlog, ack_batch=1, **options
            )
        except BaseException:
            self._use.give("subscriptions")
            self._use.give("leases", backlog)
            raise
        self._use.give("leases", backlog - subscription.max_backlog)
        if not self.is_open:
            self._use.give("subscriptions")
            self._use.give("leases", subscription.max_backlog)
            await asyncio.to_thread(subscription.close)
            self._check()
        self._subscriptions[subscription.key] = subscription
        self.clients.add(who)
        return subscription

    def subscription(self, key: int) -> Subscription:
        """Raises ``NotFound``."""
        found = self._subscriptions.get(key)
        if found is None:
            raise NotFound(f"This session has no subscription {key}. Subscribe again.")
        return found

    async def take(
        self, key: int, most: int = 1, *, wait: float = 0.0, gone: Sequence[asyncio.Future[None]] = ()
    ) -> list[Message]:
        """The messages that are here for a subscription, or that come within ``wait`` seconds; they are leased. See
        ``receive``."""
        subscription = self.subscription(key)
        if owed := self.answers.owed([key], most):
            return owed
        with self._use.taken("waiting"):
            try:
                found = await taken(subscription, most, wait, [self._ended, *gone])
            except SubscriptionClosed:
                self._check()
                raise
        return await self._given(found, subscription)

    async def unsubscribe(self, key: int) -> None:
        """End a subscription; what it has leased goes back, which is no failure."""
        subscription = self.subscription(key)
        del self._subscriptions[key]
        self._had = {at: one for at, one in self._had.items() if one.subscription is not subscription}
        await asyncio.to_thread(subscription.close)
        self._use.give("subscriptions")
        self._use.give("leases", subscription.max_backlog)

    # settling

    async def settle(self, asked: Sequence[Settle]) -> list[Settlement]:
        """Settle what it has leased, in the order given and in one commit for each store that has some of it; answers
        what became of each. What it has not, or no longer, is ``LOST``."""
        self._check()
        answers = [
            Settlement.ALREADY_SETTLED if (one.position, one.lease) in self._through else Settlement.LOST
            for one in asked
        ]
        homes: dict[Opened, list[int]] = {}
        had = [self._of(one) for one in asked]
        for index, one in enumerate(had):
            if one is not None:
                homes.setdefault(self._home_of(one.message), []).append(index)
        for home, indices in homes.items():
            these = [(asked[index], one.message) for index in indices if (one := had[index]) is not None]
            wakes = any(act.action != "ack" or message.frees_others for act, message in these)
            verb = partial(settled, [act for act, _message in these])
            found = await asyncio.wrap_future(home.submit(verb, keep=True, wakes=wakes))
            for index, answer in zip(indices, found, strict=True):
                answers[index] = answer
        for act, one, answer in zip(asked, had, answers, strict=True):
            if one is not None and answer is not Settlement.OUT_OF_ORDER:
                self._settled(act, one, answer)
        return answers

    async def give_back(self, messages: Sequence[Message]) -> None:
        """Messages that its client has not got go back, uncounted. So does what waits behind them for a subscription:
        all of it comes again, in its order. What a process kept that is gone is lost, and keeps nothing else back."""
        self.answers.owe(messages)
        async with self._returning:
            found = [self._had.get(message.position) for message in messages]
            had = [one for one, message in zip(found, messages, strict=True) if one and one.message is message]
            subscriptions = {one.subscription for one in had if one.subscription is not None}
            try:
                had += await self._recalled(subscriptions)
                self._check()
                for home, mine in self._by_home(had).items():
                    leases = [one.message.lease for one in mine]
                    with _keeper_gone(home, self._node):
                        await asyncio.wrap_future(home.submit(partial(hand_back, leases=leases), keep=True))
                    for one in mine:
                        self._dropped(one)
                        if one.subscription is not None:
                            one.subscription.gone([one.message], is_returned=True)
            finally:
                for subscription in subscriptions:
                    subscription.pause(is_on=False)

    async def _recalled(self, subscriptions: Set[Subscription]) -> list[Had]:
        """The messages that wait for these subscriptions, which are paused; none is on its way to them any more."""
        parts = [part for one in subscriptions for part in one.parts if part.flow.is_open]
        for one in subscriptions:
            one.pause(is_on=True)
        for home in {part.home for part in parts}:
            assert isinstance(home, Opened)
            with _keeper_gone(home, self._node):
                await asyncio.wrap_future(home.submit(lambda _tx: None, wakes=False))  # behind what was asked before
        found = [(part, message) for part in parts for message in part.flow.recall()]
        for part, message in found:
            await self._given([message], part)
        return [self._had[message.position] for _part, message in found]

    def answered(self, request: int | None, consumers: Sequence[Consumer], messages: Sequence[Message]) -> None:
        """Messages leave with the answer to a request of these consumers; ``None``: that has no number."""
        self.answers.sent(request, consumers, messages)
        for message in messages:
            if not message.is_barrier:
                self._had[message.position].request = request

    async def lost(self, requests: Collection[int], *, for_good: bool = True) -> None:
        """Its client has not got the answers to these requests: what they have leased goes back, uncounted.
        ``for_good``: nor does it wait for another one."""
        if requests:
            await self.answers.lose(requests, for_good=for_good)
            had = [one.message for one in self._had.values() if one.request in requests]
            await self.give_back([*self.answers.barriers_of(requests), *had])

    def _of(self, act: Settle) -> Had | None:
        one = self._had.get(act.position)
        return one if one is not None and one.message.lease.fence == act.lease else None

    def _settled(self, act: Settle, one: Had, answer: Settlement) -> None:
        if act.action == "renew" and answer is not Settlement.LOST:
            one.lasts = one.lasts if act.seconds is None else act.seconds
            one.until = None if one.lasts is None else self._sessions.clock() + one.lasts
            if one.subscription is not None:
                one.subscription.renewed([one.message], act.seconds)
            return
        self._dropped(one)
        if answer is Settlement.SETTLED and act.action not in RETURNS:
            self._through[act.position, act.lease] = None
            if len(self._through) > REMEMBERED:
                del self._through[next(iter(self._through))]
        if one.subscription is not None:
            one.subscription.gone([one.message], is_returned=act.action in RETURNS, answers=[answer])

    def _dropped(self, one: Had) -> None:
        """Note that it has a message no longer."""
        if self._had.get(one.message.position) is one:
            del self._had[one.message.position]
            if one.subscription is None:
                self._use.give("leases")

    async def transaction(self, acts: Sequence[Settle | PutOne]) -> list[int]:
        """Put and settle together, all or nothing, in the order given; answers the positions of what was put. Raises
        what a put raises, and ``LeaseLost``."""
        self._check()
        had = [self._of(act) if isinstance(act, Settle) else None for act in acts]
        for act, one in zip(acts, had, strict=True):
            if isinstance(act, Settle) and one is None:
                raise LeaseLost(f"This session does not have the message at position {act.position}, or no longer.")
        positions = await asyncio.to_thread(self._transact, acts, had)
        for one in had:
            if one is not None:
                self._dropped(one)
        return positions

    def _transact(self, acts: Sequence[Settle | PutOne], had: Sequence[Had | None]) -> list[int]:
        node = self._node
        with node.transaction() as collected:
            for act, one in zip(acts, had, strict=True):
                if isinstance(act, Settle):
                    assert one is not None
                    collect(act, one.message)
                else:
                    act.collect(node)
        return collected.positions

    def forget_ended(self, now: float) -> None:
        """Note what it has not settled within the lease, so that its group comes again; long after that, drop it. Of
        what came by a subscription that knows whether the lease lasts: it may have been renewed with its group."""
        for one in list(self._had.values()):
            if one.until is None or one.until >= now:
                continue
            if one.subscription is not None and not one.is_over:
                one.is_over = one.subscription.is_over(one.message)
            if one.until + LATE_SECONDS < now and (one.subscription is None or one.is_over):
                self._dropped(one)


class Sessions:
    """All sessions of one server. ``clock``: seconds; it is never set."""

    def __init__(
        self,
        node: Node,
        bounds: Bounds = Bounds(),  # noqa: B008 - it is frozen
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.node = node
        self.clock = clock
        self.lines = Lines(node)
        self._bounds = bounds
        self._open: dict[str, Session] = {}
        self._shared: dict[str, Session] = {}
        self._uses: dict[str, Use] = {}

    def use_of(self, principal: str) -> Use:
        """How much a principal has at this time."""
        return self._uses.setdefault(principal, Use(self._bounds))

    def begin(self, principal: str, client: str | None = None, timeout: float | None = None) -> Session:
        """Begin a session. ``client``: its name, ``None``: the principal's. Raises ``LimitReached``."""
        self.use_of(principal).take("sessions")
        session = Session(self, principal, client or principal, timeout)
        self._open[session.name] = session
        return session

    def of(self, principal: str, name: str) -> Session:
        """The session of this name. Raises ``SessionEnded`` where the principal has none."""
        found = self._open.get(name)
        if found is None or found.principal != principal:
            raise SessionEnded("There is no such session, or it has ended. Begin another one; what it had comes again.")
        return found

    def shared(self, principal: str) -> Session:
        """The session of all requests of a principal that name none. Its leases end by time alone."""
        found = self._shared.get(principal)
        if found is None:
            found = self._shared[principal] = self.begin(principal)
        return found

    def is_shared(self, session: Session) -> bool:
        return self._shared.get(session.principal) is session

    def forget(self, session: Session) -> None:
        self._open.pop(session.name, None)
        if self.is_shared(session):
            del self._shared[session.principal]

    @property
    def counts(self) -> Counter[str]:
        """How much of each bound all principals have together."""
        return sum((one.used for one in self._uses.values()), Counter())

    @property
    def all(self) -> list[Session]:
        """The sessions that are open."""
        return list(self._open.values())

    async def watch(self) -> None:
        """End what was silent for too long; it runs as long as the server does."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            now = self.clock()
            for one in self.all:
                one.forget_ended(now)
            silent = [one for one in self.all if one.is_silent(now)]
            for one in silent:
                if one.timeout is not None:
                    self.node.telling.tell(
                        "session.silent", client=one.client, principal=one.principal, leased=one.leased
                    )
            await asyncio.gather(*(one.end(has_died=True) for one in silent), return_exceptions=True)

    async def close(self) -> None:
        """End all sessions."""
        await asyncio.gather(*(one.end() for one in self.all))


def _keeper_gone(home: Opened, node: Node) -> AbstractContextManager[None]:
    """Within it, no answer of the process that keeps the express messages of ``home`` is no error."""
    return nullcontext() if home is node else suppress(StoreUnavailable)
