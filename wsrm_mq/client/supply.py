"""The supply of a remote node's consumers. For each, a request that waits for messages is under way while it has room
for some. Where it has none its acknowledgements make it: they go with the request for the next messages, else by
themselves, as do renewals of the leases of what waits for its turn.

When the server has forgotten a subscription, as it was restarted, it is begun anew; what was leased comes again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from wsrm_mq.client.forms import Answer, asking, messages, settlement, settlements, settling
from wsrm_mq.client.line import WAIT_SECONDS, Line
from wsrm_mq.errors import (
    NoQueueServer,
    NotAnswered,
    NotAuthenticated,
    NotFound,
    Overloaded,
    SessionEnded,
    StoreUnavailable,
    WSRMError,
)
from wsrm_mq.node.backlog import Held
from wsrm_mq.node.flow import Flow, Rest
from wsrm_mq.node.message import Message
from wsrm_mq.queue.settling import Settlement

if TYPE_CHECKING:
    from wsrm_mq.client.node import RemoteNode

LOOK_SECONDS: Final = 1.0
AGAIN_SECONDS: Final = 0.5
"""The pause between two tries to reach a server that is away."""
LEAVE_SECONDS: Final = 5.0
"""The longest that a subscription which has ended by an error waits, as it is closed, until its server knows that."""
CARRY_SECONDS: Final = 0.25
"""The longest that a request with acknowledgements waits for messages: those that follow wait for its answer."""
MOST_BESIDE: Final = 100
"""Acknowledgements that go with a request for messages: their results are in a header, and proxies take some 4 KB."""
Told = Callable[[Sequence[str]], None]
_AWAY: Final = (NotAnswered, StoreUnavailable, NotAuthenticated, Overloaded)


def now_ms() -> int:
    """The clock of leases, which is never set."""
    return time.monotonic_ns() // 1_000_000


class Feed:
    """The two tasks that feed one subscription."""

    def __init__(self, node: RemoteNode, flow: Flow, begin: Callable[[], Any]) -> None:
        self.flow = flow
        self._node = node
        self._line = node.line
        self._begin = begin
        self._asked = asyncio.Event()
        self._renewing = asyncio.Lock()
        self._sending = asyncio.Lock()
        """Held while acknowledgements are under way: those of a group are sent in order."""
        self._idle: asyncio.Future[list[Held]] | None = None
        """A future that is done, with what is to be acknowledged, when there is room for messages by that."""
        self.withdrawn: dict[int, int] = {}
        """Leases whose messages were settled otherwise since the request began that is under way, which may bring them:
        fences by position."""
        self.looks_at = 0
        """When it looks next whether something is due, ms."""
        self._tasks = [self._line.begin(self._lease()), self._line.begin(self._settle())]
        self._leaving: list[asyncio.Task[None]] = []

    def ask(self) -> None:
        self._line.wake(self._asked)

    def look_for_due(self) -> None:
        """Have it look when the next is due, where that is earlier than it would."""
        due = self.flow.due_at()
        if due is not None and due < self.looks_at:
            self.ask()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._leaving:
            await asyncio.wait(self._leaving, timeout=LEAVE_SECONDS)

    async def _lease(self) -> None:
        while self.flow.is_open:
            key = self.flow.granted.key
            self.withdrawn.clear()
            try:
                if self.flow.load.room > 0:
                    answer = await self._ask_for_messages(key, WAIT_SECONDS)
                elif acknowledged := await self._made_room():
                    answer = await self._acknowledge_for_messages(acknowledged)
                else:
                    continue
                found = messages(answer, self._node.subscription_of(self.flow))
            except WSRMError as error:
                await self._mend(key, error)
                continue
            held = [Held(one.message, _end(one.told.leased_for), one.told.lane) for one in found]
            gone = [one for one in held if self.withdrawn.get(one.position) == one.fence]
            if not self.flow.arrive([one for one in held if one not in gone]):
                return  # the end of the subscription gives them back
            self.look_for_due()
            await self._node.let_go([one.message for one in gone])

    async def _ask_for_messages(self, key: int, wait: float, acts: object = None, told: Told | None = None) -> Answer:
        terms = {"max": self.flow.granted.backlog, "wait": wait}
        wanted = asking("POST", "subscriptions", key, "leases", json=acts and {"settlements": acts}, **terms)
        return await self._line.ask(wanted._replace(in_session=True, leases=True, told=told), patience=0)

    async def _made_room(self) -> list[Held]:
        """Wait until there is room, or will be by the acknowledgements that this gives."""
        idle: asyncio.Future[list[Held]] = asyncio.get_running_loop().create_future()
        self._idle = idle
        self._asked.set()
        try:
            return await idle
        except asyncio.CancelledError:
            self.flow.not_sent([] if idle.cancelled() else idle.result())
            raise
        finally:
            self._idle = None

    def _go_on(self, acknowledged: list[Held]) -> bool:
        """Have messages asked for that there is room for by these; answers whether something waits for that. None come
        by a part of a group, whose rest would wait for them."""
        idle = self._idle
        if idle is None or idle.done() or not self.flow.is_attended or len(acknowledged) > MOST_BESIDE:
            return False
        if any(one.message.frees_others for one in acknowledged):
            return False
        is_room = bool(acknowledged) or self.flow.load.room > 0
        if is_room:
            idle.set_result(acknowledged)
        return is_room

    async def _acknowledge_for_messages(self, acknowledged: list[Held]) -> Answer:
        key, acts = self.flow.granted.key, [settlement(one.message, "ack") for one in acknowledged]
        async with self._sends(acknowledged) as told:
            return await self._ask_for_messages(key, CARRY_SECONDS, acts, told)

    @asynccontextmanager
    async def _sends(self, acknowledged: list[Held]) -> AsyncIterator[Told]:
        """These are under way until what it gives is called with their results; without that they wait again."""
        with ExitStack() as untold:
            untold.callback(self.flow.not_sent, acknowledged)
            await self._sending.acquire()
            untold.callback(self._sending.release)

            def told(results: Sequence[str]) -> None:
                untold.pop_all()
                self._sending.release()
                self.flow.sent(acknowledged, results.count(Settlement.LOST))

            yield told

    async def _settle(self) -> None:
        while True:
            async with self._sending:  # all that is due behind what is under way goes together
                acknowledged, renewed = self.flow.to_send(), self.flow.to_renew()
            key = self.flow.granted.key
            try:
                if self._go_on(acknowledged):
                    acknowledged = []
                if acknowledged or renewed:
                    await self._send(acknowledged, renewed)
                    self._go_on([])
            except WSRMError as error:
                await self._mend(key, error)
                continue
            now, due = now_ms(), self.flow.due_at()
            self.looks_at = now + round(LOOK_SECONDS * 1000)
            if due is not None:
                self.looks_at = min(self.looks_at, max(due, now + 2))
            with suppress(TimeoutError):
                async with asyncio.timeout((self.looks_at - now) / 1000):  # `wait_for` may lose that it is stopped
                    await self._asked.wait()
            self._asked.clear()

    async def _send(self, acknowledged: list[Held], renewed: Sequence[Held]) -> None:
        begun = now_ms()
        lasts = self.flow.granted.lease
        seconds = None if lasts is None else lasts / 1000
        wanted = [settlement(one.message, "ack") for one in acknowledged]
        wanted += [settlement(one.message, "renew", seconds=seconds) for one in renewed]
        async with self._sends(acknowledged) as told:
            answers = settlements(await self._line.ask(settling(wanted), patience=0))
            told(answers[: len(acknowledged)])
        self.flow.renewed_ahead(renewed, answers[len(acknowledged) :], begun + (lasts or 0))

    async def _mend(self, key: int, error: WSRMError) -> None:
        """Go on after an error: wait for a server that is away, begin a subscription anew that it has forgotten."""
        try:
            if isinstance(error, SessionEnded) or type(error) is NotFound:  # its queue is there
                async with self._renewing:
                    if self.flow.granted.key == key:
                        self.flow.begun_anew(await self._begin())
            elif isinstance(error, _AWAY):
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                self._end(error)
        except _AWAY:
            await asyncio.sleep(AGAIN_SECONDS)
        except WSRMError as worse:
            self._end(worse)

    def _end(self, error: WSRMError) -> None:
        """An error ends it: the server is told what is acknowledged and what is left, as soon as it answers."""
        self._leaving.append(self._line.begin(self._leave(self.flow.end(error))))

    async def _leave(self, rest: Rest) -> None:
        with suppress(WSRMError):
            while True:
                try:
                    return await leave(self._line, self.flow, rest)
                except (*_AWAY, NoQueueServer):
                    await asyncio.sleep(AGAIN_SECONDS)


class RemoteSupply:
    """The feeds of a node."""

    def __init__(self, node: RemoteNode) -> None:
        self._node = node
        self._feeds: dict[Flow, Feed] = {}
        self.clock: Callable[[], int] = now_ms

    async def add(self, flow: Flow, begin: Callable[[], Any]) -> None:
        self._feeds[flow] = Feed(self._node, flow, begin)

    async def remove(self, flow: Flow) -> None:
        feed = self._feeds.pop(flow, None)
        if feed is not None:
            await feed.stop()

    def withdraw(self, leases: Mapping[int, int]) -> None:
        """The messages of these leases were settled otherwise: they are not to arrive any more."""
        for feed in self._feeds.values():
            feed.withdrawn.update(leases)

    def ask(self, *flows: Flow) -> None:
        """Look whether these have something to send, and whether there is room for more."""
        now = now_ms()
        for flow in flows:
            feed = self._feeds.get(flow)
            if feed is not None and (flow.has_room or flow.is_due(now)):
                feed.ask()

    def acknowledged(self, flow: Flow, message: Message) -> None:
        """A consumer has taken a message: its acknowledgement is sent when that is due."""
        is_due = flow.acknowledge(message)
        feed = self._feeds.get(flow)
        if feed is not None:
            feed.ask() if is_due else feed.look_for_due()


async def leave(line: Line, flow: Flow, rest: Rest) -> None:
    """See ``Home.end``. What its consumer has got goes back by the end of the subscription."""
    wanted = [settlement(one.message, "ack") for one in rest.acknowledged]
    wanted += [settlement(one.message, "hand_back") for one in rest.ahead if not one.message.is_barrier]
    with suppress(NotFound, SessionEnded):  # it has ended already, and with it its leases
        if wanted:
            await line.ask(settling(wanted))
        request = asking("DELETE", "subscriptions", flow.granted.key)
        await line.ask(request._replace(in_session=True, may_repeat=True))


def _end(leased_for: float | None) -> int | None:
    return None if leased_for is None else now_ms() + round(leased_for * 1000)
