"""A bare store for the verbs: one SQLite file, any number of instances, transactions without threads."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any, TypeVar

from wsrm_mq.queue.accept import accept
from wsrm_mq.queue.arrival import Arrival, Body, EndReceipt, MessageReceipt, Sender
from wsrm_mq.queue.creation import create
from wsrm_mq.queue.failure import UNKNOWN, Diagnosis, Failed, fail
from wsrm_mq.queue.lifecycle import lifecycle
from wsrm_mq.queue.ownership import Claim, claim, runnable
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.queue.settle import Done, Settled, settle
from wsrm_mq.sequence.elements import (
    CloseSequence,
    CreateSequence,
    EndpointReference,
    Offer,
    SequenceHeader,
    TerminateSequence,
)
from wsrm_mq.sequence.inbound import InboundSequence
from wsrm_mq.sequence.outbound import OutboundSequence, OutboundTerms
from wsrm_mq.store import entries, queues
from wsrm_mq.store.applications import NAMELESS, Serving
from wsrm_mq.store.cache import Cache
from wsrm_mq.store.outbound import OutboundRecord
from wsrm_mq.store.sqlite import schema
from wsrm_mq.store.sqlite.connection import connect_writer
from wsrm_mq.store.sqlite.presence import InstanceFiles
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.store.unit_of_work import Session
from wsrm_mq.testing import ManualClock
from wsrm_mq.versions import UNSEQUENCED, WSA_2004, WSA_2005, WSRM_1_0, WSRM_1_1, RMVersion, SOAPVersion

R = TypeVar("R")

USUAL = QueuePolicy()

_ADDRESSING = {WSRM_1_0: WSA_2004, WSRM_1_1: WSA_2005, UNSEQUENCED: WSA_2005}


def sender(rm: RMVersion = WSRM_1_1, **changes: Any) -> Sender:
    made = Sender("/orders", rm, SOAPVersion.SOAP_1_1, _ADDRESSING[rm], peer="192.0.2.1")
    return made._replace(**changes)


def arrival(identifier: str, number: int, *, last: bool = False, rm: RMVersion = WSRM_1_1, **changes: Any) -> Arrival:
    made = Arrival(
        sender=sender(rm),
        header=SequenceHeader(identifier, number, last),
        message_id=f"urn:message:{number}",
        action="urn:put",
        environ="{}",
        connection=None,
        body=Body(b"<Envelope/>"),
        policy=USUAL,
    )
    return made._replace(**changes)


def add_outbound(
    tx: Transaction, identifier: str, endpoint: EndpointReference, expires_at: int | None = None
) -> OutboundRecord:
    """A new outbound sequence that answers none."""
    terms = OutboundTerms(identifier, WSRM_1_1, SOAPVersion.SOAP_1_2, WSA_2005, expires_at)
    made = OutboundRecord(
        value=OutboundSequence(terms),
        queue=tx.queue("/orders"),
        peer=endpoint.address,
        partner="partner",
        endpoint=endpoint,
    )
    assert tx.add_outbound(made), "its name is known"
    return made


class Instance:
    """One process that uses the store, as far as the verbs can tell; its cache lives as a writer's does."""

    def __init__(self, path: Path, clock: ManualClock, name: str, serving: Serving = NAMELESS) -> None:
        self.clock = clock
        self.name = name
        self.db = connect_writer(path)
        row = {"name": name, "host": "here", "pid": 1, "started_at": clock(), "application": None, "paths": None}
        self.key = self.db.execute(queues.ADD_INSTANCE, row).fetchone()[0]
        self._cache = Cache(serving)
        self._instances = InstanceFiles(path)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        self.db.execute("BEGIN IMMEDIATE")
        try:
            self._cache.validate(self.db.execute("PRAGMA data_version").fetchone()[0])
            tx = Transaction(Session(self.db, self._cache, self.key, self.name, self._instances), self.clock())
            yield tx
            tx.flush()
            self.db.execute("COMMIT")
        except BaseException:
            self._cache.clear()
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
            raise
        tx.committed()

    def run(self, verb: Callable[[Transaction], R]) -> R:
        with self.transaction() as tx:
            return verb(tx)

    def create(
        self,
        policy: QueuePolicy = USUAL,
        rm: RMVersion = WSRM_1_1,
        expires: int | None = None,
        partner: str | None = None,
        offer: str | None = None,
    ) -> InboundSequence:
        request = CreateSequence(None, expires, Offer(offer) if offer is not None else None)
        who = sender(rm, partner=partner)
        receipt = self.run(lambda tx: create(tx, who, request, None, policy))
        assert receipt.created is not None
        return receipt.created

    def take(self, identifier: str, number: int, **changes: Any) -> MessageReceipt:
        return self.run(lambda tx: accept(tx, arrival(identifier, number, **changes)))

    def end(self, element: CloseSequence | TerminateSequence, rm: RMVersion = WSRM_1_1) -> EndReceipt:
        return self.run(lambda tx: lifecycle(tx, sender(rm), element, USUAL))

    def claim(self, lane: int) -> Claim | None:
        return self.run(lambda tx: claim(tx, lane))

    def runnable(self) -> list[Claim]:
        return self.run(lambda tx: runnable(tx, 10))

    def settle(self, held: Claim, number: int, *, release: bool = False, **done: Any) -> Settled:
        position = self.entry(held.lane, number)["id"]
        return self.run(lambda tx: settle(tx, held, position, number, Done(**done), release=release))

    def fail(
        self,
        held: Claim,
        number: int,
        policy: QueuePolicy,
        error: str = "no answer",
        diagnosis: Diagnosis = UNKNOWN,
    ) -> Failed:
        position = self.entry(held.lane, number)["id"]
        return self.run(lambda tx: fail(tx, held, position, number, error, policy, diagnosis))

    # what is stored

    def rows(self, statement: str, *parameters: object) -> list[dict[str, Any]]:
        cursor = self.db.execute(statement, parameters)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def record(self, identifier: str) -> Any:
        """The lane with this identifier; a ``SequenceRecord`` where a sequence rules it."""
        with self.transaction() as tx:
            lane = tx.lane_named(identifier)
            assert lane is not None
            return copy(lane)

    def entry(self, lane: int, number: int) -> dict[str, Any]:
        (row,) = self.rows("SELECT * FROM entry WHERE lane = ? AND number = ?", lane, number)
        return row

    def outcomes(self, lane: int) -> dict[int, str | None]:
        rows = self.rows("SELECT number, outcome FROM entry WHERE lane = ? ORDER BY number", lane)
        return {row["number"]: row["outcome"] for row in rows}

    def ledger(self, *events: str) -> list[dict[str, Any]]:
        rows = self.rows("SELECT * FROM ledger ORDER BY id")
        return [row for row in rows if not events or row["event"] in events]

    def to_run(self, held: Claim, count: int = 64) -> list[int]:
        """The numbers that a holder of ``held`` would deliver now, in this order."""
        (row,) = self.rows("SELECT * FROM lane WHERE id = ?", held.lane)
        upper = row["limit"] if row["discard_from"] is None else min(row["limit"], row["discard_from"])
        bounds = {"lane": held.lane, "lower": row["cursor"], "upper": upper, "ordered": row["ordered"]}
        return [found[1] for found in self.db.execute(entries.RUN, {**bounds, "now": self.clock(), "count": count})]

    def close(self) -> None:
        self.db.close()


class Node:
    """A store's file and the instances that were started on it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        self.started: list[Instance] = []
        schema.ensure(path)

    def start(self, serving: Serving = NAMELESS) -> Instance:
        instance = Instance(self.path, self.clock, f"instance{len(self.started)}", serving)
        self.started.append(instance)
        return instance

    def close(self) -> None:
        for instance in self.started:
            instance.close()


@contextmanager
def two_instances() -> Iterator[tuple[Instance, Instance]]:
    """Of one store, for one example of many: a fixture is made once for all of them."""
    with tempfile.TemporaryDirectory() as home:
        node = Node(Path(home) / "store.db")
        try:
            yield node.start(), node.start()
        finally:
            node.close()
