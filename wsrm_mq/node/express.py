"""The express messages of a node: those that its own process keeps, in its temporary database, and those of other
processes, which it uses through their sockets.

A queue has its express messages in one place: the process that declared it as express, or else the one that was the
first to put such a message there, keeps them all as long as it lives. Each place is a node of its own, over a store of
its own (``store.express``), so all verbs are the same there.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from wsrm_mq.errors import KeeperGone, StoreError, UnknownQueue
from wsrm_mq.node.message import Message
from wsrm_mq.queue import browsing, declaring, express, hopping
from wsrm_mq.queue.clearing import Cleared
from wsrm_mq.queue.express import Keeper
from wsrm_mq.queue.leasing import Request
from wsrm_mq.queue.policies import DEFAULT, QueuePolicy, as_values
from wsrm_mq.store.driver import Temporary, recorded
from wsrm_mq.store.express import ExpressStore, Positions, unsettled
from wsrm_mq.store.lasting import Lasting, Repeated
from wsrm_mq.store.sharing import RemoteConnection, Sharing
from wsrm_mq.store.transaction import Transaction as Unit

if TYPE_CHECKING:
    from wsrm_mq.node.node import Kept, Node, Place
    from wsrm_mq.node.subscription import Subscription

LOOK_SECONDS: Final = 1.0
"""Dead keepers are looked for so often."""
FRESH_SECONDS: Final = 0.05
"""How old the list of keepers may be before it is read anew."""
WAIT_SECONDS: Final = 0.25
"""A put that waits for a keeper looks again so often, whatever it is told."""
DYING_SECONDS: Final = 2.0
AGAIN_SECONDS: Final = 0.01
LETTERS: Final = "#dead"


class Own(NamedTuple):
    """The express messages that this process keeps."""

    database: Temporary
    sharing: Sharing
    place: Kept


class Express:
    """The places of a node's express messages."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._lock = threading.RLock()
        self._own: Own | None = None
        self._others: dict[str, Kept] = {}
        """Places of other processes, by their instance's name."""
        self._keepers: dict[str, Keeper] = {}
        self._read_at = self._looked_at = self._joined_at = float("-inf")
        self._is_stale = self._is_closed = self._overflows = False
        self._thread: Lasting | None = None
        self._is_wanted = threading.Event()
        """It is set where the thread is to look around."""
        self._trouble = Repeated()

    # the keepers

    def keepers(self, *, fresh: bool = False) -> dict[str, Keeper]:
        """The keepers of queues, by the queue's name."""
        now = time.monotonic()
        if fresh or self._is_stale or now - self._read_at > FRESH_SECONDS:
            self._is_stale = False
            with self._node.store.reader() as db:
                self._keepers = express.keepers(db)
            self._read_at = now
        return self._keepers

    def places(self, names: Sequence[str]) -> list[tuple[Kept, list[str]]]:
        """The places in which these queues have express messages, each with the names of its queues; dead letters are
        where their queue's messages are."""
        found: dict[str, tuple[Kept, list[str]]] = {}
        keepers = self.keepers()
        for name in names if keepers else ():
            keeper = keepers.get(name.removesuffix(LETTERS))
            with suppress(KeeperGone):
                place = None if keeper is None else self._place(keeper)
                if keeper is not None and place is not None and place.has(name):
                    found.setdefault(keeper.name, (place, []))[1].append(name)
        return list(found.values())

    def _place(self, keeper: Keeper) -> Kept | None:
        """The place of a keeper; ``None`` where that is gone."""
        node = self._node
        with self._lock:
            if self._own is not None and keeper.instance == node.store.instance:
                return self._own.place
            place = self._others.get(keeper.name)
            if place is None and not self._is_closed and node.store.instances.lives(keeper.name) is not False:
                path, name = node.store.path, keeper.name
                place = self._open(ExpressStore(node.store, lambda: RemoteConnection(path, name), node.telling))
                self._others[name] = place
            return place

    def _open(self, store: ExpressStore) -> Kept:
        from wsrm_mq.node.node import Kept  # which is a node, and has no express messages beside it

        store.open()
        return Kept(self._node, store)

    # putting

    def place_of(self, queue: str, *, waits: bool, timeout: float | None) -> Place:
        """The place into which express messages of a queue are put: the node itself where a route
        leads to the queue. Where none
        keeps them, this process does from now on, unless the queue was declared as express by a process that is gone:
        then it waits, up to ``timeout`` seconds, until one declares it again, or raises ``KeeperGone``."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            rings = self._node.doorbell.rings
            keeper = self.keepers().get(queue) or self.keepers(fresh=True).get(queue)
            place = None if keeper is None else self._place(keeper)
            if place is not None:
                return place
            policy = self._policy(queue)
            if policy is None:
                return cast("Place", self._node)
            if policy.durability != "express":
                return self.keep(queue, policy)
            left = WAIT_SECONDS if deadline is None else min(WAIT_SECONDS, deadline - time.monotonic())
            if not waits or left <= 0:
                raise KeeperGone(
                    f"No process keeps the express messages of {queue}; what one before it had is gone with that."
                )
            self._node.doorbell.wait(rings, left)

    def _policy(self, queue: str) -> QueuePolicy | None:
        """``None``: a route leads to the queue."""
        with self._node.store.reader() as db:
            try:
                return declaring.read(db, queue).policy
            except UnknownQueue:
                return None if hopping.way(db, queue) is not None else DEFAULT

    def declared(self, queue: str, policy: QueuePolicy) -> None:
        """A queue was declared: this process keeps its express messages if it says so and no other one does, and where
        they are is told its policy. A process that dies meanwhile keeps them no longer, which is known a moment later
        than it does not answer. Raises ``KeeperGone`` where one that lives does not answer."""
        deadline = time.monotonic() + DYING_SECONDS
        while True:
            try:
                return self._declared(queue, policy)
            except KeeperGone:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(AGAIN_SECONDS)
            self.bury()

    def _declared(self, queue: str, policy: QueuePolicy) -> None:
        keeper = self.keepers(fresh=True).get(queue)
        place = None if keeper is None else self._place(keeper)
        if place is not None:
            place.call(lambda tx: _declare(tx, queue, policy))
        elif policy.durability == "express":
            self.keep(queue, policy)
        self._limit_memory()

    def keep(self, queue: str, policy: QueuePolicy) -> Kept:
        """Keep the express messages of a queue, unless another process has begun to; answers their place."""
        node = self._node
        with self._lock:
            own = self._own = self._own or self._begin()
        own.place.call(lambda tx: _declare(tx, queue, policy))
        self._limit_memory()
        keeper = node.call(
            lambda tx: express.keep(tx, declaring.found(tx, queue, auto_create=node.auto_create)), wakes=True
        )
        self.keepers(fresh=True)
        place = self._place(keeper)
        if place is None:
            raise KeeperGone(f"The process that began to keep the express messages of {queue} is gone.")
        return place

    def _begin(self) -> Own:
        node = self._node
        assert node.store.presence is not None
        database = Temporary(
            DEFAULT.memory_limit,
            Positions(node.store),
            lambda changes: node.store.call(lambda tx: express.record(tx, changes)),
        )
        place = self._open(ExpressStore(node.store, database.session, node.telling))
        return Own(database, Sharing(node.store.path, node.store.presence.name, database, node.telling), place)

    def _limit_memory(self) -> None:
        own = self._own
        if own is not None:
            with own.place.store.reader() as db:
                kept = [one.policy.memory_limit for one in browsing.every(db) if one.is_declared]
            own.database.limit_memory(sum(kept))

    def delete(self, queue: str, *, if_empty: bool = False, force: bool = False) -> Cleared:
        """Delete a queue where its express messages are, if their keeper answers."""
        with suppress(KeeperGone):
            for place, _names in self.places([queue]):
                purged = place.delete(queue, if_empty=if_empty, force=force)
                self._node.call(partial(express.forget, name=queue))
                self._is_stale = True
                return purged
        return Cleared(0)

    # the watch

    def ring(self) -> None:
        """Something may be ready in the store, or in a place of another process, or be kept since."""
        self._is_stale = True
        own = [] if self._own is None else [self._own.place]
        for place in (*own, *self._others.values()):
            place.relayed.ring()

    def look(self) -> None:
        """The watch calls it: have lost what dead processes kept, and join the subscriptions to what others keep. That
        is done in a thread of its own: a keeper that hangs keeps none waiting but who asks it."""
        now = time.monotonic()
        if self._is_closed or now - self._joined_at < FRESH_SECONDS:
            return
        self._joined_at = now
        if self._thread is None and self.keepers():
            events = self._node.telling
            self._thread = Lasting("wsrm-mq-express-look", self._loop, self._broke, events)
            self._thread.start()
        self._is_wanted.set()

    def _loop(self) -> None:
        while True:
            self._is_wanted.wait()
            self._is_wanted.clear()
            if self._is_closed:
                return
            try:
                self._look_around()
                self._trouble.over()
            except StoreError as error:
                self._broke(error)

    def _broke(self, error: BaseException) -> None:
        if not (isinstance(error, StoreError) and error.lasts):  # that a keeper is gone is told as `express.lost`
            self._trouble.tell(self._node.telling, "watch.failed", error)

    def _look_around(self) -> None:
        now = time.monotonic()
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            self.bury()
            self._look_at_memory()
        for subscription in self._node.subscriptions:
            self.join(subscription)

    def _look_at_memory(self) -> None:
        own, was_over = self._own, self._overflows
        if own is not None:
            size, limit = own.database.size, own.database.memory_limit
            self._overflows = size > limit
            if self._overflows and not was_over:
                self._node.telling.tell("express.overflow", size=size, limit=limit)

    def bury(self) -> None:
        """Have lost what dead processes kept, and leave their places."""
        keepers = set(self.keepers(fresh=True).values())
        dead = {keeper for keeper in keepers if self._node.store.instances.lives(keeper.name) is False}
        for keeper in dead:
            self._node.call(partial(express.lose, keeper=keeper), wakes=True)
        self._leave(self._others.keys() - {keeper.name for keeper in keepers - dead})

    def _leave(self, names: Iterable[str]) -> None:
        for name in list(names):
            place = self._others.pop(name, None)
            if place is not None:
                place.close()

    def join(self, subscription: Subscription) -> None:
        """Have a subscription get the express messages of its queues too."""
        if self.keepers().keys().isdisjoint(name.removesuffix(LETTERS) for name in subscription.flow.names):
            return
        with self._lock:
            for place, names in self.places(subscription.flow.names):
                for name in names:
                    with suppress(KeeperGone):
                        subscription.join(place, name)

    def close(self) -> None:
        """Leave the places of others; what this process keeps is lost, which is on record."""
        self._is_closed = True
        self._is_wanted.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            own, self._own = self._own, None
            self._leave(self._others.keys())
        if own is not None:
            names = list(self.keepers(fresh=True))
            lost = own.place.call(lambda tx: unsettled(tx, names))
            self._node.call(lambda tx: express.let_go(tx, lost), wakes=True)
            own.place.close()
            own.sharing.close()
            own.database.close()

    def send_last(self) -> list[Future[Any]]:
        """See ``node.at_exit``."""
        return [sent for place in self._others.values() for sent in place.send_last()]

    def abandon(self) -> None:
        """This process is a fork of the one that keeps them: its peers shall not take this one for that."""
        if self._own is not None:
            self._own.sharing.abandon()


def _declare(tx: Unit, queue: str, policy: QueuePolicy) -> None:
    """Declare a queue where its express messages are kept. Where it has a journal that is in the store, and so are the
    dead letters: of both a process that is gone leaves nothing."""
    here = {"journal": False, "dead_letter": policy.dead_letter and not policy.journal}
    declared = declaring.declare(tx, queue, {**as_values(policy), **here})
    tx.execute(recorded(wanted=policy.journal), {"queue": declared.key})


def lease_in_turn(places: Sequence[tuple[Place, list[str]]], request: Request) -> list[Message]:
    """Lease from several places what comes first, by priority and position; then, where there is room, what is in
    groups, or has come meanwhile."""
    heads = sorted(
        (*head, index) for index, (place, names) in enumerate(places) for head in place.heads(names, request)
    )[: request.most]
    if request.max_bytes is not None:
        heads = heads[: _fitting([size for _priority, _position, size, _index in heads], request.max_bytes)]
    wanted = Counter(index for *_head, index in heads)
    found: list[Message] = []
    for index, (place, names) in enumerate(places):
        if wanted[index]:
            found += place.leased(names, request._replace(most=wanted[index], max_bytes=None))
    for place, names in places:
        left = request.most - len(found)
        if left > 0 and (request.max_bytes is None or not found):
            found += place.leased(names, request._replace(most=left))
    return sorted(found, key=lambda one: (-one.priority, one.position))


def _fitting(sizes: Sequence[int], most: int) -> int:
    """How many of the first have no more than ``most`` bytes; one that is larger comes alone."""
    total = 0
    for count, size in enumerate(sizes):
        total += size
        if total > most and count:
            return count
    return len(sizes)
