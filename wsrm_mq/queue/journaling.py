"""Journals: queues that keep what came into other queues, and what became of it.

An entry of a journal is one more entry of the same message, which is stored once. It names the entry that it records
(``journal_of``) and has no outcome of that: the outcome is read where it is written, so a journal tells it from the
transaction on that settles the message, at no cost to that. What a journal names stays until the journal's entry goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from wsrm_mq.queue.declaring import NODE_JOURNAL, Declared, journal_named
from wsrm_mq.queue.policies import ms
from wsrm_mq.queue.quota import lack_of_room
from wsrm_mq.store import journals
from wsrm_mq.store.bulk import PUT
from wsrm_mq.store.port import Database
from wsrm_mq.store.transaction import Transaction, as_json
from wsrm_mq.store.words import DEFAULT_PRIORITY


class Recorded(NamedTuple):
    """The entry that one of a journal records. ``queue``: the name of that which it came into. ``outcome``: ``None``
    while it is not settled. ``settled_at``: ms since the epoch."""

    queue: str
    position: int
    outcome: str | None
    reason: str | None
    settled_at: int | None


def sent(tx: Transaction, position: int, message: int, size: int) -> None:
    """A message that was put with ``journal="source"`` has left the queue where it was at ``position``: record it in
    the node's journal, once, also where it comes back and leaves again."""
    journal = journal_named(tx, NODE_JOURNAL, None)
    row = {"message": message, "position": position, "queue": journal.key}
    if tx.execute(journals.IS_RECORDED, row).fetchone() is None:
        record(tx, journal, position, message, size)


def record(
    tx: Transaction, journal: Declared, position: int, message: int, size: int, priority: int = DEFAULT_PRIORITY
) -> bool:
    """Record in a journal that a message has come at ``position``. Where it is full, the message goes on without: that
    is told, and counted. Answers whether it was added."""
    policy = journal.policy
    lack = lack_of_room(tx, journal, size)
    if lack is not None:
        tx.skipped("journal_skipped", journal.key, journal.name, lack)
        return False
    row = {
        "queue": journal.key,
        "message": message,
        "priority": priority,
        "expires_at": None if policy.ttl is None else tx.now + ms(policy.ttl),
        **dict.fromkeys(("lane", "number", "retry_from", "retry_at", "hold", "replay_of", "asks")),
        "journal_of": position,
    }
    tx.add_entry(row, PUT)
    tx.add_unsettled(journal.key, 1, size)
    return True


def recorded(db: Database, positions: Sequence[int]) -> dict[int, Recorded]:
    """The entries that these of a journal record, each by the position of the journal's."""
    found = db.execute(journals.RECORDED, {"keys": as_json(positions)})
    return {position: Recorded._make(row) for position, *row in found}
