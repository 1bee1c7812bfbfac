"""The state of a client of STOMP: its session, its subscriptions, and the messages that it is to acknowledge.

SENDs that come together share a commit, and so do acknowledgements. Where the store takes nothing, what is asked waits,
and no ERROR is answered: the client's own socket keeps it waiting.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from wsrm_mq.errors import KeeperGone, LeaseLost, NotFound, OutOfOrder, QuotaExceeded, StoreUnavailable, WSRMError
from wsrm_mq.node import Node
from wsrm_mq.node.message import Message
from wsrm_mq.queue.settling import Settlement
from wsrm_mq.server.acts import PutOne, Settle, require_put
from wsrm_mq.server.rights import Principal
from wsrm_mq.server.sessions import Session
from wsrm_mq.server.stomp.protocol import Frame, ProtocolError, Version
from wsrm_mq.server.stomp.translating import DURABLE, Wanted, message_frame, put_of, settle_of, wanted_of

Act = Settle | PutOne
TEMPORARY: Final = "temporary-"
"""The name of a durable subscription begins with it that ends with its connection."""
TAKEN: Final = 100
"""Messages that are written together, at most."""
RETRY_SECONDS: Final = 0.25
LONG: Final = 3_600.0
GIVEN: Final = (Settlement.SETTLED, Settlement.ALREADY_SETTLED)


class Subscribed:
    """A subscription of the client. ``held``: the messages that it is to acknowledge, in order, by what acknowledges
    them."""

    def __init__(self, id: str, key: int, backlog: int, wanted: Wanted, temporary: str | None) -> None:
        self.id = id
        self.key = key
        self.wanted = wanted
        self.temporary = temporary
        """The name of a durable subscription that ends with it."""
        self.held: dict[str, Message] = {}
        self._most = 2 * backlog

    def hold(self, key: str, message: Message) -> list[str]:
        """The client is given this message. Answers what acknowledges nothing any more."""
        again = message.redelivered
        gone = [old for old, one in self.held.items() if again and one.position == message.position]
        for old in gone:
            del self.held[old]
        self.held[key] = message
        while len(self.held) > self._most:  # the lease of the first has ended: it has no more at a time
            gone.append(next(iter(self.held)))
            del self.held[gone[-1]]
        return gone

    def up_to(self, key: str) -> list[str]:
        """The keys that an acknowledgement by ``key`` is of."""
        if self.wanted.mode != "client":
            return [key]
        keys = list(self.held)
        return keys[: keys.index(key) + 1]


class Served:
    """``write`` sends frames to the client; ``fail`` is called with what has gone wrong while none of its frames is
    done."""

    def __init__(
        self,
        node: Node,
        principal: Principal,
        session: Session,
        version: Version,
        write: Callable[[Sequence[Frame]], Awaitable[None]],
        fail: Callable[[Exception], None],
    ) -> None:
        self.principal = principal
        self.session = session
        self._node = node
        self._version = version
        self._write = write
        self._fail = fail
        self._subscribed: dict[str, Subscribed] = {}
        self._pushing: dict[str, asyncio.Task[None]] = {}
        self._by_ack: dict[str, Subscribed] = {}
        self._given = 0
        """The number of the last message that was given, to be acknowledged by in 1.2."""

    async def end(self, *, has_died: bool = False) -> None:
        """Give back what it has. See ``Session.end``."""
        subscribed, self._subscribed = list(self._subscribed.values()), {}
        await self._stop([self._pushing.pop(one.id) for one in subscribed])
        await self.session.end(has_died=has_died)
        for one in subscribed:
            if one.temporary is not None:
                await self._forget(one.temporary)

    async def _stop(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _forget(self, durable: str) -> None:
        await asyncio.to_thread(self._node.unsubscribe, durable, client=self.session.client)

    # putting and settling

    async def put(self, frames: Sequence[Frame]) -> None:
        """Put what SENDs have, in one commit where that can be done, otherwise each by itself. Their receipts are
        sent. Raises ``ProtocolError`` for the first that cannot be done."""
        try:
            await self._together([self._put_of(one) for one in frames])
            await self.receipt(frames)
        except WSRMError as error:
            if len(frames) == 1:
                raise about(frames[0], error) from error
            for one in frames:
                await self.put([one])

    def _put_of(self, frame: Frame) -> PutOne:
        put = put_of(frame)
        require_put(self.principal, put)
        return put

    async def settle(self, frames: Sequence[Frame]) -> None:
        """Do ACKs and NACKs, in one commit. A message whose lease had ended is delivered again, and its acknowledgement
        is nothing, unless a receipt was asked for: then ``ProtocolError`` is raised."""
        settles = [self._settles_of(one) for one in frames]
        answers = iter(await self.session.settle([act for these in settles for act in these]))
        for frame, these in zip(frames, settles, strict=True):
            for act in these:
                answer = next(answers)
                if answer is Settlement.OUT_OF_ORDER:
                    raise about(frame, OutOfOrder(_OUT_OF_ORDER.format(act.position)))
                if answer not in GIVEN and "receipt" in frame.headers:
                    raise about(frame, LeaseLost(_LOST.format(act.position)))
            if not these and "receipt" in frame.headers:
                raise about(frame, LeaseLost(_LOST.format(frame.headers.get("id") or frame.headers["message-id"])))
        await self.receipt(frames)

    async def commit(self, frames: Sequence[Frame]) -> None:
        """Do the frames of a transaction, in one commit or not at all."""
        acts: list[Act] = []
        for frame in frames:
            found = [self._put_of(frame)] if frame.command == "SEND" else self._settles_of(frame)
            if not found:
                raise LeaseLost("Nothing of the transaction was done: the lease of one of its messages had ended.")
            acts += found
        await self._together(acts)

    async def _together(self, acts: Sequence[Act]) -> None:
        """Do them in one commit, as soon as the store takes it, and queues that have their producers wait do."""
        while acts:
            try:
                await self.session.transaction(acts)
                return
            except QuotaExceeded as error:
                if not error.blocks:
                    raise
            except StoreUnavailable as error:
                if isinstance(error, KeeperGone) or not self._node.store.is_open:
                    raise
            await asyncio.sleep(RETRY_SECONDS)

    def _settles_of(self, frame: Frame) -> list[Settle]:
        """The settlements that an ACK or a NACK asks for: none of a message that was settled before, or has come again
        since."""
        subscribed, key = self._named_by(frame)
        if subscribed is None or key not in subscribed.held:
            return []
        found = []
        for one in subscribed.up_to(key):
            self._by_ack.pop(one, None)
            message = subscribed.held.pop(one)
            if not message.is_barrier:
                found.append(settle_of(frame, message))
        return found

    def _named_by(self, frame: Frame) -> tuple[Subscribed | None, str]:
        if self._version == "1.1":
            subscribed = self._subscribed.get(frame.headers["subscription"])
            if subscribed is None:
                raise about(frame, NotFound("There is no such `subscription` on this connection."))
            return subscribed, frame.headers["message-id"]
        key = frame.headers["id"]
        if not (key.isascii() and key.isdigit() and len(key) < 19 and 0 < int(key) <= self._given):
            raise about(frame, NotFound("No MESSAGE has had this `id` in its header ack."))
        return self._by_ack.get(key), key

    async def receipt(self, frames: Sequence[Frame]) -> None:
        """These frames are done: say so to a client that has asked for it."""
        receipts = [one.headers["receipt"] for one in frames if "receipt" in one.headers]
        if receipts:
            await self._write([Frame("RECEIPT", {"receipt-id": one}) for one in receipts])

    # subscriptions

    async def subscribe(self, frame: Frame) -> None:
        id, wanted = frame.headers["id"], wanted_of(frame)
        queue, topic = wanted.destination
        temporary = None
        if queue is not None:
            self.principal.require("consume", queue)
        else:
            self.principal.require_topics("consume", topic or "")
            temporary = None if wanted.durable is not None else f"{TEMPORARY}{secrets.token_hex(8)}"
        made = await self.session.subscribe(
            [] if queue is None else [queue],
            topic=topic,
            name=wanted.durable or temporary,
            max_backlog=wanted.backlog,
            filter=wanted.filter,
            lease=wanted.lease,
            is_parallel=wanted.mode == "client-individual",
        )
        subscribed = Subscribed(id, made.key, made.max_backlog, wanted, temporary)
        self._subscribed[id] = subscribed
        self._pushing[id] = asyncio.create_task(self._push_all(subscribed))

    async def unsubscribe(self, frame: Frame) -> None:
        """End a subscription; what it has leased goes back. With the name of a durable subscription in the frame that
        is ended."""
        subscribed = self._subscribed.pop(frame.headers["id"])
        await self._stop([self._pushing.pop(subscribed.id)])
        for key in subscribed.held:
            self._by_ack.pop(key, None)
        await self.session.unsubscribe(subscribed.key)
        durable = subscribed.temporary or frame.headers.get(DURABLE)
        if durable is not None:
            await self._forget(durable)

    async def _push_all(self, subscribed: Subscribed) -> None:
        try:
            while True:
                messages = await self.session.take(subscribed.key, TAKEN, wait=LONG)
                if subscribed.wanted.mode == "auto":
                    messages = await self._acknowledged(messages)
                await self._write([self._frame(subscribed, one) for one in messages])
        except Exception as error:
            self._fail(error)

    async def _acknowledged(self, messages: list[Message]) -> list[Message]:
        """The messages that the client gets, which are acknowledged before they are sent."""
        ack = Frame("ACK")
        acts = [settle_of(ack, one) for one in messages if not one.is_barrier]
        settled = {
            act.position for act, answer in zip(acts, await self.session.settle(acts), strict=True) if answer in GIVEN
        }
        return [one for one in messages if one.is_barrier or one.position in settled]

    def _frame(self, subscribed: Subscribed, message: Message) -> Frame:
        if subscribed.wanted.mode == "auto":
            return message_frame(message, subscribed.id, None)
        self._given += 1
        key = str(self._given) if self._version == "1.2" else str(message.position)
        for one in subscribed.hold(key, message):
            self._by_ack.pop(one, None)
        self._by_ack[key] = subscribed
        return message_frame(message, subscribed.id, key if self._version == "1.2" else None)


_LOST: Final = "The lease of the message {} had ended, or it was settled before: nothing was done with it."
_OUT_OF_ORDER: Final = "The message {} is in a group, and one before it is not settled. Settle that first."


def about(frame: Frame, error: WSRMError) -> ProtocolError:
    """The error, as one of this frame."""
    return (
        error if isinstance(error, ProtocolError) else ProtocolError(str(error), receipt=frame.headers.get("receipt"))
    )
