"""A store that a program has opened as a node: how a verb is run there, by itself or in a transaction of a thread.

Where no service has messages in the store, its programs keep house there (``Upkeep``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

from wsrm_mq.delivery.janitor import Janitor
from wsrm_mq.errors import StoreUnavailable, WSRMError
from wsrm_mq.events.telling import Events
from wsrm_mq.node.doorbell import Doorbell
from wsrm_mq.node.flow import Flow
from wsrm_mq.node.subscription import Subscription
from wsrm_mq.node.supply import Supply
from wsrm_mq.node.transactions import Transacting, Transaction
from wsrm_mq.queue import clearing, declaring
from wsrm_mq.queue.policies import Durability
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.queue.quota import NodeQuota
from wsrm_mq.queue.retention import Pruned
from wsrm_mq.store import queues
from wsrm_mq.store.port import Connection
from wsrm_mq.store.store import Store
from wsrm_mq.store.transaction import Transaction as Unit

if TYPE_CHECKING:
    from wsrm_mq.node.node import Place

R = TypeVar("R")


class Opened(Transacting[Transaction]):
    """A store that is opened, and what the parts of a node's API stand on: a verb that is run, and the watch."""

    def __init__(self, store: Store, telling: Events, name: str | None, *, auto_create: bool, quota: NodeQuota) -> None:
        """``name``: what its consumers are known by. ``auto_create``: a queue that is not there is declared by the
        first message that is put there. ``quota``: what this node puts finds no room beyond it."""
        self.name = name
        self._quota = quota
        self.auto_create = auto_create
        self.telling = telling
        self.store = store
        self._pid = os.getpid()
        self._subscriptions: dict[Flow, Subscription] = {}
        self.doorbell = Doorbell(self.store, self.telling, self._rung, self._look)
        self.supply = Supply(self.store, self.doorbell, self._subscriptions)
        self.upkeep = Upkeep(self.store, self.telling)
        super().__init__(Transaction)
        self._turn = 0
        self._is_drained = False
        """The last lease was of all that was ready."""
        self._took = 0.0
        """Seconds of the last lease."""
        self._usual: dict[str, Durability] = {}
        """The durability of what is put into a queue, by the queue's name, as it was last seen."""
        self._usual_of_topics: dict[str, Durability] = {}
        self.doorbell.start()
        self.upkeep.start()

    is_express = False
    """Its store is that of express messages."""

    @property
    def subscriptions(self) -> list[Subscription]:
        return list(self._subscriptions.values())

    def places(self, names: Sequence[str]) -> list[tuple[Place, list[str]]]:
        """The nodes whose stores have messages of these queues, each with the names of its queues: this one first.
        Raises ``ConfigurationError`` for what is no name."""
        self._refuse_unusable()
        for name in names:
            declaring.check_text(name)
        return [(cast("Place", self), [*names])]

    def place_of(
        self, queue: str, durability: Durability, *, waits: bool = False, timeout: float | None = None
    ) -> Place:
        """The node into whose store messages of this durability are put."""
        return cast("Place", self)

    def _rung(self) -> None:
        """Look around, as something may be ready."""
        self.supply.rung()

    def _look(self) -> float:
        """The watch looks around; answers after how many seconds it does so again."""
        return self.supply.look()

    def __fspath__(self) -> str:
        """A node stands for its store wherever a path does: ``WSRMMiddleware(application, store=node)``."""
        return str(self.store.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def abandon(self) -> None:
        """This process is a fork of the one that opened it: close what shows the others that that one lives."""
        self.store.abandon()
        for subscription in self.subscriptions:
            subscription.abandon(self._of_another_process())

    def close(self) -> None:
        """Give back what is leased, which is no failure, and leave the store."""
        if self.store.is_open and self._pid == os.getpid():
            for subscription in self.subscriptions:
                subscription.close(by="the node's `close`")
            self.upkeep.stop()
            self.doorbell.stop()
            self.store.close(leave)
            self.doorbell.tell()

    def send_last(self) -> list[Future[Any]]:
        """See ``node.at_exit``. What is under way to the store is written before what is sent now."""
        with suppress(WSRMError):
            self._refuse_unusable()
            return [*(sent for one in self.subscriptions for sent in one.send_last()), self.submit(lambda _tx: None)]
        return []

    def commit(self) -> list[int]:
        """Do what the transaction has collected; answers the positions of what was put in it."""
        done = self._ended()
        if done.home is not None:
            done.home.call(done, size=done.size, wakes=True)
        for told in done.committed:
            told()
        return done.positions

    def forget(self, flow: Flow) -> None:
        """The subscription of a flow is closed."""
        self._subscriptions.pop(flow, None)

    def begin(self) -> Transaction:
        """See ``Transacting.begin``. Raises ``StoreUnavailable`` in a fork, and where the node is closed."""
        self._refuse_unusable()
        return super().begin()

    def _of_another_process(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"{self.store.path}: the node was opened in another process, of which this one is a fork.",
            "Call `connect` in the child.",
        )

    def _refuse_unusable(self) -> None:
        if self._pid != os.getpid():
            raise self._of_another_process()
        if not self.store.is_open:
            raise StoreUnavailable(f"{self.store.path}: the node is closed.", "Call `connect` anew.")

    def reader(self) -> AbstractContextManager[Connection]:
        """A connection that looks into the store. Raises ``StoreUnavailable`` in a fork, and where it is closed."""
        self._refuse_unusable()
        return self.store.reader()

    def call(
        self,
        verb: Callable[[Unit], R],
        *,
        size: int = 0,
        wakes: bool = False,
        keep: bool = False,
        drains: bool = False,
        is_relaxed: bool = False,
        committed: Callable[[R], object] | None = None,
    ) -> R:
        """Run a verb in a transaction. ``wakes``: something may be ready then. ``keep``: it is tried until it is
        stored, also where the disk is full; ``drains``: it helps to make room there. ``is_relaxed``: it need not
        survive a loss of power. ``committed``: is told the result before any verb behind this one is told its own."""
        self._refuse_unusable()
        result = self.store.call(
            verb, size=size, keep=keep, drains=drains, leads=True, is_relaxed=is_relaxed, committed=committed
        )
        if wakes:
            self.doorbell.tell()
        return result

    def submit(
        self,
        verb: Callable[[Unit], R],
        *,
        size: int = 0,
        keep: bool = False,
        is_relaxed: bool = False,
        wakes: bool = True,
        confirmation: Future[R] | None = None,
    ) -> Future[R]:
        """Have a verb run in a transaction; waits for nothing. ``wakes``: something may be ready then.
        ``confirmation``: is told what came of it."""
        self._refuse_unusable()
        done: Future[R] = confirmation or Future()
        done.set_running_or_notify_cancel()
        under_way = [done]  # emptied then: the traceback of an error leads to `committed`

        def committed(result: R | None, error: BaseException | None) -> None:
            done = under_way.pop()
            if error is not None:
                done.set_exception(error)
                return
            done.set_result(cast(R, result))
            (self.doorbell.tell_soon if wakes else self.doorbell.settled)()

        self.store.submit(verb, committed, size=size, keep=keep, is_relaxed=is_relaxed)
        return done


def leave(tx: Unit) -> None:
    """Leave the store: nothing is leased here any more, and nothing of it is counted."""
    while clearing.leave(tx):
        continue
    tx.execute(queues.LEAVE, {"key": tx.instance, "now": tx.now})
    tx.count_now()


KEPT: Final = QueuePolicy(retain=3_600_000)
"""A settled message is on record for an hour, and where its queue says so for longer."""
_FULL: Final = QueuePolicy(retain=0)
"""On a full disk the room is wanted at once."""


class Upkeep(Janitor):
    """A janitor that leaves a store to its service, which says how long messages are kept there."""

    def __init__(self, store: Store, events: Events) -> None:
        super().__init__(store, lambda _partner: _FULL if store.is_disk_full else KEPT, events)

    def sweep(self) -> Pruned:
        with self._store.reader() as db:
            (is_served,) = db.execute(queues.IS_SERVED).fetchone()
        return Pruned() if is_served else super().sweep()
