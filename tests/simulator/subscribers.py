"""Programs that subscribe to queues: the product's node, flows and supply, over the runtime of a process.

What a subscription leases and settles is seen in the commits, and told to ``Jobs``.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Final

from tests.simulator.consumers import Jobs
from tests.simulator.machine import Event
from tests.simulator.process import Noted, Process
from tests.simulator.stored import outcomes_in
from wsrm_mq.errors import WSRMError
from wsrm_mq.node.doorbell import Doorbell
from wsrm_mq.node.message import Message
from wsrm_mq.node.node import Place
from wsrm_mq.node.opened import Opened
from wsrm_mq.node.subscription import Subscription
from wsrm_mq.node.supply import Supply
from wsrm_mq.node.transactions import Transaction
from wsrm_mq.queue.clearing import Swept
from wsrm_mq.queue.quota import NO_QUOTA
from wsrm_mq.store.filtering import Filter
from wsrm_mq.store.store import Store
from wsrm_mq.store.transaction import Transaction as Unit

MOST: Final = 2
"""Subscriptions of a process at a time."""
HASTE: Final = 0.5
"""How often a process goes on at once for as long as it can, behind a step of its subscriber: it takes several commits
until a message is handed over."""
_WAYS: Final = ("ack",) * 6 + ("nack", "release", "nothing")


class _Seen:
    """The store of a process, whose commits tell ``Jobs`` what a subscription does."""

    def __init__(self, store: Store, jobs: Jobs) -> None:
        self._store = store
        self._jobs = jobs
        self.next: Callable[[Callable[[Unit], Any]], Noted] = self._noted
        """Makes the next call's verb one that is noted."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def submit(self, verb: Callable[[Unit], Any], on_commit: Any, **options: Any) -> None:
        self._store.submit(self._noted(verb), on_commit, **options)

    def call(self, verb: Callable[[Unit], Any], **options: Any) -> Any:
        noted, self.next = self.next, self._noted
        return self._store.call(noted(verb), **options)

    def _noted(self, verb: Callable[[Unit], Any]) -> Noted:
        settled: list[int] = []

        def seen(tx: Unit) -> Any:
            if not self._jobs.acknowledged:
                return verb(tx)
            before = outcomes_in(tx, self._jobs.acknowledged)
            done = verb(tx)
            after = outcomes_in(tx, before)
            settled[:] = sorted(at for at in before if before[at] is None and after.get(at) == "delivered")
            return done

        return Noted(seen, lambda _done: self._jobs.are_settled_ahead(settled))


class _Answer(Future[Any]):
    """A future for which a task waits."""

    def result(self, timeout: float | None = None) -> Any:
        is_done = Event()
        self.add_done_callback(lambda _done: is_done.set())
        is_done.wait(timeout)
        return super().result(0)


class _Bell(Doorbell):
    """Its watch has no thread: it tells at once, and looks when it is its turn."""

    def nudge(self) -> None:
        pass

    def tell_soon(self) -> None:
        self.tell()


class Subscriber(Place):
    """The node of a process. Its watch has no thread: ``Process.look_at_queues`` is a turn of it."""

    def __init__(self, process: Process, jobs: Jobs) -> None:
        self.name, self._quota, self.auto_create = process.name, NO_QUOTA, False
        self.telling = process.events
        self._seen = _Seen(process.store, jobs)
        self.store = self._seen  # type: ignore[assignment]
        self._pid = os.getpid()
        super(Opened, self).__init__(Transaction)
        self._subscriptions = {}
        self.doorbell = process.doorbell = _Bell(process.store, process.events, self._rung, self._look)
        self.supply = Supply(self.store, self.doorbell, self._subscriptions)
        self._turn = 0
        self._jobs = jobs
        self._process = process

    def submit(self, verb: Callable[[Unit], Any], **options: Any) -> Future[Any]:
        return super().submit(verb, **{"confirmation": _Answer(), **options})

    # steps

    def step(self, draw: random.Random) -> bool:
        """It subscribes, takes a message, or closes a subscription."""
        known = self.subscriptions
        act: Callable[[], object]
        if not known or (len(known) < MOST and draw.random() < 0.2):
            queue, backlog = draw.choice(list(self._jobs.queues)), draw.randint(1, 4)
            act = partial(self.open_one, queue, backlog, draw.choice([None, 1]))
        elif draw.random() < 0.1:
            act = draw.choice(known).close
        else:
            act = partial(self.take, draw.choice(known), draw.choice(_WAYS))
        self._process.tasks.start(act, "subscriber")
        if draw.random() < HASTE:
            self._process.run_on()
        return True

    def settle_by_filter(
        self,
        queue: str,
        wanted: Filter,
        looked_at: Callable[[Callable[[Unit], Swept], Unit], Swept],
        is_stored: Callable[[Swept], None],
    ) -> None:
        """``looked_at`` does it in the transaction, and looks there before and behind."""

        def act() -> None:
            self._seen.next = lambda verb: Noted(partial(looked_at, verb), is_stored)
            with suppress(WSRMError):
                self.settle(queue, wanted)

        self._process.tasks.start(act, "settles by a filter")

    # each in a task

    def open_one(self, queue: str, backlog: int, batch: int | None) -> None:
        with suppress(WSRMError):
            one = self.subscribe(queue, max_backlog=backlog, ack_batch=batch)
            self._jobs.granted[one.key] = min(backlog, one.max_backlog)

    def leave(self) -> None:
        """Close all, and give back what they have."""
        for one in self.subscriptions:
            self._process.tasks.start(one.close, "unsubscribe")

    def take(self, one: Subscription, way: str) -> None:
        """Take a message that is there, and do with it what a consumer may."""
        with suppress(WSRMError):
            message = one.take(0)
            if message is not None:
                self._do(one, message, way)

    def _do(self, one: Subscription, message: Message, way: str) -> None:
        self._jobs.is_handed_over(self.name, message.position, message.body)
        if way == "ack":
            self._jobs.acknowledged.add(message.position)
            one.acknowledge(message)
        elif way != "nothing":
            getattr(one, way)([message])
