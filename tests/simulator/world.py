"""One schedule: partners, processes, an operator and a clock, and the steps that a list of numbers orders."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from itertools import accumulate
from typing import Final

from tests.simulator.acts import Operator
from tests.simulator.machine import Neighbourhood
from tests.simulator.oracle import Oracle, Violation
from tests.simulator.partner import Partner
from tests.simulator.place import PROCESSES, Place
from tests.simulator.policies import FATES, HOUR, POLICIES, PULLED, REPLY, policy_of
from tests.simulator.process import Process
from tests.simulator.queues import Queues, QueueStep
from tests.simulator.stored import Stored
from wsrm_mq.delivery.delivery import Delivery, Outcome

_MORE: Final = (0, 0, 1, 2)
"""Messages that a partner sends at once behind another."""
SLOW_CALL: Final = 0.06
"""Seconds."""
QUEUES_SHARE: Final = 0.35
"""Schedules that have producers and consumers of queues; partners only as far as those pull what they send."""
LINGERS: Final = 20
"""Milliseconds that pass by themselves where no task is ready: a commit may wait for others so long."""


class World:
    def __init__(self, place: Place, start: int) -> None:
        place.empty()
        self._draw = draw = random.Random(start)
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
        self.queues = None
        if draw.random() < QUEUES_SHARE:
            self.queues = Queues(self.clock, self.oracle, self.stored, self.operator, draw, self.counts)
        names, told = draw.sample(sorted(POLICIES), draw.randint(1, 3)), []
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
        self.processes: list[Process | None] = [None] * draw.choice([1, 1, 2, 2, PROCESSES])
        here = _WEIGHTS_OF if self.queues is None else _WITH_QUEUES | (_WITH_PULLED if names else {})
        weights = [weight * (1 if kind in _ALWAYS else draw.choice(_SWING)) for kind, weight in here.items()]
        self._kinds = list(here)
        self._weights = list(accumulate(weights))
        self.tell: Callable[[str], object] = lambda _line: None

    # the processes

    def live(self) -> list[Process]:
        return [process for process in self.processes if process is not None]

    def start(self, slot: int) -> None:
        files, watched = self.place.files[slot], self.oracle.commit_of
        self.processes[slot] = Process(
            files, self.clock, self.neighbours, self.call, self.threads, policy_of, watched, self.counts
        )

    def kill(self, slot: int) -> None:
        process = self.processes[slot]
        assert process is not None
        self.processes[slot] = None
        self.neighbours.alive.discard(process.name)
        self.oracle.killed(process.name)
        self.drop(process)

    def drop(self, process: Process) -> None:
        self.check_told(process)
        process.kill()

    def check_told(self, process: Process) -> None:
        if process.told:
            raise Violation(f"{process.name} tells {process.told[0]}")

    def some(self, draw: random.Random, has: Callable[[Process], object] = bool) -> Process | None:
        """One that lives, and does not stand still, and ``has`` it."""
        fit = [process for process in self.live() if process not in self.frozen and has(process)]
        return draw.choice(fit) if fit else None

    def pass_time(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)
        for process in self.live():
            process.tasks.ring()

    # the service

    def call(self, process: Process, delivery: Delivery) -> Outcome:
        self.oracle.called(process.name, delivery)
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
        return Outcome(reply=REPLY if delivery.wants_reply else None)

    # steps

    def step(self, number: int) -> None:
        draw = self._draw
        draw.seed(number)
        self.frozen = {process: left - 1 for process, left in self.frozen.items() if left}
        kind = draw.choices(self._kinds, cum_weights=self._weights)[0]
        if not STEPS[kind](self, draw):
            kind = draw.choice(["goes on", "leases" if self.queues else "sends"])
            STEPS[kind](self, draw)
        self.counts[kind] += 1
        self.tell(f"  {kind}")

    def _go_on(self, draw: random.Random) -> bool:
        """A task runs until it waits, or what waits is committed; where nothing is ready, a moment passes."""
        process = self.some(draw, lambda one: one.is_ready or one.has_writes)
        if process is None:
            self.pass_time(LINGERS)
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
        self.kill(slot)
        return True

    def _is_taken_for_dead(self, draw: random.Random) -> bool:
        """It is seen no more and stands still; when it goes on, only the fence keeps it from settling what others run
        by then."""
        fit = [one for one in self.live() if one.name in self.neighbours.alive]
        if len(fit) < 2:
            return False
        process = draw.choice(fit)
        self.neighbours.alive.discard(process.name)
        self.oracle.killed(process.name)
        self.frozen[process] = draw.randint(1, 30)
        self.neighbours.wake(self.neighbours.alive)
        return True

    def _restart(self, draw: random.Random) -> bool:
        slots = [slot for slot, process in enumerate(self.processes) if process is None]
        if slots:
            self.start(draw.choice(slots))
        return bool(slots)

    def _operate(self, draw: random.Random) -> bool:
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

    def _publish(self, draw: random.Random) -> bool:
        return self._of_queues(draw, lambda queues: queues.topics.publish)

    def _subscribe(self, draw: random.Random) -> bool:
        return self._of_queues(draw, lambda queues: queues.topics.change)

    def _replay(self, draw: random.Random) -> bool:
        return self._of_queues(draw, lambda queues: queues.topics.replay)

    def _transact(self, draw: random.Random) -> bool:
        return self._of_queues(draw, lambda queues: queues.transactions.transact)

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
    "purges": World._purge,
    "looks at queues": World._look_at_queues,
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
_ALWAYS: Final = frozenset(("goes on", "commits", "sends", "leases", "settles"))
_SWING: Final = (0, 0.5, 1, 1, 3)
"""What a schedule multiplies the weight of each other step with: so some are full of one thing and have none of
another."""
