"""Producers and consumers of queues, in the processes of a schedule; and what must hold of them whatever the order.

``Jobs`` knows what was put, what arrived to be pulled, what was leased and settled, from the commits. Of the store it
asks outcomes, counts and leases. ``topics`` has what is published, ``transactions`` what is done together.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple

from tests.simulator.acts import Operator
from tests.simulator.oracle import Oracle, Truth, Violation
from tests.simulator.process import Process
from tests.simulator.stored import Stored, outcomes_in
from wsrm_mq.queue import browsing, clearing, filters, settling
from wsrm_mq.queue.adding import Put
from wsrm_mq.queue.declaring import declare, declared, read
from wsrm_mq.queue.leasing import Leased, Request, lease
from wsrm_mq.queue.policies import DEFAULT, FOREVER
from wsrm_mq.queue.put import put_many
from wsrm_mq.queue.settling import Lease, Settlement
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.testing import ManualClock

LEASE: Final = 10.0
WINDOW: Final = 60_000
"""Milliseconds in which a message of the same id is the same message."""
LOG_WINDOW: Final = round(DEFAULT.dedupe_window * 1000)
"""The same, for what a topic retains."""
OPTIONS: Final[list[dict[str, Any]]] = [
    {"retry": [0], "max_failures": None},
    {"retry": [1], "max_failures": 3, "on_poison": "skip", "max_backlog": 2},
    {"lease": None, "retry": [0], "max_failures": None},
    {"retry": [], "max_failures": 1, "max_cancels": 2, "on_poison": "skip", "ttl": 3_600},
]
ROOM: Final = 3
"""Messages that the queue ``mail`` has room for."""
MOST: Final = 24
"""Messages of a schedule."""
WAYS: Final = ("ack",) * 6 + ("release", "nack", "renew", "expire")


class Part(NamedTuple):
    """A verb, and who is told what it came to where that is committed."""

    verb: Callable[[Transaction], Any]
    is_stored: Callable[[Any], None]
    actions: tuple[str, ...] = ()
    """The messages that it stores are known by these."""


class Accepted(NamedTuple):
    """A message in a queue. ``queue``: its key. ``turn``: its place in the ``group``, which is the identifier of a
    sequence that is pulled."""

    queue: int
    body: bytes
    group: str | None = None
    turn: int = 0
    is_consumed: bool = True
    """Else a topic retains it, or the application is called with it."""
    expires_at: int | None = None


class Held(NamedTuple):
    """A lease that was given. ``key``: of its group, or the position of a message by itself."""

    process: str
    key: object
    fence: int
    until: int


class Jobs:
    """The queues of a schedule. ``draw`` chooses their options, which all have."""

    def __init__(
        self,
        clock: ManualClock,
        oracle: Oracle,
        stored: Stored,
        operator: Operator,
        draw: random.Random,
        counts: Counter[str],
    ) -> None:
        self.counts = counts
        self._clock = clock
        self._oracle = oracle
        self._stored = stored
        self._operator = operator
        self.queues: dict[str, int] = {}
        """Keys of the queues that can be consumed, by name."""
        self.accepted: dict[int, Accepted] = {}
        """By position."""
        self.highest = 0
        """The highest position that was given."""
        self._known: dict[tuple[int, str], tuple[int, int]] = {}
        """Queue and id of a message → its position, and until when it is the same message."""
        self._held: dict[int, Held] = {}
        self._fences: dict[object, int] = {}
        self._taken: set[int] = set()
        """Positions that were acknowledged."""
        self._failed: Counter[int] = Counter()
        """How often consumers have failed with a position."""
        self._settled: dict[int, str] = {}
        """Outcomes that were seen before retention could take the entries."""
        self._made = 0
        """Bodies."""
        self.granted: dict[int, int] = {}
        """Backlogs of subscriptions, by their keys."""
        self.acknowledged: set[int] = set()
        """Positions that subscribers have acknowledged, whether or not that is sent."""
        self._subscribed: set[int] = set()
        """Positions that a subscription had."""
        self.mine: dict[str, list[tuple[int, int]]] = defaultdict(list)
        """Leases that a process knows of, also when they are over."""
        self.options = {"lease": LEASE, "dedupe_window": WINDOW / 1000, **draw.choice(OPTIONS)}
        self._has_journal = draw.random() < 0.3
        self.declare("jobs", journal=self._has_journal)
        self.declare("mail", max_messages=ROOM)

    def declare(self, name: str, **options: Any) -> None:
        def verb(tx: Transaction) -> None:
            self.queues[name] = declare(tx, name, {**self.options, **options}).key

        self._operator.commit(verb)

    def summary(self) -> list[object]:
        """What was put and what was taken, without positions, which go on from the schedule before."""
        return [[self.accepted[at].body for at in sorted(found)] for found in (self.accepted, self._taken)]

    # what is put

    def new_body(self) -> bytes:
        self._made += 1
        return b"%d" % self._made

    @property
    def is_full(self) -> bool:
        return len(self.accepted) >= MOST

    def put(self, process: Process, draw: random.Random) -> bool:
        if self.is_full:
            return False
        part = self.putting(draw)
        process.submit(part.verb, ignored, part.is_stored, refused=ignored)
        return True

    def putting(self, draw: random.Random) -> Part:
        queue = draw.choice(["jobs", "jobs", "mail"])
        name = draw.choice([None, None, "1", "2"])
        group = draw.choice([None, "a", "b"])
        bodies = [self.new_body() for _ in range(1 if name else draw.randint(1, 3))]
        many = [Put(body, body.decode(), message_id=name, group=group) for body in bodies]
        return Part(
            lambda tx: put_many(tx, declared(tx, queue), many),
            lambda positions: self._are_put(self.queues[queue], many, positions),
            tuple(body.decode() for body in bodies),
        )

    def _are_put(self, queue: int, many: Sequence[Put], positions: list[int]) -> None:
        for one, position in zip(many, positions, strict=True):
            known = self.known(queue, one.message_id)
            if known is None:
                self.is_added(position, Accepted(queue, one.body, one.group, position), one.message_id)
            elif position != known:
                raise Violation(f"the message {one.message_id} is put again at {position}, and was at {known}")

    def known(self, queue: int, message_id: str | None) -> int | None:
        """The position of the message that was put under this id a while ago."""
        position, until = self._known.get((queue, message_id or ""), (0, 0))
        return position if until > self._clock() else None

    def is_added(self, position: int, one: Accepted, message_id: str | None = None) -> None:
        """A message was stored."""
        if position <= self.highest:
            raise Violation(f"position {position} was given before, or a higher one (I1)")
        self.highest = position
        ttl = None if not one.is_consumed else self.options.get("ttl")
        self.accepted[position] = one._replace(expires_at=None if ttl is None else self._clock() + ttl * 1000)
        if message_id is not None:
            window = WINDOW if one.is_consumed else LOG_WINDOW
            self._known[one.queue, message_id] = position, self._clock() + window

    def is_deleted(self, queue: int) -> None:
        """A queue was deleted: nothing of it is leased any more."""
        self.queues = {name: key for name, key in self.queues.items() if key != queue}
        self._held = {at: one for at, one in self._held.items() if self.accepted[at].queue != queue}

    # steps of consumers

    def lease(self, process: Process, draw: random.Random) -> bool:
        names = list(self.queues) if draw.random() < 0.4 else [draw.choice(list(self.queues))]
        request = Request(draw.randint(1, 4))
        process.submit(
            lambda tx: lease(tx, [declared(tx, name) for name in names], request),
            partial(self._is_told, process.name),
            partial(self._is_leased, process.name),
            refused=ignored,
        )
        return True

    def settle(self, process: Process, draw: random.Random) -> bool:
        mine = self.mine[process.name]
        if not mine:
            return False
        position, fence = draw.choice(mine[-6:])
        part = self.settling(process, draw.choice(WAYS), position, fence)
        process.submit(part.verb, ignored, part.is_stored)
        return True

    def settling(self, process: Process, way: str, position: int, fence: int) -> Part:
        verbs: dict[str, Callable[[Transaction, Sequence[Lease]], list[Settlement]]] = {
            "nack": partial(settling.nack, error="it fails")
        }
        verb = verbs.get(way) or getattr(settling, way)
        return Part(
            lambda tx: verb(tx, [Lease(position, fence)]),
            lambda answers: self._is_settled(process.name, way, position, fence, answers[0]),
        )

    def settle_by_filter(self, process: Process, draw: random.Random) -> bool:
        """The program that has subscribed settles what a queue has up to a place."""
        if not self.accepted or process.subscriber is None:
            return False
        name, upto = draw.choice(["jobs", "mail"]), draw.choice(list(self.accepted))
        wanted = filters.parse(f"position <= {upto}")
        seen: dict[int, str | None] = {}

        def looked_at(verb: Callable[[Transaction], clearing.Swept], tx: Transaction) -> clearing.Swept:
            queue = declared(tx, name)
            tx.write_lanes()
            before = [one.seen.position for one in browsing.peek(tx, queue, tx.now, count=MOST, wanted=wanted)]
            done = verb(tx)
            seen.clear()
            seen.update(outcomes_in(tx, before))
            return done

        def are_settled(done: clearing.Swept) -> None:
            self._are_settled(process.name, self.queues[name], upto, seen, done.cleared)

        process.subscriber.settle_by_filter(name, wanted, looked_at, are_settled)
        return True

    def peek(self, process: Process, draw: random.Random) -> bool:
        """A program looks at a queue, and counts what is in it."""
        name, before = draw.choice(list(self.queues)), self._stored.version()
        with process.store.reader() as db:
            queue = read(db, name)
            seen = [one.seen.position for one in browsing.peek(db, queue, self._clock(), count=MOST)]
            stats = browsing.stats(db, queue, self._clock())
        if self._stored.version() != before:
            raise Violation(f"a look at {name} has changed the store (I10)")
        unsettled = self._stored.unsettled_in(queue.key, self.highest)
        if set(seen) != (there := {position for position in unsettled if self.accepted[position].is_consumed}):
            raise Violation(f"a look at {name} shows {seen}, and {sorted(there)} are there")
        if (counted := stats.ready + stats.leased + sum(stats.held.values())) != len(seen):
            raise Violation(f"{counted} messages are counted in {name}, and {seen} are there (I2)")
        return True

    def purge(self, draw: random.Random) -> bool:
        if not self.accepted:
            return False
        lower = draw.choice(list(self.accepted))
        name = next((name for name, key in self.queues.items() if key == self.accepted[lower].queue), "jobs")
        upper = lower + draw.randint(0, 2)
        self._operator.commit(lambda tx: clearing.purge(lower, tx, name=name, upper=upper))
        for position, held in self._held.items():
            if self._lasts(held) and self._stored.outcome(position) == "purged":
                raise Violation(f"position {position} is purged while {held.process} has it")
        return True

    def drain(self, process: Process) -> None:
        """All that can be leased is, and is acknowledged with what it has leased before."""

        def acknowledge(found: list[Leased]) -> None:
            self._is_told(process.name, found)
            for position, fence in self.mine.pop(process.name, []):
                part = self.settling(process, "ack", position, fence)
                process.submit(part.verb, ignored, part.is_stored)

        if process.subscriber is not None:
            process.subscriber.leave()
        process.submit(
            lambda tx: lease(tx, [declared(tx, name) for name in self.queues], Request(MOST)),
            acknowledge,
            partial(self._is_leased, process.name),
        )

    # subscriptions

    @contextmanager
    def commit_of(self, process: str, instance: int) -> Iterator[None]:
        with self._oracle.commit_of(process, instance):
            yield
        if not self.granted:
            return
        leased = self._stored.leased_by_subscriptions(self._clock())
        self._subscribed |= {position for _key, position in leased}
        for key, count in Counter(key for key, _position in leased).items():
            if count > self.granted.get(key, count):
                raise Violation(f"a subscription has {count} messages, and was granted {self.granted[key]} (I9)")

    def is_handed_over(self, process: str, position: int, body: bytes) -> None:
        """A subscriber gets a message. One whose process was taken for dead does not know that others have it since: it
        settles nothing."""
        known = self.accepted.get(position)
        if known is None or known.body != body:
            raise Violation(f"position {position} is handed over with the body {body!r} (I15)")
        if position in self._taken and process not in self._oracle.lost:
            raise Violation(f"position {position} is handed over after it was acknowledged (I6)")

    def are_settled_ahead(self, positions: Sequence[int]) -> None:
        """What subscribers had acknowledged is settled."""
        for position in positions:
            if position in self._taken:
                raise Violation(f"position {position} is acknowledged twice (I6)")
            self._taken.add(position)
            self._held.pop(position, None)
            truth = self._truth(position)
            if truth is not None:
                truth.called[self.accepted[position].turn].append(True)
            self.counts["messages taken by subscribers"] += 1
            self._check_order(position, "acknowledged", set(positions))

    # what commits have done

    def _is_told(self, process: str, found: list[Leased]) -> None:
        self.mine[process] += [(one.seen.position, one.seen.fence) for one in found]

    def _is_leased(self, process: str, found: list[Leased]) -> None:
        before, keys = dict(self._held), set()
        for one in found:
            position, fence = one.seen.position, one.seen.fence
            where, key = f"position {position}", (one.seen.lane and f"group {one.seen.lane}") or position
            self._check_message(one)
            if position in self._taken:
                raise Violation(f"{where} is leased after it was acknowledged")
            held = before.get(position)
            if held is not None and self._lasts(held):
                raise Violation(f"{where} is leased by {process} while {held.process} has it")
            if key not in keys and fence <= self._fences.get(key, 0):
                raise Violation(f"the lease of {where} has the fence {fence} of one before it (I3)")
            keys.add(key)
            self._fences[key] = fence
            self._held[position] = Held(process, key, fence, one.until)
        for one in found:
            self._check_order(one.seen.position, "leased", {other.seen.position for other in found})

    def _check_message(self, one: Leased) -> None:
        seen, where = one.seen, f"position {one.seen.position}"
        known = self.accepted.get(seen.position)
        if known is None:
            raise Violation(f"{where} is leased, and was never put")
        if (one.queue.key, seen.body) != (known.queue, known.body):
            raise Violation(f"{where} has the body {seen.body!r}, and had {known.body!r} (I15)")
        if seen.expires_at != known.expires_at or (seen.expires_at or FOREVER) <= self._clock():
            raise Violation(
                f"{where} is leased, its time ends at {seen.expires_at}, and ended {known.expires_at} (I12)"
            )
        if self._truth(seen.position) is None and seen.failures < (failed := self._failed[seen.position]):
            raise Violation(f"{where} has {seen.failures} failures, and {failed} were told (I12)")

    def _check_order(self, position: int, done: str, beside: set[int]) -> None:
        mine = self.accepted[position]
        truth = self._truth(position)
        if truth is not None:
            turns = {self.accepted[at].turn for at in beside if self.accepted[at].group == mine.group}
            if done == "leased" or not self._is_in_any_order(truth):
                self._oracle.check_turn(truth, mine.turn, f"position {position}, {mine.turn} of a sequence", turns)
        elif mine.group is not None:
            place = (mine.queue, mine.group)
            before = {at for at, one in self.accepted.items() if at < position and (one.queue, one.group) == place}
            if left := self._stored.unsettled(before - beside):
                raise Violation(f"position {position} of a group is {done} before {left} (I4)")

    def _truth(self, position: int) -> Truth | None:
        """The sequence that a message came in."""
        return self._oracle.truths.get(self.accepted[position].group or "")

    def _is_in_any_order(self, truth: Truth) -> bool:
        return not truth.policy.ordered or bool(truth.passed)

    def _is_settled(self, process: str, way: str, position: int, fence: int, answer: Settlement) -> None:
        if answer is not Settlement.SETTLED:
            return
        held, truth = self._held.get(position), self._truth(position)
        if held is None or (held.process, held.fence) != (process, fence):
            raise Violation(f"position {position} is settled by {process} under a lease that is over (I3)")
        if way == "renew":
            lasts = self.options["lease"]
            until = FOREVER if lasts is None else self._clock() + round(lasts * 1000)
            self._held = {
                at: one._replace(until=until) if one.key == held.key else one for at, one in self._held.items()
            }
            return
        del self._held[position]
        self._failed[position] += way == "nack"
        if way == "ack":
            if position in self._taken:
                raise Violation(f"position {position} is acknowledged twice (I6)")
            self._taken.add(position)
            self._check_order(position, "acknowledged", set())
            if truth is not None:
                truth.called[self.accepted[position].turn].append(True)
                self.counts["messages pulled"] += 1
        elif way != "expire":  # all that was leased of its group behind it goes back with it
            least = 0 if truth is not None and self._is_in_any_order(truth) else self.accepted[position].turn
            self._held = {
                at: one for at, one in self._held.items() if one.key != held.key or self.accepted[at].turn < least
            }

    def _are_settled(
        self, process: str, queue: int, upto: int, seen: dict[int, str | None], cleared: clearing.Cleared
    ) -> None:
        """``seen``: the outcomes, behind that, of what was there before."""
        settled = [position for position, outcome in seen.items() if outcome == "delivered"]
        if (len(settled), len(seen) - len(settled)) != cleared:
            raise Violation(f"{settled} of {list(seen)} are settled by a filter, which answers {cleared} (I17)")
        if missed := self._stored.unsettled_in(queue, upto) - set(seen):
            raise Violation(f"positions {missed} are not settled, and were not seen (I17)")
        for position in seen:
            held = self._held.get(position)
            if position in settled and held is not None and held.process != process and self._lasts(held):
                raise Violation(f"position {position} is settled by a filter while {held.process} has it (I17)")
            is_free = held is None and position not in self._subscribed and self.accepted[position].group is None
            if position not in settled and is_free:
                raise Violation(f"position {position} fits a filter, was never leased, and is not settled (I17)")
        for position in settled:
            self._held.pop(position, None)
            self._taken.add(position)
            self._check_order(position, "settled by a filter", set(settled))

    def _lasts(self, held: Held) -> bool:
        return held.until > self._clock() and held.process not in self._oracle.lost

    # the end

    def before_retention(self) -> None:
        self._settled |= self._stored.outcomes()

    @property
    def left(self) -> list[int]:
        """Positions of what somebody still has to take."""
        return [at for at in self._stored.unsettled(self.accepted) if self._is_left(at)]

    def _is_left(self, position: int) -> bool:
        truth, one = self._truth(position), self.accepted[position]
        return one.is_consumed if truth is None else self._oracle.is_left(truth, one.turn)

    @property
    def is_over(self) -> bool:
        """Nothing is left, and nothing is leased."""
        return not (self._stored.leased() or self.left)

    def check_end(self) -> None:
        """Everything has come to rest: each message has an end, which is told, and nobody has one."""
        outcomes, told = self._stored.outcomes(), self._stored.told()
        if unknown := self._stored.positions() - set(self.accepted):
            raise Violation(f"the store has {sorted(unknown)}, which nobody has put")
        if left := self.left:
            raise Violation(f"the positions {left} can be consumed and nobody gets them")
        for position, one in self.accepted.items():
            outcome = outcomes.get(position) or self._settled.get(position)
            if one.is_consumed and (outcome == "delivered") != (position in self._taken):
                raise Violation(f"position {position} is {outcome}, and was taken: {position in self._taken}")
            if outcome not in ("delivered", None) and position in outcomes and position not in told:
                raise Violation(f"position {position} is {outcome} and nothing says why (I11)")
        if self._has_journal:
            queue = self.queues["jobs"]
            came = [(at, one.body) for at, one in sorted(self.accepted.items()) if one.queue == queue]
            if (recorded := self._stored.recorded()) != came:
                raise Violation(f"the journal has {recorded}, and {came} have come (I8)")
        if leased := self._stored.leased():
            raise Violation(f"the entries and groups {leased} are leased, and nobody has them")


def ignored(_answer: object) -> None:
    """Its program does nothing with an answer."""


def names_of(parts: Iterable[Part]) -> tuple[str, ...]:
    """By which the messages are known that these store."""
    return tuple(name for part in parts for name in part.actions)
