"""A node: the queues of one store, for the threads of one process, and the express messages of these queues."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Final
from weakref import WeakSet

from wsrm_mq.errors import ConfigurationError, StoreError
from wsrm_mq.events.telling import Events
from wsrm_mq.node.apart import DeadLetters, Journal
from wsrm_mq.node.at_exit import send_at_exit
from wsrm_mq.node.checks import check_who
from wsrm_mq.node.consuming import Consuming
from wsrm_mq.node.express import Express
from wsrm_mq.node.opened import leave
from wsrm_mq.node.producing import Producing
from wsrm_mq.node.queues import Queues
from wsrm_mq.node.subscription import Acknowledging, Subscription
from wsrm_mq.queue import browsing, clearing, declaring, express, topics
from wsrm_mq.queue.clearing import Cleared, Part
from wsrm_mq.queue.policies import Durability, QueuePolicy
from wsrm_mq.queue.quota import NO_QUOTA, NodeQuota
from wsrm_mq.queue.subscribing import Terms
from wsrm_mq.store.applications import CONSUMING
from wsrm_mq.store.clock import Clock, wall_clock
from wsrm_mq.store.express import ExpressStore
from wsrm_mq.store.store import Store
from wsrm_mq.store.transaction import Transaction as Unit

_IN_MEMORY: Final = (":memory:", "sqlite://", "sqlite:///:memory:")


class Place(Producing, Consuming, Queues):
    """The API of a node over one store."""

    def dead(self, queue: str) -> DeadLetters:
        """The dead letters of a queue."""
        return DeadLetters(self, queue)

    def journal(self, queue: str | None = None) -> Journal:
        """The journal of a queue that is declared with ``journal=True``, or was; without ``queue`` that of the node,
        which has what was put with ``journal="source"`` and has left its queue. Raises ``UnknownQueue``."""
        return Journal(self, queue)


class Node(Place):
    """See ``wsrm_mq.connect``. Its methods may be called by any thread; a transaction is of the thread that began
    it."""

    def __init__(
        self,
        where: str | os.PathLike[str],
        name: str | None = None,
        *,
        auto_create: bool = True,
        clock: Clock = wall_clock,
        quota: NodeQuota = NO_QUOTA,
    ) -> None:
        """See ``wsrm_mq.connect``."""
        quota.check()
        if not isinstance(where, str | os.PathLike) or os.fspath(where) in ("", "sqlite:///"):
            raise ConfigurationError(f"A store is a path, a directory, or sqlite:///path, and not {where!r}.")
        if os.fspath(where) in _IN_MEMORY:
            raise ConfigurationError(
                f"{where!r}: a store is a file, which other processes use too. Name a path, in a directory of "
                '`tempfile` where nothing is to be kept; messages in memory alone have `durability="express"`.'
            )
        check_who("name", name)
        telling = Events()
        store = Store(where, clock=clock, serving=CONSUMING, events=telling)
        store.open()
        self.express = Express(self)
        super().__init__(store, telling, name, auto_create=auto_create, quota=quota)
        _OPENED.add(self)
        send_at_exit(self)

    def close(self) -> None:
        """Give back what is leased, which is no failure, and leave the store. The express messages that this process
        keeps are lost, which is on record."""
        if self.store.is_open and self._pid == os.getpid():
            for subscription in self.subscriptions:
                subscription.close(by="the node's `close`")
            self.express.close()
            if self.neighbours is not None:
                self.neighbours.close()
        super().close()

    def send_last(self) -> list[Future[Any]]:
        return [*self.express.send_last(), *super().send_last()]

    def abandon(self) -> None:
        super().abandon()
        self.express.abandon()

    def recover_express(self, queue: str | None = None) -> int:
        """Have the express messages delivered that were lost with the process that kept them, where the journal of
        their queue has them and they were not settled: those of one queue, or of all. They are recoverable from then
        on. Answers how many."""
        self.express.bury()
        names = self.keys() if queue is None else [queue]
        return sum(self.call(partial(express.recover, name=name), wakes=True) for name in names)

    def delete(
        self,
        queue: str,
        *,
        if_empty: bool = False,
        if_unused: bool = False,
        force: bool = False,
        actor: str = clearing.ACTOR,
    ) -> Cleared:
        """Delete a queue: at once nothing is put there or leased any more, and what it has is purged, where that is
        much in parts. Raises ``QueueBusy`` where something is leased, ``if_empty`` where it has a message,
        ``if_unused`` where a program that lives has subscribed to it; and ``KeeperGone`` where the process that keeps
        its express messages does not answer. With ``force`` none of these: then what that keeps is lost, which is on
        record. ``actor``: who, for the ledger."""
        self.refuse_in_transaction("What is deleted")

        def refuse(tx: Unit) -> None:
            if not force:
                clearing.refuse_busy(tx, declaring.declared(tx, queue), if_empty=if_empty)
                if if_unused:
                    topics.refuse_used(tx, queue)

        def verb(tx: Unit) -> Part:
            refuse(tx)
            found = declaring.declared(tx, queue)
            tx.add_ledger("queue_deleted", found.key, actor=actor)
            return express.delete(tx, found, force=force)

        self._send_of(queue)
        there = Cleared(0)
        if self.express.places([queue]):  # these are in another store: they stay unless the rest goes
            self.call(refuse)
            there = self.express.delete(queue, if_empty=if_empty, force=force)
        return clearing.together([there, self._in_parts(verb, clearing.purge_deleted)])

    def unsubscribe(self, name: str, *, client: str | None = None) -> Cleared:
        check_who("client", client)
        queue = self.call(lambda tx: topics.durable(tx, client or self.name or "", name)).name
        self._send_of(queue)
        there = self.express.delete(queue, force=True)
        return clearing.together([there, super().unsubscribe(name, client=client)])

    def _send_of(self, queue: str) -> None:
        """Send what consumers of this process have acknowledged of a queue: it is taken, and not purged."""
        for subscription in self.subscriptions:
            if queue in subscription.flow.names:
                for part in subscription.parts:
                    part.send_before()

    def declared(self, queue: str, policy: QueuePolicy) -> None:
        self.express.declared(queue, policy)

    def places(self, names: Sequence[str]) -> list[tuple[Place, list[str]]]:
        return [*super().places(names), *self.express.places(names)]

    def place_of(
        self, queue: str, durability: Durability, *, waits: bool = False, timeout: float | None = None
    ) -> Place:
        if durability != "express":
            return self
        return self.express.place_of(queue, waits=waits, timeout=timeout)

    def begun(self, names: Sequence[str], terms: Terms, acknowledging: Acknowledging) -> Subscription:
        subscription = super().begun(names, terms, acknowledging)
        self.express.join(subscription)
        return subscription

    def _rung(self) -> None:
        super()._rung()
        self.express.ring()

    def _look(self) -> float:
        self.express.look()
        return super()._look()


_OPENED: Final[WeakSet[Node]] = WeakSet()


def _in_child() -> None:
    for node in list(_OPENED):
        node.abandon()


os.register_at_fork(after_in_child=_in_child)


class Kept(Place):
    """The express messages that one process keeps, beside the node that is over the store itself."""

    is_express = True

    def __init__(self, beside: Node, store: ExpressStore) -> None:
        self._beside = beside
        self.relayed = store.relayed
        super().__init__(store, beside.telling, beside.name, auto_create=False, quota=NO_QUOTA)
        self._own, self._usual = beside._own, beside._usual  # a transaction is of the thread, whatever its store

    def has(self, queue: str) -> bool:
        """Whether it has a queue of this name."""
        with self.store.reader() as db:
            return browsing.has(db, queue)

    def _rung(self) -> None:
        super()._rung()
        self._beside.doorbell.settled()

    def close(self) -> None:
        """Give back what is leased, where the process that keeps it is there."""
        for subscription in self.subscriptions:
            with suppress(StoreError):
                subscription.close(by="the node's `close`")
        self.upkeep.stop()
        self.doorbell.stop()
        self.store.close(leave, timeout=1.0)
