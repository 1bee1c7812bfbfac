"""A node's API for programs that put and publish. Times are in seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from wsrm_mq.errors import ConfigurationError, KeeperGone, NotAllowed, QueueChanged, QuotaExceeded, UnknownQueue
from wsrm_mq.node.checks import Gone, check_durability, check_waits
from wsrm_mq.node.confirmation import Confirmation
from wsrm_mq.node.opened import Opened
from wsrm_mq.node.payload import stored
from wsrm_mq.node.putting import Putting
from wsrm_mq.node.transactions import Transaction
from wsrm_mq.queue import declaring, hopping, topics
from wsrm_mq.queue import put as putting
from wsrm_mq.queue.adding import Put
from wsrm_mq.queue.declaring import LOG
from wsrm_mq.queue.policies import DEFAULT, Durability
from wsrm_mq.queue.topics import Published
from wsrm_mq.store.transaction import Transaction as Unit

if TYPE_CHECKING:
    from wsrm_mq.node.node import Place

R = TypeVar("R")
BLOCKED_SECONDS: Final = 0.25
"""A producer that waits for room looks again so often, whatever it is told."""
TOPICS: Final = 1_000
"""Topics whose durability is remembered, at most."""
_SAFER: Final = 'Publish it with `durability="relaxed"`, or have one process keep them.'
_ROW_BYTES: Final = 1024
"""The bytes that a message adds to the store beside its body, about."""


class Producing(Putting[Transaction, Put], Opened):
    """The part of a node that puts messages into queues."""

    def _put_soon(self, queue: str, one: Put, asked: Durability | None) -> Future[int]:
        durability = self._durability(queue, asked)
        place = self.place_of(queue, durability)
        verb = place.verb(queue, [one], asked, durability)
        soon: Confirmation[int] = Confirmation(queue)
        is_relaxed = _is_relaxed(place, durability)
        return place.submit(lambda tx: verb(tx)[0], size=len(one.body), is_relaxed=is_relaxed, confirmation=soon)

    def _made(self, body: object, options: dict[str, Any], asked: Durability | None = None) -> Put:
        return stored(body, options, now=self.store.clock(), client=self.name)

    def _durability(self, queue: str, asked: Durability | None) -> Durability:
        """The durability of a put, before its queue is read in the transaction. Raises ``ConfigurationError``."""
        known = self._usual.get(queue) if asked is None else check_durability(asked)
        if known is None:
            with self.reader() as db, suppress(UnknownQueue):  # such a one is made as by default
                known = self._usual[queue] = declaring.read(db, queue).policy.durability
        return known or DEFAULT.durability

    def verb(
        self, queue: str, many: Sequence[Put], asked: Durability | None, assumed: Durability
    ) -> Callable[[Unit], list[int]]:
        """The verb that puts messages. ``assumed``: how its commit makes them safe."""

        def verb(tx: Unit) -> list[int]:
            route = hopping.elsewhere(tx, queue)
            if route is not None:
                self._find_report_queues(tx, many)
                is_express = assumed == "express"
                return [hopping.forward(tx, route, queue, one, is_express=is_express) for one in many]
            found = declaring.found(tx, queue, auto_create=self.auto_create)
            if asked is None and found.policy.durability != assumed:
                self._usual.pop(queue, None)
                raise QueueChanged(f"The durability of {queue} was changed while something was put. Put it again.")
            if self.is_express:
                _refuse_wishes(many)
            self._find_report_queues(tx, many)
            positions = putting.put_many(tx, found, many)
            self._quota.keep(tx, blocks=found.policy.overflow == "block")
            return positions

        return verb

    def _find_report_queues(self, tx: Unit, many: Iterable[Put]) -> None:
        """See that the queues are there which reports go into. Raises ``UnknownQueue``."""
        for name in {one.header.report_to for one in many if one.header.report_to is not None}:
            declaring.refuse_system(declaring.found(tx, name, auto_create=self.auto_create))

    def _put(
        self, queue: str, many: Sequence[Put], timeout: float | None, asked: Durability | None, gone: Gone
    ) -> list[int]:
        open_one = self._open_one
        size = sum(_ROW_BYTES + len(one.body) for one in many)
        if open_one is not None:
            durability = self._durability(queue, asked)
            place = self.place_of(queue, durability)
            verb = place.verb(queue, many, durability, durability)  # it is synced as a whole
            open_one.put(place, verb, len(many), size)
            return [0] * len(many)

        def put(left: float | None) -> list[int]:
            durability = self._durability(queue, asked)
            place = self.place_of(queue, durability, waits=gone == "wait", timeout=left)
            verb = place.verb(queue, many, asked, durability)
            return place.call(verb, size=size, wakes=True, is_relaxed=_is_relaxed(place, durability))

        return self._when_there_is_room(lambda: self._persistently(put, gone, timeout), timeout)

    def _persistently(self, put: Callable[[float | None], R], gone: Gone, timeout: float | None) -> R:
        """Put anew where a queue was changed meanwhile, or where its keeper is gone and that is waited for. ``put`` is
        told how many seconds are left."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                return put(None if deadline is None else max(0.0, deadline - time.monotonic()))
            except QueueChanged:  # it is read anew
                continue
            except KeeperGone:
                if gone == "raise" or (deadline is not None and time.monotonic() >= deadline):
                    raise

    def _when_there_is_room(self, put: Callable[[], R], timeout: float | None) -> R:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            rings = self.doorbell.rings
            try:
                return put()
            except QuotaExceeded as error:
                left = BLOCKED_SECONDS if deadline is None else min(BLOCKED_SECONDS, deadline - time.monotonic())
                if not error.blocks or left <= 0:
                    raise
                self.doorbell.wait(rings, left)

    def publish(
        self,
        topic: str,
        body: object,
        *,
        mandatory: bool = False,
        durability: Durability | None = None,
        gone: Gone = "raise",
        timeout: float | None = None,
        **options: Any,
    ) -> Published:
        """Put a message into every queue that is bound to ``topic``, or into none of them; answers its position in the
        first, and their names. ``durability``: of all of it, ``None``: as safe as the safest of the queues wants it;
        express messages go into queues that one process keeps, else ``NotAllowed`` is raised. ``options``, and ``gone``
        with ``timeout``: see ``put``. Where nothing takes it, that is on record as ``unrouted``; ``mandatory``:
        ``Unrouted`` is raised too. Within a transaction it answers neither. Raises ``QuotaExceeded``, also where a
        queue would have its producers wait."""
        check_waits(gone, timeout)
        one = self._made(body, options)
        topics.check_topic(topic)
        open_one = self._open_one
        if open_one is not None:
            assumed = self._durability_of_topic(topic, durability)
            place, verb = self._publication(topic, one, assumed, assumed, mandatory=mandatory)  # synced as a whole
            open_one.put(place, lambda tx: [verb(tx).position or 0], 1, len(one.body))
            return Published(None, ())

        def publish(left: float | None) -> Published:
            assumed = self._durability_of_topic(topic, durability)
            place, verb = self._publication(topic, one, durability, assumed, waits=gone == "wait", timeout=left)
            return place.call(verb, size=len(one.body), wakes=True, is_relaxed=assumed == "relaxed")

        done = self._persistently(publish, gone, timeout)
        if mandatory and done.position is None:
            raise topics.unrouted(topic)
        return done

    def _publication(
        self,
        topic: str,
        one: Put,
        asked: Durability | None,
        assumed: Durability,
        *,
        mandatory: bool = False,
        waits: bool = False,
        timeout: float | None = None,
    ) -> tuple[Place, Callable[[Unit], Published]]:
        """The verb that publishes a message, and the node in whose store it does. ``assumed``: how its commit makes it
        safe."""
        bound: topics.Bound = []
        place = cast("Place", self)
        if assumed == "express":
            _refuse_wishes([one])
            with self.reader() as db:
                bound = topics.bound_to(db, topic)
            self._check_bound(topic, bound, asked, assumed)
            if any(queue.kind == LOG for queue, _filters in bound):
                raise NotAllowed(
                    f"{topic} retains what is published to it, and express messages are not kept. {_SAFER}"
                )
            places = {
                self.place_of(queue.name, assumed, waits=waits, timeout=timeout): queue for queue, _filters in bound
            }
            if len(places) > 1:
                names = ", ".join(queue.name for queue in places.values())
                raise NotAllowed(
                    f"The express messages of the queues that are bound to {topic} are kept by several processes "
                    f"({names}), and no commit is of all of them. {_SAFER}"
                )
            place = next(iter(places), place)

        def verb(tx: Unit) -> Published:
            if place is not self:
                there = [(declaring.declared(tx, queue.name), filters) for queue, filters in bound]
                done = topics.publish(tx, topic, one, mandatory=mandatory, bound=there)
                if done.position is None:  # on record where that outlives this process
                    write_down = partial(topics.write_down_unrouted, topic=topic, one=one)
                    self.store.submit(write_down, lambda _result, _error: None, keep=True)
                return done
            found = topics.bound_to(tx, topic)
            self._check_bound(topic, found, asked, assumed)
            self._find_report_queues(tx, [one])
            done = topics.publish(tx, topic, one, mandatory=mandatory, bound=found)
            self._quota.keep(tx, blocks=False)
            return done

        return place, verb

    def _check_bound(self, topic: str, bound: topics.Bound, asked: Durability | None, assumed: Durability) -> None:
        if asked is None and topics.durability_of(bound) != assumed:
            self._usual_of_topics.pop(topic, None)
            raise QueueChanged(f"The queues that are bound to {topic} were changed meanwhile. Publish it again.")

    def _durability_of_topic(self, topic: str, asked: Durability | None) -> Durability:
        """The durability of what is published to a topic, before its bindings are read in the transaction."""
        if asked is not None:
            return check_durability(asked)
        known = self._usual_of_topics.get(topic)
        if known is None:
            with self.reader() as db:
                known = topics.durability_of(topics.bound_to(db, topic))
            if len(self._usual_of_topics) >= TOPICS:
                self._usual_of_topics.clear()
            self._usual_of_topics[topic] = known
        return known


def _is_relaxed(place: Place, durability: Durability) -> bool:
    """Whether a commit need not be safe from a loss of power: that of express messages for other nodes, which are in
    the store, neither."""
    return durability == "relaxed" or (durability == "express" and not place.is_express)


def _refuse_wishes(many: Iterable[Put]) -> None:
    """Raises ``ConfigurationError`` for express messages that are put with wishes."""
    if any(one.asks for one in many):
        raise ConfigurationError(
            "Of an express message no report comes, and its sender's journal has none: leave out `journal` and "
            '`report_to`, or use `durability="recoverable"`. The journal of its queue has it.'
        )
