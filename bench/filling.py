"""Stores full of messages, made without a server, and delivered to an application that does nothing."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from bench.messages import FACTORY, message
from wsrm_mq import WSRMMiddleware
from wsrm_mq.queue.accept import accept
from wsrm_mq.queue.arrival import Arrival, Body, Sender
from wsrm_mq.queue.creation import create
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.sequence.elements import CreateSequence, SequenceHeader
from wsrm_mq.store.outside import run_once
from wsrm_mq.store.sqlite import schema
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.versions import WSA_2005, WSRM_1_1, SOAPVersion

__all__ = ["deliver", "fill", "fill_delivered", "null"]

_PIECE: Final = 2_000
_SENDER: Final = Sender("/orders", WSRM_1_1, SOAPVersion.SOAP_1_2, WSA_2005, peer="192.0.2.1")
_ENVIRON: Final = json.dumps(
    {"REQUEST_METHOD": "POST", "PATH_INFO": "/orders", "CONTENT_TYPE": FACTORY.content_type, "REMOTE_ADDR": "192.0.2.1"}
)
_POLICY: Final = QueuePolicy()


def null(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """The application."""
    start_response("202 Accepted", [("Content-Length", "0")])
    return []


def fill(store: Path, messages: int, sequences: int) -> None:
    """Messages of 1 KB, in order, those of the sequences in turn."""
    schema.ensure(store)
    identifiers = [_created(store) for _ in range(sequences)]
    body = message(identifiers[0], 1)

    def piece(tx: Transaction, first: int) -> None:
        for index in range(first, min(first + _PIECE, messages)):
            number, sequence = divmod(index, sequences)
            accept(tx, _arrival(identifiers[sequence], number + 1, body))

    for first in range(0, messages, _PIECE):
        run_once(store, lambda tx, first=first: piece(tx, first))


_DELIVERED: Final = """
UPDATE message SET body = x'00', body_size = 1;
WITH RECURSIVE new (n) AS (SELECT :sequences + 1 UNION ALL SELECT n + 1 FROM new WHERE n < :messages)
INSERT INTO message (id, message_id, action, environ, received_at, body_size, body)
SELECT n, 'urn:message:' || n, action, environ, received_at, body_size, body
FROM new JOIN message m ON m.id = 1 + (n - 1) % :sequences;
INSERT INTO entry (id, queue, message, lane, number)
SELECT m.id, e.queue, m.id, e.lane, 1 + (m.id - 1) / :sequences
FROM message m JOIN entry e ON e.id = 1 + (m.id - 1) % :sequences WHERE m.id > :sequences;
UPDATE entry SET outcome = 'delivered', settled_at = 1, deliveries = 1;
UPDATE range SET upper = :messages / :sequences;
UPDATE lane SET owner = NULL, cursor = 1 + :messages / :sequences,
    "limit" = 1 + :messages / :sequences;
"""


def fill_delivered(store: Path, messages: int, sequences: int) -> None:
    """So many that were delivered, with next to nothing in them."""
    fill(store, sequences, sequences)
    with closing(sqlite3.connect(store)) as db, db:
        for statement in _DELIVERED.split(";\n"):
            bounds = {"messages": messages, "sequences": sequences}
            db.execute(statement, {name: bounds[name] for name in bounds if f":{name}" in statement})


def _created(store: Path) -> str:
    made = run_once(store, lambda tx: create(tx, _SENDER, CreateSequence(None, 86_400_000), None, _POLICY)).created
    assert made is not None
    return made.terms.identifier


def _arrival(identifier: str, number: int, body: bytes) -> Arrival:
    return Arrival(
        sender=_SENDER,
        header=SequenceHeader(identifier, number, False),
        message_id=f"urn:message:{identifier}:{number}",
        action="urn:example:orders/put",
        environ=_ENVIRON,
        connection=None,
        body=Body(body),
        policy=_POLICY,
    )


def deliver(store: Path, messages: int) -> None:
    """By the second loop."""
    with closing(sqlite3.connect(store)) as db, db:
        db.execute("UPDATE lane SET owner = NULL")
    with WSRMMiddleware(null, store), closing(sqlite3.connect(store)) as db:
        while db.execute("SELECT count(*) FROM entry WHERE outcome = 'delivered'").fetchone() != (messages,):
            time.sleep(0.2)
