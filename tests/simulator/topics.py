"""Topics: what is published, who is bound to it, and the durable subscriptions that begin and end meanwhile."""

from __future__ import annotations

import random
from functools import partial
from typing import Final, NamedTuple

from tests.simulator.acts import Operator
from tests.simulator.consumers import Accepted, Jobs, Part, ignored
from tests.simulator.oracle import Violation
from tests.simulator.process import Process
from tests.simulator.stored import Stored
from wsrm_mq.queue.adding import Header, Put
from wsrm_mq.queue.declaring import Declared, declare, declared
from wsrm_mq.queue.filters import parse
from wsrm_mq.queue.retaining import Since, log_of, replay, retain
from wsrm_mq.queue.topics import Published, bind, publish, subscribe_durable, unbind, unsubscribe
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.testing import ManualClock

CLIENT: Final = "reader"
TOPICS: Final = ("news/a", "news/b", "news/a/more", "other/a")
RETAINED: Final = "news/#"
FITS: Final = {
    "#": TOPICS,
    RETAINED: TOPICS[:3],
    "news/*": TOPICS[:2],
    "*/a": ("news/a", "other/a"),
}
"""Patterns, and the topics that each takes."""
ONLY_X: Final = "kind = 'x'"


class Binding(NamedTuple):
    """``queue``: its key."""

    queue: int
    pattern: str
    filter: str | None

    def fits(self, topic: str, kind: str) -> bool:
        return topic in FITS[self.pattern] and (self.filter is None or kind == "x")


class Joined(NamedTuple):
    """A durable subscription. ``since``: the highest position that was given before it."""

    binding: Binding
    since: int


class Topics:
    def __init__(self, jobs: Jobs, clock: ManualClock, stored: Stored, operator: Operator, draw: random.Random) -> None:
        """``draw``: whether what is published is retained, and who is bound from the beginning."""
        self._jobs = jobs
        self._clock = clock
        self._stored = stored
        self._bindings: list[Binding] = []
        self._joined: dict[int, Joined] = {}
        """By the key of its queue."""
        self._topics: dict[int, str] = {}
        """Of what is retained, by position."""
        self._named: set[bytes] = set()
        """Bodies that were published under an id, which may be known to one queue and not to another."""
        self._log: int | None = None
        if draw.random() < 0.6:
            operator.commit(self._retain)
        for _ in range(draw.choice([0, 1, 2, 3])):
            part = self._binding(draw)
            operator.commit(part.verb)
            part.is_stored(None)

    def _retain(self, tx: Transaction) -> None:
        retain(tx, RETAINED, None)
        log = log_of(tx, RETAINED)
        assert log is not None
        self._log = log.key
        self._bindings.append(Binding(log.key, RETAINED, None))

    # publishing

    def publish(self, process: Process, draw: random.Random) -> bool:
        if self._jobs.is_full:
            return False
        part = self.publishing(draw)
        process.submit(part.verb, ignored, part.is_stored, refused=ignored)
        return True

    def publishing(self, draw: random.Random) -> Part:
        topic, name, body = draw.choice(TOPICS), draw.choice([None, None, None, "1", "2"]), self._jobs.new_body()
        kind = draw.choice("xy") if name is None else "x"
        one = Put(body, body.decode(), message_id=name, header=Header(properties=f'{{"kind": "{kind}"}}'))
        return Part(lambda tx: publish(tx, topic, one), partial(self._is_published, topic, kind, one), (body.decode(),))

    def _is_published(self, topic: str, kind: str, one: Put, done: Published) -> None:
        bound = dict.fromkeys(binding.queue for binding in self._bindings if topic in FITS[binding.pattern])
        known = {queue for queue in bound if self._jobs.known(queue, one.message_id) is not None}
        fits = {binding.queue for binding in self._bindings if binding.fits(topic, kind)}
        found = self._stored.entries_of(one.body.decode())
        queues = [queue for _position, queue in found]
        if sorted(queues) != sorted(fits - known):
            raise Violation(f"what was published to {topic} is in the queues {queues}, and not in {fits - known}")
        names = {name for name, key in self._jobs.queues.items() if key in fits | known}
        if set(done.queues) != names or len(done.queues) != len(names):
            raise Violation(f"what was published to {topic} is said to be in {done.queues}, and not in {names}")
        for position, queue in found:
            is_consumed = queue != self._log
            added = Accepted(queue, one.body, turn=position, is_consumed=is_consumed)
            self._jobs.is_added(position, added, one.message_id)
            if not is_consumed:
                self._topics[position] = topic
        if one.message_id is not None:
            self._named.add(one.body)

    # who is bound

    def change(self, process: Process, draw: random.Random) -> bool:
        """A subscription begins, is opened again, or ends; a queue is bound, or no longer."""
        ways = [self._joining, self._joining, self._joining, self._leaving, self._binding, self._binding]
        part = draw.choice([*ways, self._unbinding])(draw)
        process.submit(part.verb, ignored, part.is_stored, refused=ignored)
        return True

    def _joining(self, draw: random.Random) -> Part:
        name, pattern, filter = draw.choice(["1", "2"]), draw.choice(list(FITS)), draw.choice([None, None, ONLY_X])
        known = self._joined.get(self._jobs.queues.get(f"{CLIENT}/{name}", 0))
        if known is not None and draw.random() < 0.5:
            pattern, filter = known.binding[1:]

        def verb(tx: Transaction) -> Declared:
            queue = subscribe_durable(tx, CLIENT, name, pattern, filter)
            return declare(tx, queue.name, self._jobs.options)

        def is_stored(queue: Declared) -> None:
            binding = Binding(queue.key, pattern, filter)
            if queue.key not in self._joined:
                self._jobs.counts["subscriptions begun"] += 1
                self._bindings.append(binding)
                self._jobs.queues[queue.name] = queue.key
                self._joined[queue.key] = Joined(binding, self._jobs.highest)
                return
            self._jobs.counts["subscriptions opened again"] += 1
            if self._joined[queue.key].binding != binding:
                raise Violation(f"the subscription {queue.name} was begun as {self._joined[queue.key]}")

        return Part(verb, is_stored)

    def _leaving(self, draw: random.Random) -> Part:
        name = draw.choice(["1", "2"])

        def is_stored(_part: object) -> None:
            self._jobs.counts["subscriptions ended"] += 1
            queue = self._jobs.queues[f"{CLIENT}/{name}"]
            self._jobs.is_deleted(queue)
            del self._joined[queue]
            self._bindings = [one for one in self._bindings if one.queue != queue]

        return Part(lambda tx: unsubscribe(tx, CLIENT, name), is_stored)

    def _binding(self, draw: random.Random) -> Part:
        name, pattern, filter = draw.choice(["jobs", "mail"]), draw.choice(list(FITS)), draw.choice([None, ONLY_X])

        def is_stored(_done: None) -> None:
            one = Binding(self._jobs.queues[name], pattern, filter)
            if one not in self._bindings:
                self._bindings.append(one)

        return Part(lambda tx: bind(tx, pattern, declared(tx, name), filter), is_stored)

    def _unbinding(self, draw: random.Random) -> Part:
        name, pattern = draw.choice(["jobs", "mail"]), draw.choice(list(FITS))

        def is_stored(count: int) -> None:
            place = (self._jobs.queues[name], pattern)
            left = [one for one in self._bindings if one[:2] != place]
            if count != len(self._bindings) - len(left):
                raise Violation(f"{count} bindings of {name} to {pattern} are said to have gone")
            self._bindings = left

        return Part(lambda tx: unbind(tx, pattern, declared(tx, name)), is_stored)

    # what is retained

    def replay(self, process: Process, draw: random.Random) -> bool:
        """A program reads what is retained, from the beginning or from where it was."""
        since, pattern = draw.choice([0, *self._topics]), draw.choice(list(FITS))
        if self._log is None:
            return False
        expected = [at for at, topic in sorted(self._topics.items()) if at >= since and topic in FITS[pattern]]
        found = self._replayed(process, pattern, since)
        if found != [(at, self._jobs.accepted[at].body) for at in expected]:
            raise Violation(f"the replay of {pattern} since {since} has {found}, and not {expected}")
        return True

    def _replayed(
        self, process: Process, pattern: str, since: int, filter: str | None = None
    ) -> list[tuple[int, bytes]]:
        wanted = None if filter is None else parse(filter)
        found = replay(process.store.reader, self._clock(), pattern, Since(since), wanted)
        return [(one.seen.position, one.seen.body or b"") for _log, one in found]

    # the end

    def check_end(self, process: Process) -> None:
        """What a durable subscription has got, and what was there before it began, is all that was published."""
        for queue, (binding, since) in self._joined.items() if self._log is not None else ():
            if binding.pattern not in (RETAINED, "news/*"):
                continue
            retained = [body for _at, body in self._replayed(process, binding.pattern, since + 1, binding.filter)]
            got = [one.body for _at, one in sorted(self._jobs.accepted.items()) if one.queue == queue]
            missed, live = ([body for body in bodies if body not in self._named] for bodies in (retained, got))
            if missed != live:
                raise Violation(f"a subscription to {binding.pattern} since {since} has {live}, and not {missed}")
