"""An operator's acts, from the command line: each in a transaction of its own, then the instances are woken."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from tests.simulator.machine import Neighbourhood
from tests.simulator.oracle import Oracle
from tests.simulator.place import Files
from tests.simulator.stored import Stored
from wsrm_mq.errors import NotAllowed, NotFound
from wsrm_mq.queue import dead_letters, operate
from wsrm_mq.sequence.inbound import Late
from wsrm_mq.store.cache import Cache
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.store.unit_of_work import Session
from wsrm_mq.testing import ManualClock

Verb = Callable[[Transaction], Any]

ON_MESSAGES: Final = (
    dead_letters.redrive,
    dead_letters.retry,
    dead_letters.discard,
    dead_letters.restore,
    dead_letters.confirm,
)
ON_SEQUENCES: Final = ("hold", "hold", "resume", "resume", "skip", "force", "close", "terminate", "drain")
WHO: Final[dict[str, Any]] = {"actor": "alice", "reason": "so"}


class Operator:
    def __init__(
        self,
        files: Files,
        clock: ManualClock,
        neighbours: Neighbourhood,
        oracle: Oracle,
        stored: Stored,
        draw: random.Random,
    ) -> None:
        """``draw`` chooses the acts that it knows."""
        self._db = files.writer
        self._clock = clock
        self._neighbours = neighbours
        self._oracle = oracle
        self._stored = stored
        self._on_messages = draw.sample(ON_MESSAGES, 3)
        self._on_sequences = draw.sample(ON_SEQUENCES, 3)

    def act(self, draw: random.Random) -> bool:
        """Answers whether something was there that the act fits."""
        if not self._oracle.truths:
            return False
        return self._act_on_message(draw) if draw.random() < 0.5 else self.act_on_sequence(draw)

    def _act_on_message(self, draw: random.Random) -> bool:
        positions = self._stored.for_acts()
        if not positions:
            return False
        position, act = draw.choice(positions), draw.choice(self._on_messages)
        if act is dead_letters.restore:
            self._oracle.is_brought_back(position)
        return self.commit(lambda tx: act(tx, position, **WHO))

    def act_on_sequence(self, draw: random.Random) -> bool:
        if not self._oracle.truths:
            return False
        identifier, way = draw.choice(list(self._oracle.truths)), draw.choice(self._on_sequences)
        if way == "skip":
            number = self._stored.blocked(identifier)
            return number is not None and self.commit(lambda tx: operate.skip(tx, identifier, number, **WHO))
        if way == "force":
            return self._force(identifier, draw.choice(list(Late)))
        if way in ("terminate", "drain"):
            return self.commit(lambda tx: operate.terminate(tx, identifier, drain=way == "drain", **WHO))
        return self.commit(lambda tx: getattr(operate, way)(tx, identifier, **WHO))

    def _force(self, identifier: str, late: Late) -> bool:
        passed: set[int] = set()

        def verb(tx: Transaction) -> None:
            forced = operate.force(tx, identifier, late=late, **WHO)
            passed.update(number for lower, upper in forced.missing for number in range(lower, upper + 1))

        is_done = self.commit(verb)
        if is_done:
            self._oracle.truths[identifier].passed |= passed
        return is_done

    def commit(self, verb: Verb) -> bool:
        """As ``store.outside.run_once`` does, on a connection that is open."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            tx = Transaction(Session(self._db, Cache(), 0, "cli", self._neighbours), self._clock())
            verb(tx)
            tx.flush()
            self._db.execute("COMMIT")
        except (NotAllowed, NotFound):
            return False
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        self._neighbours.wake(self._neighbours.alive)
        return True
