"""The queues of a schedule: those that programs put into, topics, and the one of an endpoint that is pulled."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from tests.simulator.acts import Operator
from tests.simulator.consumers import Accepted, Jobs
from tests.simulator.oracle import Oracle
from tests.simulator.partner import QUEUE, Arrived
from tests.simulator.process import Process
from tests.simulator.stored import Stored
from tests.simulator.topics import Topics
from tests.simulator.transactions import Transactions
from wsrm_mq.testing import ManualClock

QueueStep = Callable[[Process, random.Random], bool]


class Queues:
    def __init__(
        self,
        clock: ManualClock,
        oracle: Oracle,
        stored: Stored,
        operator: Operator,
        draw: random.Random,
        counts: Counter[str],
    ) -> None:
        self.jobs = Jobs(clock, oracle, stored, operator, draw, counts)
        self.topics = Topics(self.jobs, clock, stored, operator, draw)
        self.transactions = Transactions(self.jobs, self.topics, stored)

    def pull(self) -> Arrived:
        """Have consumers pull what partners send; answers who is told of that."""
        self.jobs.declare(QUEUE)
        queue = self.jobs.queues[QUEUE]

        def arrived(position: int, identifier: str, number: int, body: bytes, is_two_way: bool) -> None:
            self.jobs.is_added(position, Accepted(queue, body, identifier, number, is_consumed=not is_two_way))

        return arrived

    def check_end(self, process: Process) -> None:
        self.jobs.check_end()
        self.topics.check_end(process)
