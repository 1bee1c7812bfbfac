"""What both floors are made of: the least that a message on disk costs in Python.

Headers are scanned with expat; message, entry and sequence are written in one commit, to the product's own schema, with
its columns and PRAGMAs; the acknowledgement is the product's; the application is called in a thread, and what it has
done is settled with the next commit. There are no duplicates, faults, gaps, owners, second processes: what the product
needs more than this is what its guarantees cost. So a floor does not change when the product does.
"""

from __future__ import annotations

import io
import itertools
import json
import re
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, NamedTuple
from xml.parsers import expat

from bench.messages import FACTORY
from wsrm_mq.envelope.render import create_sequence_response, sequence_acknowledgement
from wsrm_mq.sequence.elements import SequenceAcknowledgement
from wsrm_mq.store.sqlite.connection import connect_writer
from wsrm_mq.store.sqlite.schema import ensure

__all__ = ["CONTENT_TYPE", "LINGER_SECONDS", "Arrival", "Floor", "Items", "acknowledgement", "arrival"]

Items = tuple[tuple[str, str], ...]

CONTENT_TYPE: Final = f"{FACTORY.soap.media_type}; charset=utf-8"
LINGER_SECONDS: Final = 0.005
"""What the application has done waits so long for a message to be written with."""

_CHECKPOINT_PAGES: Final = 4_096
"""16 MiB, as the product's writer."""
_IDENTIFIER, _NUMBER = (f"{FACTORY.rm.namespace}\n{name}" for name in ("Identifier", "MessageNumber"))
_MESSAGE_ID, _ACTION = (f"{FACTORY.addressing.namespace}\n{name}" for name in ("MessageID", "Action"))
_MESSAGE: Final = "id, message_id, action, environ, principal, connection, received_at, body_size, body"
_ENTRY: Final = "id, queue, message, lane, number, wants_reply, named, waiter, outcome, reason, settled_at"
_TERMS: Final = "queue, identifier, soap, addressing, assurance, ordered, created_at"
_CREATE: Final = (
    f'INSERT INTO lane ({_TERMS}, active_at, cursor, "limit", fence) '
    "VALUES (?, ?, ?, ?, 'exactly_once', 1, ?, ?, 1, 1, 0)"
)
_RULED: Final = (
    "INSERT INTO sequence (lane, rm, behavior, incomplete_reason, state) "
    "VALUES (?, ?, 'NoDiscard', 'first_gap', 'created')"
)
_PROGRESS: Final = (
    'UPDATE lane SET active_at = ?, cursor = ?, "limit" = ?, fence = 0, running_since = NULL WHERE id = ?'
)


class Arrival(NamedTuple):
    identifier: str
    number: int
    message_id: str
    action: str
    environ: Items
    connection: str | None
    body: bytes


class _Sequence:
    def __init__(self, key: int, queue: int) -> None:
        self.key = key
        self.queue = queue
        self.expected = self.cursor = 1


class _Scanned(Exception):
    """The first child of Body has begun."""


class Floor:
    """The store, and the thread that calls ``app``. One thread at a time may ``create`` or ``commit``."""

    def __init__(self, app: Any, path: Path) -> None:
        ensure(path)
        self.commits = 0
        self.taken: deque[tuple[Arrival, int]] = deque()
        """What the application has done, with its positions: settled with the next commit."""
        self._app = app
        self._db = connect_writer(path)
        self._db.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        self._positions = itertools.count(1)
        self._sequences: dict[str, _Sequence] = {}
        self._ready: SimpleQueue[list[tuple[Arrival, int]]] = SimpleQueue()
        threading.Thread(target=self._call, daemon=True).start()

    def create(self, path: str) -> bytes:
        """The answer to a CreateSequence."""
        identifier, now, execute = f"urn:uuid:{uuid.uuid4()}", _now(), self._db.execute
        execute("BEGIN IMMEDIATE")
        execute("INSERT INTO queue (name, kind, created_at) VALUES (?, 'app', ?) ON CONFLICT DO NOTHING", (path, now))
        (queue,) = execute("SELECT id FROM queue WHERE name = ?", (path,)).fetchone()
        key = execute(_CREATE, (queue, identifier, FACTORY.soap.label, FACTORY.addressing.label, now, now)).lastrowid
        execute(_RULED, (key, FACTORY.rm.label))
        execute("COMMIT")
        self._sequences[identifier] = _Sequence(key or 0, queue)
        return create_sequence_response(FACTORY.soap, FACTORY.addressing, FACTORY.rm, None, identifier)

    def commit(self, arrivals: Sequence[Arrival]) -> int:
        """Write ``arrivals`` and settle what was taken, then give the application what was written. Answers how many
        were settled."""
        now, execute, sequences = _now(), self._db.execute, self._sequences
        placed = list(zip(arrivals, self._positions, strict=False))
        done = [self.taken.popleft() for _ in range(len(self.taken))]
        messages, entries = [], []
        for arrival, at in placed:
            identifier, number, message_id, action, environ, connection, body = arrival
            sequence = sequences[identifier]
            sequence.expected = number + 1
            messages.append((at, message_id, action, _as_json(environ), None, connection, now, len(body), body))
            entries.append((at, sequence.queue, at, sequence.key, number, 0, 1, None, None, None, None))
        if not placed and not done:
            return 0
        for arrival, _ in done:
            sequences[arrival.identifier].cursor = arrival.number + 1
        changed = [sequences[identifier] for identifier in {arrival.identifier for arrival, _ in (*placed, *done)}]
        execute("BEGIN IMMEDIATE")
        if placed:
            execute(_insert("message", _MESSAGE, len(placed)), _flat(messages))
            execute(_insert("entry", _ENTRY, len(placed)), _flat(entries))
        if done:
            execute(_settle(len(done)), (now, *(position for _, position in done)))
        progress = [(now, one.cursor, one.expected, one.key) for one in changed]
        self._db.executemany(_PROGRESS, progress)
        execute("COMMIT")
        self.commits += 1
        if placed:
            self._ready.put(placed)
        return len(done)

    def _call(self) -> None:
        while True:
            for arrival, position in self._ready.get():
                environ: dict[str, Any] = dict(arrival.environ)
                environ["wsgi.input"] = io.BytesIO(arrival.body)
                environ["CONTENT_LENGTH"] = str(len(arrival.body))
                environ["wsrm.sequence_id"], environ["wsrm.message_number"] = arrival.identifier, arrival.number
                b"".join(self._app(environ, lambda *_: None))
                self.taken.append((arrival, position))


def arrival(body: bytes, environ: Items, connection: str | None) -> Arrival | None:
    """The message in ``body``; ``None`` for a CreateSequence."""
    said = _scan(body)
    if _NUMBER not in said:
        return None
    number, message_id, action = int(said[_NUMBER]), said[_MESSAGE_ID], said[_ACTION]
    return Arrival(said[_IDENTIFIER], number, message_id, action, environ, connection, body)


def acknowledgement(identifier: str, number: int) -> bytes:
    """Of 1 to ``number``."""
    return _ACKNOWLEDGEMENT % (next(_message_ids), identifier.encode(), number)


def _scan(envelope: bytes) -> dict[str, str]:
    """Text by expanded name of each element up to the first child of Body."""
    texts: dict[str, list[str]] = {}
    parser = expat.ParserCreate(None, "\n")
    in_body = False

    def start(name: str, _attributes: dict[str, str]) -> None:
        nonlocal in_body
        if in_body:
            raise _Scanned
        text = texts[name] = list[str]()
        parser.CharacterDataHandler = text.append
        in_body = name.endswith("\nBody")

    parser.StartElementHandler = start
    try:
        parser.Parse(envelope, True)
    except _Scanned:
        pass
    return {name: "".join(text).strip() for name, text in texts.items()}


def _rendered() -> bytes:
    """The product's acknowledgement, to be filled in."""
    acknowledged = SequenceAcknowledgement("%b", ((1, 4_711),))
    text = sequence_acknowledgement(FACTORY.soap, FACTORY.addressing, FACTORY.rm, [acknowledged]).decode()
    return re.sub("urn:uuid:[0-9a-f-]+", "urn:uuid:6ba7b810-9dad-41d1-80b4-%012x", text).replace("4711", "%d").encode()


_ACKNOWLEDGEMENT: Final = _rendered()
_message_ids: Final = itertools.count(time.time_ns() % 2**40)


def _now() -> int:
    return time.time_ns() // 1_000_000


@lru_cache(1_024)
def _as_json(environ: Items) -> str:
    """A client's requests are alike."""
    return json.dumps(dict(environ), separators=(",", ":"))


def _flat(rows: Iterable[Sequence[Any]]) -> list[Any]:
    return list(chain.from_iterable(rows))


@lru_cache(None)
def _insert(table: str, columns: str, rows: int) -> str:
    row = f"({', '.join('?' * len(columns.split()))})"
    return f"INSERT INTO {table} ({columns}) VALUES {', '.join([row] * rows)}"


@lru_cache(None)
def _settle(rows: int) -> str:
    return (
        "UPDATE entry SET settled_at = ?, outcome = 'delivered', named = 1, deliveries = deliveries + 1 "
        f"WHERE outcome IS NULL AND id IN ({', '.join('?' * rows)})"
    )
