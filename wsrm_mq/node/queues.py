"""A node's API for queues themselves: they are declared, bound to topics, looked into and deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

from wsrm_mq.node.checks import check_number, filter_of
from wsrm_mq.node.message import Message
from wsrm_mq.node.neighbours import Neighbouring, Offer, offer
from wsrm_mq.node.opened import Opened
from wsrm_mq.queue import browsing, clearing, declaring, express, rerouting, retaining, routing, topics
from wsrm_mq.queue.browsing import Stats
from wsrm_mq.queue.clearing import Cleared, Part
from wsrm_mq.queue.declaring import Declared
from wsrm_mq.queue.leasing import Leased
from wsrm_mq.queue.policies import QueuePolicy
from wsrm_mq.queue.retaining import Event
from wsrm_mq.queue.routing import Route
from wsrm_mq.queue.topics import Client
from wsrm_mq.store import consuming
from wsrm_mq.store.filtering import Filter
from wsrm_mq.store.transaction import Transaction as Unit


class Queues(Neighbouring, Opened):
    """The part of a node that makes queues and looks into them."""

    def declare(self, queue: str, *, actor: str | None = None, **options: Any) -> QueuePolicy:
        """Make a queue, or change the policy of one; answers its policy. The options are those of ``QueuePolicy``.
        ``actor``: who, for the ledger; ``None``: a program, which does so at each start."""
        policy = self.call(lambda tx: declaring.declare(tx, queue, options, actor=actor)).policy
        self.declared(queue, policy)
        return policy

    def declared(self, queue: str, policy: QueuePolicy) -> None:
        """A queue was declared in this node's store."""

    def keys(self) -> list[str]:
        """The names of the queues that are declared."""
        with self.reader() as db:
            return [name for (name,) in db.execute(consuming.DECLARED_QUEUES)]

    def offers(self, may_see: Callable[[str], bool] = lambda _name: True) -> list[Offer]:
        """The queues of this node that others may see, those of these that ``may_see`` names, and what they have."""
        now = self.store.clock() / 1000
        with self.reader() as db:
            here = routing.node_name(db).name
            scopes = {name: scope for name, scope in browsing.scopes(db).items() if may_see(name)}
        return [offer(name, scope, self.stats(name), here, now) for name, scope in scopes.items()]

    def positions(self, queue: str, *, after: int = 0, limit: int = 10_000) -> list[int]:
        """The positions of the messages that ``peek`` shows: the first ``limit`` behind ``after``, in order."""
        check_number("after", after)
        check_number("limit", limit, 1)
        found: list[int] = []
        for place, _names in self.places([queue]):
            with place.reader() as db:
                found += browsing.positions(db, declaring.read(db, queue), after, limit)
        return sorted(found)[:limit]

    def delete(self, queue: str, *, if_empty: bool = False, force: bool = False) -> Cleared:
        """Delete a queue, as far as it is in this node's store. See ``Node.delete``."""
        self.refuse_in_transaction("What is deleted")

        def verb(tx: Unit) -> Part:
            return express.delete(tx, declaring.declared(tx, queue), if_empty=if_empty, force=force)

        return self._in_parts(verb, clearing.purge_deleted)

    def _in_parts(self, first: Callable[[Unit], Part], rest: Callable[[int, Unit], Part]) -> Cleared:
        """Do an act in parts, between which others write."""
        return clearing.in_parts(partial(self.call, wakes=True, drains=True), first, rest)

    def purge(self, queue: str, lower: int = 0, upper: int | None = None, *, actor: str = clearing.ACTOR) -> Cleared:
        """Give up what is not leased, between two positions where those are given. It is done in parts, between which
        others write; what is put meanwhile stays. ``actor``: who, for the ledger."""
        self.refuse_in_transaction("What is purged")
        check_number("lower", lower)
        if upper is not None:
            check_number("upper", upper)
        self.call(lambda tx: tx.add_ledger("queue_purged", declaring.declared(tx, queue).key, actor=actor), drains=True)
        return clearing.together(place.purged(queue, lower, upper) for place, _names in self.places([queue]))

    def purged(self, queue: str, lower: int, upper: int | None) -> Cleared:
        """Purge a queue, as far as it is in this node's store."""
        with self.reader() as db:
            last = browsing.last_unsettled(db, declaring.read(db, queue))
        to = last if upper is None else min(upper, last)
        part = partial(clearing.purge, name=queue, upper=to)
        return self._in_parts(partial(part, lower), part)

    def stats(self, queue: str) -> Stats:
        """Count the messages of a queue, by state; and say which process keeps the express ones among them."""
        counted = []
        for place, _names in self.places([queue]):
            with place.reader() as db:
                counted.append(browsing.stats(db, declaring.read(db, queue), self.store.clock()))
        with self.reader() as db:
            return browsing.together(counted)._replace(keeper=express.kept_by(db, self.store.instances, queue))

    def bind(self, pattern: str, queue: str, *, filter: str | None = None, actor: str | None = None) -> None:
        """From now on what is published to a topic of ``pattern``, and fits ``filter``, goes into ``queue`` too. In a
        pattern ``*`` is one level, and ``#`` at its end all that may follow. ``actor``: who, for the ledger."""

        def verb(tx: Unit) -> None:
            found = declaring.found(tx, queue, auto_create=self.auto_create)
            topics.bind(tx, pattern, found, filter, actor=actor)

        self.call(verb)

    def unbind(self, pattern: str, queue: str, *, actor: str | None = None) -> int:
        """Nothing of ``pattern`` goes into ``queue`` any more. Answers how many bindings there were. ``actor``: who,
        for the ledger."""
        return self.call(lambda tx: topics.unbind(tx, pattern, declaring.declared(tx, queue), actor=actor))

    def route(self, pattern: str, next_hop: str, *, cost: int = 1, strip: bool = False) -> None:
        """From now on what is put into a queue of ``pattern`` that is not here goes to the node at the URL
        ``next_hop``, or by a cheaper route for it; in a pattern ``*`` stands for any characters. ``strip``: it arrives
        under its name without what stands before the first ``*``. A process that serves the queues sends it
        (``wsrm-mq queue-server``), or one with ``wsrm_mq.routes.Routing``. With routes a queue that is not there is
        never made by a put. Raises ``ConfigurationError``."""

        def verb(tx: Unit) -> None:
            routing.settle_name(tx)
            routing.add_route(tx, pattern, next_hop, cost, strip=strip)

        self.call(verb, wakes=True)

    def unroute(self, pattern: str, next_hop: str | None = None) -> int:
        """Drop the routes of a pattern, or that by one node; answers how many there were. What waits for that node goes
        by another route, and is a dead letter where there is none."""

        def verb(tx: Unit) -> tuple[int, rerouting.Rerouted]:
            return len(routing.drop_route(tx, pattern, next_hop)), rerouting.reroute_waiting(tx)

        dropped, done = self.call(verb, wakes=True)
        while any(done):  # in parts: what is put meanwhile waits for none of them all
            done = self.call(rerouting.reroute_waiting, wakes=True)
        return dropped

    def routes(self) -> list[Route]:
        """The routes, the cheapest first."""
        with self.reader() as db:
            return routing.routes(db)

    def declare_topic(self, pattern: str, *, retain: float | None, actor: str | None = None) -> None:
        """From now on what is published to a topic of ``pattern`` stays for ``retain`` seconds, to be replayed, whether
        a queue takes it or not; ``None``: for ever, 0: no longer. ``actor``: who, for the ledger."""
        self._in_parts(lambda tx: retaining.retain(tx, pattern, retain, actor=actor), clearing.purge_deleted)

    def replay(
        self, topic: str, *, since: int | float | Literal["first"] = "first", filter: str | Filter | None = None
    ) -> Iterator[Message]:
        """Look again at what was published to topics of this pattern and is retained, in order. ``since``: a position,
        that one included, or a time in seconds since the epoch, as a float. Nothing is acknowledged, and nothing
        changes."""
        topics.check_pattern(topic)
        wanted = filter_of(filter)
        with self.reader() as db:
            begins = retaining.since_of(since, retaining.last_position(db))
        found = retaining.replay(self.reader, self.store.reached(), topic, begins, wanted)
        return (looked_at(log, one) for log, one in found)

    def events(self, bucket: str) -> list[Event]:
        """The events of a bucket, of which something is retained: each with its count, and when the last came."""
        with self.reader() as db:
            return retaining.events(db, bucket, self.store.reached())

    def clients(self) -> list[Client]:
        """Who has subscribed to queues and topics, and whether it is there."""
        with self.reader() as db:
            return topics.clients(db, self.store.instances, self.store.clock())

    def peek(self, queue: str, *, after: int = 0, limit: int = 50, filter: str | Filter | None = None) -> list[Message]:
        """Look at up to ``limit`` messages behind the position ``after``, whatever their state; nothing changes. Raises
        ``PeekForbidden``."""
        check_number("after", after)
        check_number("limit", limit, 1)
        wanted = filter_of(filter)
        seen: list[Message] = []
        for place, _names in self.places([queue]):
            with place.reader() as db:
                found = declaring.read(db, queue)
                peeked = browsing.peek(db, found, self.store.clock(), after, limit, wanted)
            seen += (looked_at(found, one) for one in peeked)
        return sorted(seen, key=lambda one: one.position)[:limit]

    def get(self, queue: str, position: int) -> Message | None:
        """Look at the message at ``position``; ``None`` where it is not in the queue, or settled."""
        check_number("position", position)
        for place, _names in self.places([queue]):
            with place.reader() as db:
                found = declaring.read(db, queue)
                seen = browsing.get(db, found, self.store.clock(), position)
            if seen is not None:
                return looked_at(found, seen)
        return None


def looked_at(queue: Declared, one: browsing.Peeked) -> Message:
    """The message, of which nothing is settled."""
    until = None if one.leased_until is None else one.leased_until / 1000
    seen = Leased(queue, one.seen, 0)
    return Message(None, seen, until, state=one.state, reason=one.reason or None, last_error=one.last_error)
