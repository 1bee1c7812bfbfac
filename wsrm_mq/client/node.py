"""A node whose queues are at a server: the interface of ``wsrm_mq.node``, over HTTP. Times are in seconds."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from ssl import SSLContext
from typing import Any, Final, Literal, Self, TypeVar

from wsrm_mq.client.apart import RemoteDeadLetters, RemoteJournal
from wsrm_mq.client.forms import (
    SETTLEMENT,
    Answer,
    Arrived,
    Payload,
    Request,
    asking,
    cleared,
    fitting,
    may_be_repeated,
    messages,
    offers_in,
    part,
    payload,
    read,
    settlement,
    settlements,
    settling,
    several,
)
from wsrm_mq.client.gathering import Gathering
from wsrm_mq.client.line import WAIT_SECONDS, Line
from wsrm_mq.client.supply import RemoteSupply, leave
from wsrm_mq.errors import KeeperGone, NotFound, QuotaExceeded, WSRMError
from wsrm_mq.events.telling import Events
from wsrm_mq.node.at_exit import send_at_exit
from wsrm_mq.node.backlog import Held
from wsrm_mq.node.checks import (
    Gone,
    check_action,
    check_id,
    check_messages,
    check_number,
    check_positions,
    check_receive,
    check_waits,
    check_who,
    filter_of,
)
from wsrm_mq.node.consuming import Received
from wsrm_mq.node.flow import Flow, Rest
from wsrm_mq.node.message import Action, Message, all_kept
from wsrm_mq.node.neighbours import Neighbouring, Offer
from wsrm_mq.node.putting import Putting
from wsrm_mq.node.subscribing import Subscribing, lease_ms
from wsrm_mq.node.subscription import Acknowledging, Subscription, flow_of
from wsrm_mq.node.transactions import Begun, Transacting
from wsrm_mq.queue import filters, topics
from wsrm_mq.queue.browsing import KeptBy, Stats
from wsrm_mq.queue.clearing import Cleared
from wsrm_mq.queue.declaring import check_text
from wsrm_mq.queue.policies import Durability, QueuePolicy
from wsrm_mq.queue.retaining import Event, since_of
from wsrm_mq.queue.settling import Settlement
from wsrm_mq.queue.subscribing import Granted, Terms
from wsrm_mq.queue.topics import Client, Published

KEEPER_SECONDS: Final = 0.25
"""A put that waits for the keeper of express messages tries again so often."""
COMMIT_BYTES: Final = 128 * 1024 * 1024
"""The most bytes of bodies that are put by one commit."""
MOST_LEASED: Final = 10_000
"""Messages that are leased, or settled, by one request."""
MOST_SEEN: Final = 1_000
"""Messages that are looked at by one request."""
PAGE: Final = 500
"""Messages that are replayed by one request."""
R = TypeVar("R")
Parts = list[tuple[dict[str, str], bytes]]


class RemoteTransaction(Begun):
    """Acts of one thread that are committed together, by one request."""

    def __init__(self, node: Transacting[Any]) -> None:
        super().__init__(node)
        self.parts: Parts = []
        self.settles = False

    def put(self, ones: Sequence[Payload], **where: object) -> list[int]:
        self.parts += [part(one, **where) for one in ones]
        self.positions += [0] * len(ones)
        return [0] * len(ones)

    def settle(self, wanted: Sequence[dict[str, object]]) -> list[Settlement]:
        self.parts += [({SETTLEMENT: json.dumps(one)}, b"") for one in wanted]
        self.settles = True
        return [Settlement.SETTLED] * len(wanted)


class RemoteNode(Neighbouring, Subscribing, Putting[RemoteTransaction, Payload]):
    """See ``wsrm_mq.connect``. Its methods may be called by any thread; a transaction is of the thread that began
    it. What is not said here is as ``Node`` has it."""

    def __init__(
        self, where: str, name: str | None = None, *, token: str | None = None, tls: SSLContext | None = None
    ) -> None:
        super().__init__(RemoteTransaction)
        self.name = name
        self.telling = Events()
        self.line = Line(where, token, name, self.telling, tls)
        self.supply = RemoteSupply(self)
        self._gathering = Gathering(self.line)
        self._subscriptions: dict[Flow, Subscription] = {}
        send_at_exit(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Wait for what is under way, give back what is leased, and leave the server."""
        if self.line.is_open:
            self._gathering.finish()
            for subscription in list(self._subscriptions.values()):
                subscription.close(by="the node's `close`")
            if self.neighbours is not None:
                self.neighbours.close()
            self.line.close()

    def send_last(self) -> list[Future[Any]]:
        """See ``node.at_exit``."""
        if not self.line.is_usable:
            return []
        sent = (done for one in list(self._subscriptions.values()) for done in one.send_last())
        return [*self._gathering.under_way, *sent]

    def ask(self, method: str, *segments: object, json: object = None, **options: object) -> Answer:
        return self.line.call(asking(method, *segments, json=json, **options))

    def of_queue(self, method: str, queue: str, *segments: object, json: object = None, **options: object) -> Answer:
        """Ask about a queue. Raises ``ConfigurationError`` for what is no name."""
        check_text(queue)
        return self.ask(method, "queues", queue, *segments, json=json, **options)

    # putting

    def _made(self, body: object, options: dict[str, Any], asked: Durability | None) -> Payload:
        return payload(body, {**options, "durability": asked})

    def _put_soon(self, queue: str, one: Payload, asked: Durability | None = None) -> Future[int]:
        """Puts that are under way together are one request and one commit."""
        return self._gathering.put(one, queue=queue)

    def _put(
        self, queue: str, many: Sequence[Payload], timeout: float | None, asked: Durability | None, gone: Gone
    ) -> list[int]:
        open_one = self._open_one
        if open_one is not None:
            return open_one.put(many, queue=queue)
        if len(many) == 1:
            return self._when_there_is_room(
                queue, many, lambda: [self._put_soon(queue, many[0]).result()], timeout, gone
            )
        return self._put_all(queue, many, timeout, gone)

    def _put_all(self, queue: str, ones: Sequence[Payload], timeout: float | None, gone: Gone) -> list[int]:
        """Put messages by as many requests as it takes, each of which is one commit."""
        positions: list[int] = []
        self._gathering.pass_by()
        while True:
            left = ones[len(positions) :]
            some = left[: fitting((len(one.body) for one in left), COMMIT_BYTES)]
            try:
                positions += self._when_there_is_room(
                    queue, some, partial(self._put_at_once, queue, some, 0), timeout, gone
                )
            except WSRMError as error:
                if positions:
                    error.add_note(f"The first {len(positions)} of the {len(ones)} messages are there.")
                raise
            if len(positions) >= len(ones):
                return positions

    def _put_at_once(self, queue: str, ones: Sequence[Payload], timeout: float) -> list[int]:
        asked = asking("POST", "queues", queue, "messages", timeout=timeout or None)
        request = several(asked._replace(may_repeat=may_be_repeated(ones)), [part(one) for one in ones])
        return read(self.line.call(request), dict[str, list[int]])["positions"]

    def _when_there_is_room(
        self,
        queue: str,
        ones: Sequence[Payload],
        put: Callable[[], list[int]],
        timeout: float | None,
        gone: Gone,
    ) -> list[int]:
        deadline = None if timeout is None else time.monotonic() + timeout
        left = WAIT_SECONDS if timeout is None else timeout
        while True:
            try:
                return self._persistently(put, deadline, gone)
            except QuotaExceeded as error:
                if not error.blocks or left <= 0:
                    raise
                left = WAIT_SECONDS if deadline is None else min(WAIT_SECONDS, deadline - time.monotonic())
                put = partial(self._put_at_once, queue, ones, max(left, 0.001))

    def _persistently(self, put: Callable[[], R], deadline: float | None, gone: Gone) -> R:
        while True:
            try:
                return put()
            except KeeperGone:
                if gone == "raise" or (deadline is not None and time.monotonic() >= deadline):
                    raise
                time.sleep(KEEPER_SECONDS)

    def publish(
        self,
        topic: str,
        body: object,
        *,
        mandatory: bool = False,
        gone: Gone = "raise",
        timeout: float | None = None,
        **options: Any,
    ) -> Published:
        """See ``Node.publish``."""
        topics.check_topic(topic)
        check_waits(gone, timeout)
        one = payload(body, options)
        where: dict[str, object] = {"topic": topic, "mandatory": True} if mandatory else {"topic": topic}
        open_one = self._open_one
        if open_one is not None:
            open_one.put([one], **where)
            return Published(None, ())
        deadline = None if timeout is None else time.monotonic() + timeout
        return self._persistently(lambda: self._published(one, where), deadline, gone)

    def _published(self, one: Payload, where: dict[str, object]) -> Published:
        done: Published = self._gathering.put(one, **where).result()
        return done

    def commit(self) -> list[int]:
        """Do what the transaction has collected, by one request; answers the positions of what was put in it."""
        done = self._ended()
        if done.parts:
            self._gathering.pass_by()
            asked = asking("POST", "transactions")._replace(in_session=done.settles)
            answer = self.line.call(several(asked, done.parts))
            done.positions[:] = read(answer, dict[str, list[int]])["positions"]
        for told in done.committed:
            told()
        return done.positions

    # consuming

    def receive(
        self,
        queue: str | Sequence[str],
        max: int = 1,
        *,
        max_bytes: int | None = None,
        wait: float = 0.0,
        lease: float | None = None,
        filter: str | None = None,
    ) -> Received:
        """See ``Node.receive``."""
        return self.line.wait(self.receiving(queue, max, max_bytes, wait, lease, filter))

    async def receiving(
        self,
        queue: str | Sequence[str],
        max: int = 1,
        max_bytes: int | None = None,
        wait: float = 0.0,
        lease: float | None = None,
        filter: str | None = None,
    ) -> Received:
        """``receive``, on the loop of the line."""
        names = check_receive(queue, max, max_bytes, wait)
        filter_of(filter)
        lease_ms(lease)
        where = ("queues", names[0], "leases") if len(names) == 1 else ("leases",)
        several_of = tuple(("queue", name) for name in names) if len(names) > 1 else ()
        asked = asking("POST", *where, max=min(max, MOST_LEASED), max_bytes=max_bytes, lease=lease, filter=filter)
        found = await self.leased(asked._replace(query=(*several_of, *asked.query)), wait)
        return Received((one.message for one in found), lambda: self._ready(names, filter))

    async def leased(self, asked: Request, wait: float) -> list[Arrived]:
        """Lease by a request that is sent until something has come, or for ``wait`` seconds."""
        deadline = time.monotonic() + wait
        while True:
            left = min(WAIT_SECONDS, deadline - time.monotonic())
            waiting = (*asked.query, ("wait", str(left))) if left > 0 else asked.query
            request = asked._replace(query=waiting, in_session=True, may_repeat=True, leases=True)
            found = messages(await self.line.ask(request), self)
            if found or time.monotonic() >= deadline:
                return found

    def _ready(self, names: Sequence[str], filter: str | None) -> int:
        asked = (self.of_queue("GET", name, "ready", filter=filter) for name in names)
        return sum(read(one, dict[str, int])["ready"] for one in asked)

    def settle_messages(
        self, messages: Sequence[Message], action: Action, *, reason: str | None = None, seconds: float | None = None
    ) -> list[Settlement]:
        lease_ms(seconds)
        check_messages(messages)
        wanted = [settlement(one, action, reason=reason, seconds=seconds) for one in messages]
        open_one = self._open_one
        if open_one is not None:
            return open_one.settle(wanted)
        parts = (wanted[at : at + MOST_LEASED] for at in range(0, len(wanted), MOST_LEASED))
        return all_kept(messages, [one for part in parts for one in settlements(self.line.call(settling(part)))])

    def ack_at(self, queue: str, position: int) -> Settlement:
        """See ``Node.ack_at``."""
        check_number("position", position)
        return self._acknowledged(queue, position=position)

    def received(self, queue: str, message_id: str) -> Settlement:
        """See ``Node.received``."""
        check_id(message_id)
        return self._acknowledged(queue, message_id=message_id)

    def ack_many(self, queue: str, positions: Sequence[int]) -> list[Settlement]:
        """See ``Node.ack_many``."""
        check_positions(positions)
        self.refuse_in_transaction("What is settled by its position or id")
        return settlements(self.of_queue("POST", queue, "acknowledgements", json={"positions": list(positions)}))

    def _acknowledged(self, queue: str, **which: object) -> Settlement:
        self.refuse_in_transaction("What is settled by its position or id")
        answer = self.of_queue("POST", queue, "acknowledgements", json=which)
        return read(answer, dict[str, Settlement])["settlement"]

    def settle(self, queue: str, filter: str, action: str = "ack") -> Cleared:
        """See ``Node.settle``."""
        check_action(action)
        filters.parse(filter)
        self.refuse_in_transaction("What is settled by a filter")
        check_text(queue)
        asked = asking("POST", "queues", queue, "settlements", json={"filter": filter, "action": action})
        return self.line.wait(self._settle_where(asked._replace(in_session=self.line.has_session)))

    async def _settle_where(self, asked: Request) -> Cleared:
        told = read(await self.line.ask(asked), dict[str, Any])
        leases = {one["position"]: one["lease"] for one in told["leased"]}
        self.supply.withdraw(leases)
        gone = [one for each in list(self._subscriptions.values()) for one in each.withdraw(leases)]
        await self.let_go(gone)
        return Cleared(told["settled"], told["skipped"])

    async def let_go(self, messages: Sequence[Message]) -> None:
        """Tell the server that messages which were settled otherwise are here no longer: there is room for others."""
        if messages:
            with suppress(WSRMError):  # it hears of that when their leases end
                await self._sent([settlement(one, "ack") for one in messages])

    # what a subscription asks of its node

    def begun(self, names: Sequence[str], terms: Terms, acknowledging: Acknowledging) -> Subscription:
        wanted = None if terms.filter is None else filters.parse(terms.filter)
        granted = self.line.wait(self._begin(names, terms))
        flow = flow_of(self, names, granted, wanted, acknowledging)
        subscription = self._subscriptions[flow] = Subscription(self, flow, terms, acknowledging)
        self.line.wait(self.supply.add(flow, lambda: self._begin(names, subscription.terms)))
        return subscription

    async def _begin(self, names: Sequence[str], terms: Terms) -> Granted:
        lease = None if terms.lease is None else terms.lease / 1000
        who: dict[str, object] = {"queues": list(names), "client": terms.client or None}
        wanted = who | {"max_backlog": terms.max_backlog, "filter": terms.filter, "lease": lease}
        request = asking("POST", "subscriptions", json=wanted)
        told = read(await self.line.ask(request._replace(in_session=True)), dict[str, Any])
        lasts = told["lease"]
        return Granted(
            told["subscription"],
            told["max_backlog"],
            None if lasts is None else round(lasts * 1000),
            terms.client,
        )

    def subscription_of(self, flow: Flow) -> Subscription | None:
        return self._subscriptions.get(flow)

    def send(self, acknowledged: Sequence[Held]) -> Future[list[Settlement]]:
        wanted = [settlement(one.message, "ack") for one in acknowledged]
        return self.line.run(self._sent(wanted))

    async def _sent(self, wanted: Sequence[dict[str, object]]) -> list[Settlement]:
        return settlements(await self.line.ask(settling(wanted)))

    def last_missed(self, flow: Flow) -> int:
        return int(self._told_of(flow, None)["last_missed"])

    def is_behind(self, flow: Flow, last: int) -> bool:
        told = self._told_of(flow, last)
        on_their_way = set(told["leased"]).difference(flow.handed_over())
        return bool(told["is_behind"] or on_their_way)

    def _told_of(self, flow: Flow, last: int | None) -> dict[str, Any]:
        request = asking("GET", "subscriptions", flow.granted.key, last=last)
        return read(self.line.call(request._replace(in_session=True)), dict[str, Any])

    def replace_filter(self, flow: Flow, filter: str | None) -> bool:
        request = asking("PATCH", "subscriptions", flow.granted.key, json={"filter": filter})
        self.line.call(request._replace(in_session=True))
        return self._subscriptions[flow].terms.name is not None

    def end(self, flow: Flow, rest: Rest) -> None:
        self.line.wait(leave(self.line, flow, rest))

    def forget(self, flow: Flow) -> None:
        self._subscriptions.pop(flow, None)
        self.line.wait(self.supply.remove(flow))

    def subscribe_durable(self, topic: str, name: str, *, client: str | None = None, filter: str | None = None) -> str:
        """See ``Node.subscribe_durable``."""
        check_who("client", client)
        topics.check_pattern(topic)
        topics.queue_of("", name)
        filter_of(filter)
        wanted = {"topic": topic, "client": client or self.name, "filter": filter}
        asked = asking("PUT", "durable", name, json=wanted)._replace(in_session=True)
        return read(self.line.call(asked), dict[str, str])["queue"]

    def unsubscribe(self, name: str, *, client: str | None = None) -> Cleared:
        """See ``Node.unsubscribe``."""
        check_who("client", client)
        topics.queue_of("", name)
        return cleared(self.ask("DELETE", "durable", name, client=client or self.name))

    # queues

    def declare(self, queue: str, **options: Any) -> QueuePolicy:
        """See ``Node.declare``."""
        return read(self.of_queue("PUT", queue, json=options), QueuePolicy)

    def policy(self, queue: str) -> QueuePolicy:
        """The policy of a queue."""
        return read(self.of_queue("GET", queue, "policy"), QueuePolicy)

    def keys(self) -> list[str]:
        """See ``Node.keys``: those on which the holder of the token has any right."""
        return read(self.ask("GET", "queues"), dict[str, list[str]])["queues"]

    def offers(self) -> list[Offer]:
        """See ``Node.offers``: those that the holder of the token may look at, or take from."""
        return offers_in(self.ask("GET", "offers"))

    def positions(self, queue: str, *, after: int = 0, limit: int = 10_000) -> list[int]:
        """See ``Node.positions``: 10,000 at most."""
        answer = self.of_queue("GET", queue, "positions", after=after or None, limit=limit)
        return read(answer, dict[str, list[int]])["positions"]

    def delete(self, queue: str, *, if_empty: bool = False, if_unused: bool = False, force: bool = False) -> Cleared:
        """See ``Node.delete``."""
        self.refuse_in_transaction("What is deleted")
        asked = {"if_empty": if_empty or None, "if_unused": if_unused or None, "force": force or None}
        return cleared(self.of_queue("DELETE", queue, **asked))

    def purge(self, queue: str, lower: int = 0, upper: int | None = None) -> Cleared:
        """See ``Node.purge``."""
        self.refuse_in_transaction("What is purged")
        check_number("lower", lower)
        if upper is not None:
            check_number("upper", upper)
        return cleared(self.of_queue("DELETE", queue, "messages", lower=lower or None, upper=upper))

    def stats(self, queue: str) -> Stats:
        """See ``Node.stats``."""
        told = read(self.of_queue("GET", queue), dict[str, Any])
        keeper = told.pop("keeper", None)
        return Stats(**told, keeper=None if keeper is None else KeptBy(**keeper))

    def peek(self, queue: str, *, after: int = 0, limit: int = 50, filter: str | None = None) -> list[Message]:
        """See ``Node.peek``."""
        check_text(queue)
        return [one.message for one in self.seen(("queues", queue), after, limit, filter)]

    def seen(self, where: tuple[str, ...], after: int, limit: int, filter: str | None) -> list[Arrived]:
        """Look at messages by as many requests as it takes."""
        check_number("after", after)
        check_number("limit", limit, 1)
        filter_of(filter)
        found: list[Arrived] = []
        while True:
            most = min(limit - len(found), MOST_SEEN)
            asked = {"after": found[-1].message.position if found else after or None, "limit": most, "filter": filter}
            page = messages(self.ask("GET", *where, "messages", **asked), None)
            found += page
            if len(page) < most or len(found) >= limit:
                return found

    def get(self, queue: str, position: int) -> Message | None:
        """See ``Node.get``."""
        try:
            check_number("position", position)
            answer = self.of_queue("GET", queue, "messages", position)
        except NotFound as error:
            if type(error) is NotFound:
                return None
            raise
        return messages(answer, None)[0].message

    def bind(self, pattern: str, queue: str, *, filter: str | None = None) -> None:
        """See ``Node.bind``."""
        check_text(queue)
        topics.check_pattern(pattern)
        filter_of(filter)
        self.ask("PUT", "bindings", json={"pattern": pattern, "queue": queue, "filter": filter})

    def unbind(self, pattern: str, queue: str) -> int:
        """See ``Node.unbind``."""
        check_text(queue)
        topics.check_pattern(pattern)
        return read(self.ask("DELETE", "bindings", pattern=pattern, queue=queue), dict[str, int])["bindings"]

    def declare_topic(self, pattern: str, *, retain: float | None) -> None:
        """See ``Node.declare_topic``."""
        topics.check_pattern(pattern)
        self.ask("PUT", "topics", pattern, json={"retain": retain})

    def replay(
        self, topic: str, *, since: int | float | Literal["first"] = "first", filter: str | None = None
    ) -> Iterator[Message]:
        """See ``Node.replay``."""
        topics.check_pattern(topic)
        filter_of(filter)
        since_of(since, 2**63 - 2)  # the server knows its last position
        begins: dict[str, object] = {} if since == "first" else {"position": since}
        if isinstance(since, float):
            begins = {"time": since}
        return self._replayed(topic, filter, self._page(topic, filter, begins))

    def _replayed(self, topic: str, filter: str | None, page: list[Message]) -> Iterator[Message]:
        while page:
            yield from page
            page = self._page(topic, filter, {"position": page[-1].position + 1})

    def _page(self, topic: str, filter: str | None, begins: dict[str, object]) -> list[Message]:
        answer = self.ask("GET", "topics", topic, "messages", filter=filter, limit=PAGE, **begins)
        return [one.message for one in messages(answer, None)]

    def events(self, bucket: str) -> list[Event]:
        """See ``Node.events``."""
        topics.check_topic(bucket)
        found = read(self.ask("GET", "buckets", bucket, "events"), dict[str, list[dict[str, Any]]])["events"]
        return [Event(one["name"], one["messages"], one["last_at"]) for one in found]

    def clients(self) -> list[Client]:
        """See ``Node.clients``."""
        found = read(self.ask("GET", "clients"), dict[str, list[dict[str, Any]]])["clients"]
        return [Client(**{**one, **{key: tuple(one[key]) for key in ("queues", "patterns")}}) for one in found]

    def recover_express(self, queue: str | None = None) -> int:
        """See ``Node.recover_express``."""
        if queue is not None:
            check_text(queue)
        return read(self.ask("POST", "express", "recoveries", json={"queue": queue}), dict[str, int])["count"]

    def dead(self, queue: str) -> RemoteDeadLetters:
        """See ``Node.dead``."""
        return RemoteDeadLetters(self, queue)

    def journal(self, queue: str | None = None) -> RemoteJournal:
        """See ``Node.journal``."""
        return RemoteJournal(self, queue)
