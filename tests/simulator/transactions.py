"""Acts on several queues that a program wants done together: all of them, or none."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from tests.simulator.consumers import Jobs, ignored, names_of
from tests.simulator.oracle import Violation
from tests.simulator.process import Process
from tests.simulator.stored import Stored
from tests.simulator.topics import Topics
from wsrm_mq.node.transactions import Transaction


class Transactions:
    def __init__(self, jobs: Jobs, topics: Topics, stored: Stored) -> None:
        self._jobs = jobs
        self._topics = topics
        self._stored = stored

    def transact(self, process: Process, draw: random.Random) -> bool:
        """A program settles what it has leased, and puts or publishes what comes of it. It is undone as a whole where
        a queue has no room."""
        if self._jobs.is_full:
            return False
        mine = self._jobs.mine[process.name]
        parts = [self._jobs.settling(process, "ack", *one) for one in draw.sample(mine[-4:], min(len(mine), 2))]
        parts += [draw.choice([self._jobs.putting, self._topics.publishing])(draw) for _ in range(draw.randint(1, 3))]
        draw.shuffle(parts)
        begun = Transaction(process)  # type: ignore[arg-type]
        for part in parts:
            begun.add(process, part.verb)  # type: ignore[arg-type]

        def is_stored(results: Sequence[Any]) -> None:
            self._jobs.counts["transactions done"] += 1
            for part, result in zip(parts, results, strict=True):
                part.is_stored(result)

        def is_undone(error: BaseException) -> None:
            self._jobs.counts["transactions undone"] += 1
            if left := [name for name in names_of(parts) if self._stored.entries_of(name)]:
                raise Violation(f"{left} of a transaction are stored that was undone: {error}")

        process.submit(begun, ignored, is_stored, refused=is_undone)
        return True
