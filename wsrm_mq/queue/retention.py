"""What is deleted, and when: messages that were settled long ago, then sequences that ended long ago.

Nothing that is needed goes: what is unsettled, dead letters, and of a sequence that still answers duplicates the
stored replies. The ranges stay until the sequence is forgotten, so no sequence answers differently before that: a
number that was received is known as received without its entry. A sequence is forgotten when its end is long ago and
nothing of it is kept any more; from then on it is unknown, which is what it answered to nearly everything before.

Who looks for it only reads. What is found is deleted in batches, each a short transaction of its own with one row in
the ledger.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from wsrm_mq.queue.connection_index import forget
from wsrm_mq.queue.sequence_index import BY_SEQUENCE
from wsrm_mq.store.transaction import Transaction, as_json

__all__ = ["OLD_INSTANCE", "Batch", "Kept", "KeptOf", "Pruned", "batches", "forget_instances"]

BATCH: Final = 200
SEQUENCES: Final = 50
"""Forgotten in one transaction."""
BATCH_BYTES: Final = 4 * 1024 * 1024
"""Of bodies; one message may have more."""
GRACE: Final = 60_000
"""ms. A request that waits for a message reads what became of it after it is settled."""


class Kept(NamedTuple):
    """How long something is kept, in ms; ``None``: for ever."""

    settled: int | None
    """A message, once it is settled."""
    ended: int | None
    """A sequence, once it has ended."""


KeptOf = Callable[[str | None], Kept]
"""By a partner's name."""

Reader = Callable[[], AbstractContextManager[sqlite3.Connection]]


class Pruned(NamedTuple):
    """How much went. ``bodies`` are those whose entry stays; ``size`` is in bytes, of all bodies."""

    messages: int = 0
    bodies: int = 0
    size: int = 0
    sequences: int = 0

    def plus(self, other: Pruned) -> Pruned:
        return Pruned(*map(sum, zip(self, other, strict=True)))


@dataclass(frozen=True, slots=True)
class Batch:
    """What one transaction deletes: a verb. ``entries`` are positions, the others keys."""

    expected: Pruned
    entries: tuple[int, ...] = ()
    messages: Mapping[int, int] = field(default_factory=dict)
    """Those of ``entries``, with the size of their bodies."""
    bodies: Mapping[int, int] = field(default_factory=dict)
    """Messages that lose their body only, with its size."""
    sequences: tuple[int, ...] = ()
    actor: str | None = None
    reason: str | None = None

    def __call__(self, tx: Transaction) -> Pruned:
        """Delete what is still there: somebody else may prune too. What was found settled stays settled, and what was
        found ended stays ended."""
        pruned = Pruned(sequences=_forget(tx, self.sequences))
        entries = as_json(self.entries)
        tx.execute(_DROP_REPLIES, (entries,))
        gone = tx.execute(_DROP_ENTRIES, (entries,)).fetchall()
        dropped = tx.execute(_DROP_MESSAGES, (as_json([*self.messages]),)).fetchall()
        BY_SEQUENCE.forget(tx, gone)
        forget(tx, ((connection, key) for key, connection in dropped))
        freed = tx.execute(_FREE_BODIES, (as_json([*self.bodies]),)).fetchall()
        size = sum(self.messages[key] for key, _connection in dropped) + sum(self.bodies[key] for (key,) in freed)
        for key, count in Counter(key for key, _number in gone).items():
            tx.execute("UPDATE sequence SET pruned = pruned + ? WHERE id = ?", (count, key))
        pruned = pruned._replace(messages=len(gone), bodies=len(freed), size=size)
        if any(pruned):
            tx.ledger("pruned", reason=self._told(pruned), actor=self.actor)
        return pruned

    def _told(self, pruned: Pruned) -> str:
        what = (
            pruned.messages
            and f"{pruned.messages} messages between positions {self.entries[0]} and {self.entries[-1]}",
            pruned.bodies and f"{pruned.bodies} bodies of messages whose replies are still wanted",
            pruned.size and f"{pruned.size} bytes",
            pruned.sequences and f"{pruned.sequences} ended sequences",
        )
        text = ", ".join(part for part in what if part)
        return f"{text}: {self.reason}" if self.reason else text


_LISTED: Final = "(SELECT value FROM json_each(?))"
_SETTLED: Final = "outcome IS NOT NULL AND outcome <> 'dead'"
_DROP_REPLIES: Final = f"DELETE FROM reply WHERE entry IN {_LISTED}"
_DROP_ENTRIES: Final = f"DELETE FROM entry WHERE id IN {_LISTED} AND {_SETTLED} RETURNING sequence, number"
_DROP_MESSAGES: Final = f"""DELETE FROM message WHERE id IN {_LISTED}
    AND NOT EXISTS (SELECT 1 FROM entry WHERE entry.message = message.id)
    RETURNING id, connection"""
_FREE_BODIES: Final = f"""UPDATE message SET body = NULL WHERE id IN {_LISTED} AND body IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM entry WHERE entry.message = message.id AND NOT ({_SETTLED}))
    RETURNING id"""

_DUE: Final = f"""
SELECT e.id, m.id, e.settled_at, s.partner, iif(m.body IS NULL, 0, m.body_size),
       e.wants_reply = 1 AND s.state <> 'ended'
FROM entry e JOIN message m ON m.id = e.message LEFT JOIN sequence s ON s.id = e.sequence
WHERE e.id > :after AND e.id <= :horizon AND {_SETTLED.replace("outcome", "e.outcome")} AND e.settled_at <= :latest
  AND NOT (e.wants_reply = 1 AND s.state <> 'ended' AND m.body IS NULL)
ORDER BY e.id LIMIT {BATCH}
"""
_NOT_OVER: Final = "(e.outcome IS NULL OR e.outcome = 'dead' OR e.settled_at > :settled)"
_OVER: Final = f"""
SELECT s.ended_at, s.id, s.partner FROM sequence s
WHERE (s.ended_at, s.id) > (:at, :key) AND s.ended_at <= :latest AND s.state = 'ended' AND s.owner IS NULL
  AND s.id < (SELECT max(id) FROM sequence)
  AND NOT EXISTS (
      SELECT 1 FROM sequence_entry i JOIN entry e ON e.id = i.entry WHERE i.sequence = s.id AND {_NOT_OVER}
  )
  AND s.id NOT IN (
      SELECT e.sequence FROM entry e WHERE e.id > {BY_SEQUENCE.upto} AND e.sequence IS NOT NULL AND {_NOT_OVER}
  )
ORDER BY s.ended_at, s.id LIMIT {SEQUENCES}
"""
"""The newest sequence stays: a key must not be used again, the ledger knows sequences by it."""


def batches(
    reader: Reader, kept: KeptOf, now: int, *, actor: str | None = None, reason: str | None = None
) -> Iterator[Batch]:
    """What is due at ``now``, in the order in which it goes. Each batch has to be run before the next is asked for; or
    none, to learn what would go. No connection is held between batches."""
    with reader() as db:
        partners = [partner for (partner,) in db.execute("SELECT DISTINCT partner FROM sequence")]
    terms = {partner: kept(partner) for partner in {None, *partners}}
    settled = [now - max(one.settled, GRACE) for one in terms.values() if one.settled is not None]
    ended = [now - one.ended for one in terms.values() if one.ended is not None]
    if settled:
        for due in _due(reader, terms, now, max(settled)):
            yield Batch(
                Pruned(
                    messages=sum(not row.only_body for row in due),
                    bodies=sum(row.only_body for row in due),
                    size=sum(row.size for row in due),
                ),
                entries=tuple(row.position for row in due if not row.only_body),
                messages={row.message: row.size for row in due if not row.only_body},
                bodies={row.message: row.size for row in due if row.only_body},
                actor=actor,
                reason=reason,
            )
    if ended:
        for keys in _over(reader, terms, now, max(ended), max(settled, default=0)):
            yield Batch(Pruned(sequences=len(keys)), sequences=keys, actor=actor, reason=reason)


class _Due(NamedTuple):
    position: int
    message: int
    settled_at: int
    partner: str | None
    size: int
    only_body: int
    """Its reply is still wanted, and the entry that leads to it."""


def _due(reader: Reader, terms: dict[str | None, Kept], now: int, latest: int) -> Iterator[list[_Due]]:
    with reader() as db:
        bounds = {"after": 0, "horizon": _horizon(db, latest), "latest": latest}
    while True:
        with reader() as db:
            rows = [_Due._make(row) for row in db.execute(_DUE, bounds)]
        if not rows:
            return
        taken: list[_Due] = []
        size = 0
        for row in rows:
            term = terms.get(row.partner)
            if term is not None and term.settled is not None and row.settled_at <= now - max(term.settled, GRACE):
                if taken and size + row.size > BATCH_BYTES:
                    break
                taken.append(row)
                size += row.size
            bounds["after"] = row.position
        if taken:
            yield taken


def _over(
    reader: Reader, terms: dict[str | None, Kept], now: int, latest: int, settled: int
) -> Iterator[tuple[int, ...]]:
    bounds = {"at": 0, "key": 0, "latest": latest, "settled": settled}
    while True:
        with reader() as db:
            rows = db.execute(_OVER, bounds).fetchall()
        if not rows:
            return
        bounds["at"], bounds["key"], _partner = rows[-1]
        keys = tuple(key for at, key, partner in rows if _is_over(terms.get(partner), now - at))
        if keys:
            yield keys


def _is_over(term: Kept | None, age: int) -> bool:
    return term is not None and term.ended is not None and age >= term.ended


def _horizon(db: sqlite3.Connection, latest: int) -> int:
    """About the last position that was received by ``latest``: what is behind it cannot be due. A clock that was
    stepped back makes it a little less, no more."""
    lower, upper = 0, db.execute("SELECT coalesce(max(id), 0) FROM entry").fetchone()[0]
    while lower < upper:
        middle = (lower + upper + 1) // 2
        found = db.execute(
            """SELECT e.id, m.received_at FROM entry e JOIN message m ON m.id = e.message
            WHERE e.id <= ? ORDER BY e.id DESC LIMIT 1""",
            (middle,),
        ).fetchone()
        if found is None or found[1] <= latest:
            lower = middle
        else:
            upper = found[0] - 1
    return int(lower)


_EMPTY: Final = f"""
SELECT value FROM json_each(?)
WHERE NOT EXISTS (SELECT 1 FROM sequence_entry WHERE sequence = value)
  AND value NOT IN (SELECT sequence FROM entry WHERE id > {BY_SEQUENCE.upto} AND sequence IS NOT NULL)
"""


def _forget(tx: Transaction, keys: tuple[int, ...]) -> int:
    """Forget ended sequences, but those of which something is left. Answers how many."""
    forgotten = 0
    for (key,) in tx.execute(_EMPTY, (as_json(keys),)).fetchall():
        known = tx.sequence(key)
        if known is not None and known.owner is None:
            tx.forget_sequence(key)
            forgotten += 1
    return forgotten


OLD_INSTANCE: Final = """SELECT id FROM instance WHERE ended_at < ?
    AND id NOT IN (SELECT owner FROM sequence WHERE owner IS NOT NULL)"""


def forget_instances(tx: Transaction, ended_before: int) -> int:
    """Delete the rows of instances that ended long ago and own nothing."""
    return tx.execute(f"DELETE FROM instance WHERE id IN ({OLD_INSTANCE})", (ended_before,)).rowcount
