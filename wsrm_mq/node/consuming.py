"""A node's API for programs that receive and settle. Times are in seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Final, cast

from wsrm_mq.node import checks
from wsrm_mq.node.backlog import Held
from wsrm_mq.node.doorbell import POLL_SECONDS
from wsrm_mq.node.express import lease_in_turn
from wsrm_mq.node.flow import Flow, Rest
from wsrm_mq.node.message import Action, Message, Verb, all_kept, shown, verb_of
from wsrm_mq.node.opened import Opened
from wsrm_mq.node.subscribing import Subscribing, lease_ms
from wsrm_mq.node.subscription import Acknowledging, Subscription, flow_of
from wsrm_mq.queue import browsing, clearing, declaring, filters, settling, subscribing, topics
from wsrm_mq.queue.clearing import Cleared, Swept, together
from wsrm_mq.queue.declaring import Declared
from wsrm_mq.queue.leasing import MOST_COUNTED, Leased, Request, count_ready, lease, ready_in
from wsrm_mq.queue.settling import Settlement
from wsrm_mq.queue.subscribing import Granted, Terms
from wsrm_mq.store import queues
from wsrm_mq.store.filtering import Filter
from wsrm_mq.store.transaction import Transaction as Unit

LINGER_SECONDS: Final = 0.02


class Received(list[Message]):
    """Messages that were received together."""

    def __init__(self, messages: Iterable[Message], remaining: Callable[[], int]) -> None:
        super().__init__(messages)
        self._remaining = remaining

    @property
    def remaining(self) -> int:
        """How many more are ready in the queues now, counted up to 10,000. What is leased is none of them."""
        return self._remaining()


class Consuming(Subscribing, Opened):
    """The part of a node that leases messages and settles them."""

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
        names = checks.check_receive(queue, max, max_bytes, wait)
        checks.check_who("consumer", consumer)
        wanted = checks.filter_of(filter)
        request = Request(max, max_bytes, lease_ms(lease), wanted, consumer or self.name or "", lessee)
        deadline = time.monotonic() + wait
        if wait and self._is_drained and not self._any_ready(names):
            self._await(names, request, self.doorbell.rings, deadline)
        while True:
            rings, begun = self.doorbell.rings, time.monotonic()
            places = self.places(names)
            found = self.leased(names, request) if len(places) == 1 else lease_in_turn(places, request)
            ended = time.monotonic()
            self._is_drained, self._took = len(found) < max, ended - begun
            if found or ended >= deadline:
                return Received(found, lambda: self.count_ready(names, wanted))
            self._await(names, request, rings, deadline)

    def _await(self, names: list[str], request: Request, rings: int, deadline: float) -> None:
        """Wait until the doorbell has rung more often than ``rings`` and something is ready, up to the deadline, and no
        longer than the watch does for what time makes ready: what was ready before, and not leased, is not for this
        consumer.
        Of many that are told of one message one leases it, and the others do not keep it waiting. A consumer of several
        waits as long again as its last lease took: where many write, more has come by then, and a message costs a part
        of a transaction."""
        until = min(deadline, time.monotonic() + POLL_SECONDS)
        while self.doorbell.wait(rings, until - time.monotonic()):
            rings = self.doorbell.rings
            if self._any_ready(names):
                if request.most > 1:
                    time.sleep(min(self._took, LINGER_SECONDS))
                return

    def _any_ready(self, names: list[str]) -> bool:
        return any(place.is_ready(kept) for place, kept in self.places(names))

    def is_ready(self, names: list[str]) -> bool:
        """Whether something is ready in these queues, as far as they are in this node's store."""
        with self.reader() as db:
            now = self.store.reached()
            rows = [db.execute(queues.QUEUE_ROW, {"name": name}).fetchone() for name in names]
            return any(row is None or count_ready(db, Declared(*row), None, now, most=1) for row in rows)

    def leased(self, names: list[str], request: Request) -> list[Message]:
        """Lease messages of queues, as far as they are in this node's store."""
        found, offset = self.call(lambda tx: self._lease(tx, names, request), drains=True)
        if any(one.is_told for one in found if one.seen.asks):
            self.doorbell.tell()
        return [Message(self, one, shown(one.until, offset)) for one in found]

    def heads(self, names: list[str], request: Request) -> list[tuple[int, int, int]]:
        """The messages by themselves that would be leased first: the priority of each, the highest being the lowest
        number, its position and its size."""

        def verb(tx: Unit) -> list[tuple[int, int, int]]:
            queues = [declaring.found(tx, name, auto_create=self.auto_create) for name in names]
            ready = [one for queue in queues for one in ready_in(tx, queue, request.wanted, request.most)]
            return [(-one.priority, one.position, one.size) for one in ready]

        return self.call(verb, drains=True)

    def _lease(self, tx: Unit, names: list[str], request: Request) -> tuple[list[Leased], int]:
        self._turn += 1
        turned = names[self._turn % len(names) :] + names[: self._turn % len(names)]
        found = lease(tx, [declaring.found(tx, name, auto_create=self.auto_create) for name in turned], request)
        return found, tx.now - tx.measured

    def count_ready(self, names: list[str], wanted: Filter | None) -> int:
        """How many messages are ready in queues, counted up to 10,000."""
        ready = 0
        for place, kept in self.places(names):
            with place.reader() as db:
                now = self.store.reached()
                ready += sum(count_ready(db, declaring.read(db, name), wanted, now) for name in kept)
        return min(MOST_COUNTED, ready)

    def begun(self, names: Sequence[str], terms: Terms, acknowledging: Acknowledging) -> Subscription:
        """Begin a subscription to queues, as far as they are in this node's store. What a process that is gone had
        leased lies before what was put since: it goes back first."""
        self._refuse_unusable()
        self.doorbell.listen()
        self.doorbell.bury()
        wanted = None if terms.filter is None else filters.parse(terms.filter)

        def verb(tx: Unit) -> Granted:
            found = [declaring.found(tx, one, auto_create=self.auto_create) for one in names]
            return subscribing.subscribe(tx, found, terms)

        flow = flow_of(self, names, self.call(verb, drains=True), wanted, acknowledging)
        subscription = self._subscriptions[flow] = Subscription(self, flow, terms, acknowledging)
        self.supply.ask(flow)
        return subscription

    # what a subscription asks of its node

    def send(self, acknowledged: Sequence[Held]) -> Future[list[Settlement]]:
        leases = [one.message.lease for one in acknowledged]
        return self.submit(lambda tx: settling.ack(tx, leases), keep=True)

    def last_missed(self, flow: Flow) -> int:
        with self.reader() as db:
            return max(browsing.last_unsettled(db, declaring.read(db, name)) for name in flow.names)

    def is_behind(self, flow: Flow, last: int) -> bool:
        key, had, now = flow.granted.key, flow.handed_over(), self.store.clock()
        with self.reader() as db:
            return any(
                browsing.is_to_come(db, declaring.read(db, name), now, last, key, had, flow.wanted)
                for name in flow.names
            )

    def replace_filter(self, flow: Flow, filter: str | None) -> bool:
        def verb(tx: Unit) -> bool:
            queues = [declaring.declared(tx, name) for name in flow.names]
            collects = all(one.kind == topics.KIND for one in queues)
            for queue in queues if collects else ():
                topics.collect(tx, queue, filter)
            if not collects:
                subscribing.replace_filter(tx, flow.granted.key, filter)
            return collects

        return self.call(verb)

    def end(self, flow: Flow, rest: Rest) -> None:
        def verb(tx: Unit) -> None:
            rest.settle(tx)
            rows = [row for name in flow.names if (row := tx.queue_row(name)) is not None]
            subscribing.unsubscribe(tx, [Declared(*row) for row in rows], flow.granted)

        self.call(verb, wakes=True, keep=True)

    def subscribe_durable(self, topic: str, name: str, *, client: str | None = None, filter: str | None = None) -> str:
        """Begin a subscription to topics without consuming it; answers the name of its queue. See ``subscribe``."""
        checks.check_who("client", client)
        who = client or self.name or ""
        return self.call(lambda tx: topics.subscribe_durable(tx, who, name, topic, filter)).name

    def unsubscribe(self, name: str, *, client: str | None = None) -> Cleared:
        """End a subscription to topics: nothing is collected for it any more, and what was is purged."""
        checks.check_who("client", client)
        first = partial(topics.unsubscribe, client=client or self.name or "", name=name)
        return clearing.in_parts(self.call, first, clearing.purge_deleted)

    def settle_messages(
        self, messages: Sequence[Message], action: Action, *, reason: str | None = None, seconds: float | None = None
    ) -> list[Settlement]:
        verb, wakes = verb_of(action, reason, lease_ms(seconds)), action != "renew"
        checks.check_messages(messages)
        if action != "ack":
            return self._settle(messages, verb, wakes=wakes)
        try:
            return self._settle(messages, verb, wakes=any(one.frees_others for one in messages))
        finally:
            self.doorbell.settled()  # where nothing else is ready by it, there is room all the same

    def _settle(self, messages: Sequence[Message], verb: Verb, *, wakes: bool) -> list[Settlement]:
        """``wakes``: whether others are ready by it."""
        if any(self._settled_by(home) is not self for home in {one.home for one in messages}):
            return self._settle_each(messages, verb, wakes=wakes)
        leases = [one.lease for one in messages]
        open_one = self._open_one
        if open_one is not None:
            open_one.add(self, lambda tx: all_kept(messages, verb(tx, leases)))
            return [Settlement.SETTLED] * len(leases)
        return all_kept(messages, self.call(lambda tx: verb(tx, leases), wakes=wakes, keep=True))

    def _settle_each(self, messages: Sequence[Message], verb: Verb, *, wakes: bool) -> list[Settlement]:
        """Settle messages of several stores, each where it is."""
        answers: dict[int, Settlement] = {}
        for home in dict.fromkeys(self._settled_by(one.home) for one in messages):
            mine = [one for one in messages if self._settled_by(one.home) is home]
            settled = home._settle(mine, verb, wakes=wakes)
            answers.update((one.position, answer) for one, answer in zip(mine, settled, strict=True))
        return [answers[one.position] for one in messages]

    def _settled_by(self, home: object) -> Consuming:
        """The node that settles messages of ``home``: that one itself where they are express, else this one, whichever
        has received them."""
        its = cast("Consuming | None", home)
        return self if its is None or not (its.is_express or self.is_express) else its

    def ack_at(self, queue: str, position: int) -> Settlement:
        """Settle the message at ``position`` as taken, in no lease's name: what another consumer has leased is not
        touched, unless the queue's leasing is ``sublet``."""
        checks.check_number("position", position)
        return self.ack_many(queue, [position])[0]

    def ack_many(self, queue: str, positions: Sequence[int]) -> list[Settlement]:
        """Settle the messages at ``positions`` in one transaction; answers what became of each. See ``ack_at``."""
        checks.check_positions(positions)
        wanted = list(positions)

        def verb(tx: Unit) -> list[Settlement]:
            return clearing.ack_many(tx, declaring.declared(tx, queue), wanted)

        return self._first_known(queue, verb, len(wanted))

    def _first_known(self, queue: str, verb: Callable[[Unit], list[Settlement]], count: int) -> list[Settlement]:
        """Settle ``count`` messages, each where it is known."""
        self.refuse_in_transaction("What is settled by its position or id")
        answers = [Settlement.UNKNOWN] * count
        for place, _names in self.places([queue]):
            if Settlement.UNKNOWN in answers:
                told = place.call(verb, wakes=True, drains=True)
                answers = [new if old is Settlement.UNKNOWN else old for old, new in zip(answers, told, strict=True)]
        return answers

    def received(self, queue: str, message_id: str) -> Settlement:
        """The message of this id was received: it is settled, also where another consumer has it, unless it was
        before."""
        checks.check_id(message_id)

        def verb(tx: Unit) -> list[Settlement]:
            return [clearing.received(tx, declaring.declared(tx, queue), message_id)]

        return self._first_known(queue, verb, 1)[0]

    def settle(self, queue: str, filter: str | Filter, action: str = "ack") -> Cleared:
        """Settle what fits a filter, delivered or not, in one transaction: ``ack``, ``expire`` or ``reject``. What
        others have leased is skipped, unless the queue's leasing is ``sublet``. What this node's subscriptions have
        leased ahead is settled too, and their consumers do not get it any more."""
        return self.settle_where(queue, filter, action).cleared

    def settle_where(
        self, queue: str, filter: str | Filter, action: str, *, own: Container[int] | None = None
    ) -> Swept:
        """See ``settle``. ``own``: only the messages at these positions are leased by the one who asks, ``None``: all
        that this node has leased."""
        checks.check_action(action)
        self.refuse_in_transaction("What is settled by a filter")
        wanted = filter if isinstance(filter, Filter) else filters.parse(filter)

        def verb(tx: Unit) -> Swept:
            return clearing.settle_where(tx, declaring.declared(tx, queue), wanted, action, own)

        def withdraw(done: Swept) -> None:  # what was leased before the commit has arrived by now
            for subscription in self.subscriptions if done.leased else ():
                subscription.withdraw(done.leased)

        done = [place.call(verb, wakes=True, drains=True, committed=withdraw) for place, _names in self.places([queue])]
        leased = {position: fence for one in done for position, fence in one.leased.items()}
        return Swept(together(one.cleared for one in done), leased)
