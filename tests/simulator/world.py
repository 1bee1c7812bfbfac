"""One schedule: partners, processes, an operator and a clock, and the steps that a list of numbers orders."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import Final

from tests.simulator.acts import Operator
from tests.simulator.machine import Neighbourhood
from tests.simulator.oracle import Oracle, Violation
from tests.simulator.partner import Partner
from tests.simulator.place import BEGINNING, PROCESSES, Place
from tests.simulator.policies import FATES, HOUR, POLICIES, PULLED, REPLY, SLOW_CALL, policy_of
from tests.simulator.process import Process, Work
from tests.simulator.queues import Queues, QueueStep
from tests.simulator.sending import Sending
from tests.simulator.stored import Stored
from tests.simulator.subscribers import Subscriber
from wsrm_mq.delivery.delivery import Delivery, Outcome

_MORE: Final = (0, 0, 1, 2)
"""Messages that a partner sends at once behind another."""
QUEUES_SHARE: Final = 0.35
"""Schedules that have producers and consumers of queues; partners only as far as those pull what they send."""
SOURCES_SHARE: Final = 0.04
"""Schedules that have a source of our own in the place of partners."""
LINGERS: Final = 20
"""Milliseconds that pass by themselves where no task is ready: a commit may wait for others so long."""


class World:
    def __init__(self, place: Place, start: int) -> None:
        place.empty()
        place.clock.now = BEGINNING
        self.draw = draw = random.Random(start)
        random.seed(start)  # the product draws too
        self.place = place
        self.clock = place.clock
        self.counts: Counter[str] = Counter()
        self.stored = Stored(place.reader)
        self.oracle = Oracle(self.stored)
        self.neighbours = Neighbourhood()
        self.operator = Operator(place.operator, self.clock, self.neighbours, self.oracle, self.stored, draw)
        fates = draw.choice([FATES, FATES, (0,)])
        self.fates = [draw.choice(fates) for _ in range(16)]
        self.pace = draw.choice([0, 0.3, 0.6, 0.9])
        """How often a call of the service takes longer than the turn of a sequence."""
        self.threads = draw.choice([1, 2])
        """Of each dispatcher: fewer than there are sequences, so that some are left to other processes."""
        self.queues, self.sending, way = None, None, draw.random()
        if way < QUEUES_SHARE:
            self.queues = Queues(self.clock, self.oracle, self.stored, self.operator, draw, self.counts)
        elif way > 1 - SOURCES_SHARE:
            self.sending = Sending(place, self.oracle, self.stored, draw, self.counts)
        names, told = draw.sample(sorted(POLICIES), draw.randint(1, 3)), []
        if self.sending is not None:
            names = []
        if self.queues is not None:
            names = draw.sample(sorted(PULLED), draw.choice([0, 0, 1, 2]))
            told = [self.queues.pull()] if names else []
        self.partners = [Partner(name, self.oracle, self.counts, draw.choice([0.1, 0.3, 0.8]), *told) for name in names]
        self.fills_gaps = draw.random() < 0.5
        self.loses_words = draw.random() < 0.3
        self.slow_disk = draw.choice([0.3, 0.6, 0.9])
        """How often a process goes on before its commit."""
        self.heals = False
        """Nothing breaks any more; see ``rest``."""
        self.takes_all = False
        """Nor does the service."""
        self.frozen: dict[Process, int] = {}
        """Processes that stand still, and for how many steps."""
        self.services = draw.choice([1, 1, 2, 2, PROCESSES])
        """How many processes serve; those behind them send."""
        sources = 0 if self.sending is None else draw.choice([1, 1, 2])
        self.processes: list[Process | None] = [None] * (self.services + sources)
        self.haste = 0 if self.sending is None else draw.choice([0, 0.5, 0.9])
        """How often a process goes on for as long as it can."""
        here = _WEIGHTS_OF if self.queues is None else _WITH_QUEUES | (_WITH_PULLED if names else {})
        here = here if self.sending is None else _WITH_SOURCE
        weights = [weight * (1 if kind in _ALWAYS else draw.choice(_SWING)) for kind, weight in here.items()]
        self._kinds = list(here)
        self._weights = list(accumulate(weights))
        self.tell: Callable[[str], object] = lambda _line: None

    # the processes

    def live(self) -> list[Process]:
        return [process for process in self.processes if process is not None]

    def start(self, slot: int) -> None:
        if self.sending is not None and slot >= self.services:
            self.processes[slot] = self.sending.source(self.place.outbox.files[slot - self.services])
            return
        watched = self.oracle.commit_of
        if self.sending is not None:
            watched = self.sending.calls.taken_by
        elif self.queues is not None:
            watched = self.queues.jobs.commit_of
        self.processes[slot] = process = Process(
            self.place.files[slot],
            self.clock,
            self.neighbours,
            lambda process: Work(partial(self.call, process)),
            self.threads,
            policy_of,
            watched,
            self.counts,
        )
        if self.sending is not None:
            self.sending.open_door(process)
        if self.queues is not None:
            process.subscriber = Subscriber(process, self.queues.jobs)

    def kill(self, slot: int) -> None:
        process = self.processes[slot]
        assert process is not None
        self.processes[slot] = None
        process.neighbours.alive.discard(process.name)
        self.oracle.killed(process.name)
        self.drop(process)

    def drop(self, process: Process) -> None:
        self.check_told(process)
        process.kill()
        if self.sending is not None:
            self.sending.is_killed(process)

    def check_told(self, process: Process) -> None:
        if process.told:
            raise Violation(f"{process.name} tells {process.told[0]}")

    def some(self, draw: random.Random, has: Callable[[Process], object] = bool) -> Process | None:
        """One that lives, and does not stand still, and ``has`` it."""
        fit = [process for process in self.live() if process not in self.frozen and has(process)]
        return draw.choice(fit) if fit else None

    def pass_time(self, milliseconds: int) -> None:
        before, after = self.clock(), self.clock.advance(milliseconds)
        for process in self.live():
            is_kept = process.is_ready or process in self.frozen
            process.stalled += after - min(after, before if is_kept else max(before, round(process.tasks.next_at)))
            process.tasks.ring()

    # the service

    def call(self, process: Process, delivery: Delivery) -> Outcome:
        self.oracle.called(process.name, delivery)
        text = None if self.sending is None else self.sending.calls.called(delivery)
        if delivery.number % 10 < 10 * self.pace and not self.heals:
            process.tasks.sleep(SLOW_CALL)
        else:
            process.tasks.pause()
        tries = len(self.oracle.truths[delivery.key.identifier].called[delivery.key.number])
        is_taken = tries > self.fates[delivery.key.number % len(self.fates)]
        is_taken = is_taken or self.takes_all or (self.heals and delivery.source is not None)
        self.oracle.returned(process.name, delivery, is_taken=is_taken)
        if not is_taken:
            return Outcome(error="the service failed")
        if self.sending is not None and text is not None:
            return self.sending.answer(process, delivery, text)
        return Outcome(reply=REPLY if delivery.wants_reply else None)

    # steps

    def step(self, number: int) -> None:
        draw = self.draw
        draw.seed(number)
        self.frozen = {process: left - 1 for process, left in self.frozen.items() if left}
        kind = draw.choices(self._kinds, cum_weights=self._weights)[0]
        if not STEPS[kind](self, draw):
            kind = draw.choice(["goes on", "leases" if self.queues else "carries" if self.sending else "sends"])
            STEPS[kind](self, draw)
        self.counts[kind] += 1
        self.tell(f"  {kind}")

    def _go_on(self, draw: random.Random) -> bool:
        """A task runs until it waits, or what waits is committed; where nothing is ready, a moment passes."""
        process = self.some(draw, lambda one: one.is_ready or one.has_writes)
        if process is None:
            self.pass_time(LINGERS)
            return True
        if draw.random() < self.haste:
            process.run_on()
            return True
        if process.has_writes and not (process.is_ready and draw.random() < self.slow_disk) and process.commit():
            return True
        if not process.is_ready:
            self.pass_time(LINGERS)
        if process.is_ready:
            process.step(draw.randrange(1_000))
        return True

    def _commit(self, draw: random.Random) -> bool:
        process = self.some(draw, lambda one: one.has_writes)
        return process is not None and process.commit()

    def _send(self, draw: random.Random) -> bool:
        """A partner sends one message or more to one process, most often that of its last ones."""
        partner = draw.choice(self.partners)
        process = self.some(draw, lambda one: one is partner.process) if draw.random() < 0.7 else None
        process = partner.process = process or self.some(draw)
        if process is None or not partner.send_something(process, draw):
            return False
        for _ in range(draw.choice(_MORE)):
            partner.send_something(process, draw)
        return True

    def _end(self, draw: random.Random) -> bool:
        process, fit = self.some(draw), [one for one in self.partners if one.may_end]
        if process is None or not fit:
            return False
        draw.choice(fit).end(process, draw)
        return True

    def _answer(self, draw: random.Random) -> bool:
        process = self.some(draw, lambda one: one.requests)
        if process is not None:
            process.answer_one(draw.randrange(1_000))
        return process is not None

    def _ring(self, draw: random.Random) -> bool:
        """Words arrive at a process, once or again; or they are lost."""
        process = self.some(draw, lambda one: one.bell.under_way)
        if process is None:
            return False
        if self.loses_words and draw.random() < 0.3:
            process.bell.under_way.clear()
            self.counts["wake-ups lost"] += 1
        else:
            process.bell.arrive(is_repeated=draw.random() < 0.1)
        return True

    def _look(self, draw: random.Random) -> bool:
        process = self.some(draw)
        if process is not None:
            process.bell.under_way.add("look")
            process.bell.arrive()
        return process is not None

    def _time(self, draw: random.Random) -> bool:
        self.pass_time(draw.choices([1, 30, 1_000, 60_000, HOUR, 3 * HOUR], [4, 4, 8, 4, 1, 0.5])[0])
        return True

    def _crash(self, draw: random.Random) -> bool:
        slots = [slot for slot, process in enumerate(self.processes) if process is not None]
        if not slots:
            return False
        writing = [slot for slot in slots if (process := self.processes[slot]) is not None and process.has_writes]
        slot = draw.choice(slots + writing)
        process = self.processes[slot]
        assert process is not None
        if process.has_writes:
            when = draw.choice(["before", "after", "between"])
            if when != "before" and not process.commit(dies=when):
                when = "before"
            self.counts[f"crashes {when} a commit"] += 1
        elif process.program is not None and process.is_ready:
            process.dies_within(draw.randrange(1_000), draw.choice(["after", "between"]))
            self.counts["crashes of a source"] += 1
        self.kill(slot)
        return True

    def _is_taken_for_dead(self, draw: random.Random) -> bool:
        """It is seen no more and stands still; when it goes on, only the fence keeps it from settling what others run
        by then."""
        fit = [one for one in self.live() if one.name in (alive := one.neighbours.alive) and len(alive) > 1]
        if not fit:
            return False
        process = draw.choice(fit)
        neighbours = process.neighbours
        neighbours.alive.discard(process.name)
        self.oracle.killed(process.name)
        self.frozen[process] = draw.randint(1, 30)
        neighbours.wake(neighbours.alive)
        return True

    def _restart(self, draw: random.Random) -> bool:
        slots = [slot for slot, process in enumerate(self.processes) if process is None]
        if slots:
            self.start(draw.choice(slots))
        return bool(slots)

    def _operate(self, draw: random.Random) -> bool:
        if self.sending is not None and draw.random() < 0.6:
            return self.sending.operate(draw)
        return self.operator.act(draw) if self.queues is None else self.operator.act_on_sequence(draw)

    def _of_queues(self, draw: random.Random, step: Callable[[Queues], QueueStep]) -> bool:
        process = self.some(draw)
        return self.queues is not None and process is not None and step(self.queues)(process, draw)

    def _put(self, draw: random.Random) -> bool:
        return self._of_queues(draw, lambda queues: queues.jobs.put)

    def _lease(self, draw: random.Random) -> bool:
        return self._of_queues(draw, lambda queues: queues.jobs.lease)

    def _settle(self, draw: random.Random) -> bool:
        return self._of_queues(draw, lambda queues: queues.jobs.settle)

    def _settle_by_filter(self, draw: random.Random) -> bool:
        return self._of_queues(draw, lambda queues: queues.jobs.settle_by_filter)

    def _consume(self, draw: random.Random) -> bool:
        process = self.some(draw)
        return process is not None and process.subscriber is not None and process.subscriber.step(draw)

    def _peek(self, draw: random.Random) -> bool:
        return self._of_queues(draw, lambda queues: queues.jobs.peek)

    def _publish(self, draw: random.Random) -> bool:
        return self._of_queues(draw, lambda queues: queues.topics.publish)

    def _subscribe(self, draw: random.Random) -> bool:
        return self._of_queues(draw, lambda queues: queues.topics.change)

    def _replay(self, draw: random.Random) -> bool:
        return self._of_queues(draw, lambda queues: queues.topics.replay)

    def _transact(self, draw: random.Random) -> bool:
        return self._of_queues(draw, lambda queues: queues.transactions.transact)

    # a source

    def _put_request(self, draw: random.Random) -> bool:
        process = self.some(draw, lambda one: one.program)
        return self.sending is not None and process is not None and self.sending.put(process, draw)

    def _do(self, draw: random.Random) -> bool:
        process = self.some(draw, lambda one: one.program)
        return self.sending is not None and process is not None and self.sending.do(process, draw)

    def carry(self, draw: random.Random) -> bool:
        """Of the line between a source and the services."""
        services = [one for one in self.live() if one.door is not None and one not in self.frozen]
        return self.sending is not None and self.sending.carry(services, draw)

    def _lose_state(self, draw: random.Random) -> bool:
        """All services are killed, and find an empty store."""
        if self.sending is None or draw.random() < 0.5:
            return False
        for slot in range(self.services):
            if self.processes[slot] is not None:
                self.kill(slot)
        self.sending.lose_state()
        return True

    def _purge(self, draw: random.Random) -> bool:
        return self.queues is not None and self.queues.jobs.purge(draw)

    def _look_at_queues(self, draw: random.Random) -> bool:
        process = self.some(draw)
        if process is not None:
            process.look_at_queues()
        return process is not None

    def _sweep(self, draw: random.Random) -> bool:
        process = self.some(draw)
        if process is not None:
            process.sweep(self._before_retention)
        return process is not None

    def _before_retention(self) -> None:
        self.oracle.before_retention()
        if self.queues is not None:
            self.queues.jobs.before_retention()


STEPS: Final[dict[str, Callable[[World, random.Random], bool]]] = {
    "goes on": World._go_on,
    "commits": World._commit,
    "sends": World._send,
    "ends": World._end,
    "is answered": World._answer,
    "is woken": World._ring,
    "looks": World._look,
    "time passes": World._time,
    "crashes": World._crash,
    "is taken for dead": World._is_taken_for_dead,
    "restarts": World._restart,
    "is operated": World._operate,
    "sweeps": World._sweep,
    "puts": World._put,
    "publishes": World._publish,
    "subscribes": World._subscribe,
    "replays": World._replay,
    "transacts": World._transact,
    "leases": World._lease,
    "settles": World._settle,
    "settles by a filter": World._settle_by_filter,
    "peeks": World._peek,
    "is a subscriber's": World._consume,
    "purges": World._purge,
    "looks at queues": World._look_at_queues,
    "sends by a source": World._put_request,
    "is about a sequence": World._do,
    "carries": World.carry,
    "loses its state": World._lose_state,
}
_WEIGHTS_OF: Final = {
    "goes on": 42,
    "commits": 9,
    "sends": 11,
    "ends": 2,
    "is answered": 4,
    "is woken": 6,
    "looks": 2,
    "time passes": 4.5,
    "crashes": 3,
    "is taken for dead": 1.5,
    "restarts": 5,
    "is operated": 6,
    "sweeps": 1,
}
_WITH_QUEUES: Final = {
    "goes on": 30,
    "commits": 9,
    "puts": 5,
    "publishes": 5,
    "subscribes": 5,
    "replays": 1,
    "transacts": 4,
    "leases": 11,
    "settles": 20,
    "settles by a filter": 1.5,
    "peeks": 1.5,
    "is a subscriber's": 12,
    "looks at queues": 4,
    "time passes": 4,
    "crashes": 2.5,
    "is taken for dead": 2,
    "restarts": 5,
    "purges": 1.5,
    "sweeps": 1,
}
_WITH_PULLED: Final = {
    "sends": 14,
    "ends": 2,
    "is answered": 3,
    "is woken": 3,
    "looks": 2,
    "is operated": 3,
}
"""Beside, where consumers pull what partners send."""
_WITH_SOURCE: Final = {
    "goes on": 30,
    "commits": 5,
    "carries": 26,
    "sends by a source": 10,
    "is about a sequence": 3,
    "is woken": 3,
    "looks": 3,
    "time passes": 5,
    "crashes": 4,
    "is taken for dead": 1.5,
    "restarts": 6,
    "is operated": 4,
    "sweeps": 1,
    "loses its state": 1,
}
_ALWAYS: Final = frozenset(("goes on", "commits", "sends", "leases", "settles", "carries", "sends by a source"))
_SWING: Final = (0, 0.5, 1, 1, 3)
"""What a schedule multiplies the weight of each other step with: so some are full of one thing and have none of
another."""
