"""What is deleted, and when: messages that were settled long ago, then sequences that ended long ago, each with what
the ledger says of it; then what the ledger has said of nothing of the kind long ago.

Nothing that is needed goes: what is unsettled, dead letters, and of a sequence that still answers duplicates the
stored replies. The ranges stay until the sequence is forgotten, so no sequence answers differently before that: a
number that was received is known as received without its entry. A sequence is forgotten when its end is long ago and
nothing of it is kept any more; from then on it is unknown, which is what it answered to nearly everything before.

Looking for it only reads. What is found is deleted in batches, each a short transaction of its own with one row in
the ledger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from wsrm_mq.store import pruning as sql
from wsrm_mq.store.late_index import BY_CONNECTION, BY_SEQUENCE
from wsrm_mq.store.port import Database
from wsrm_mq.store.transaction import Transaction, as_json

__all__ = [
    "Batch",
    "Kept",
    "KeptOf",
    "Pruned",
    "batches",
    "forget_instances",
    "forget_queues",
    "unused_queues",
]

BATCH: Final = 200
SEQUENCES: Final = 50
"""Forgotten in one transaction."""
LEDGER: Final = 1_000
"""Rows of the ledger deleted in one transaction."""
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
    ledger: int | None = None
    """A row of the ledger that is about neither a message nor a sequence; that of no partner holds for all."""


KeptOf = Callable[[str | None], Kept]
"""By a partner's name."""

Reader = Callable[[], AbstractContextManager[Database]]


class Pruned(NamedTuple):
    """How much went. ``bodies``: of messages whose entry stays; ``size`` is in bytes, of all bodies."""

    messages: int = 0
    bodies: int = 0
    size: int = 0
    sequences: int = 0
    ledger: int = 0
    """Rows of the ledger beside those that went with what they were about."""

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
    ledger: tuple[int, ...] = ()
    actor: str | None = None
    reason: str | None = None

    def __call__(self, tx: Transaction) -> Pruned:
        """Delete what is still there: another process may prune too. What was found settled stays settled, and what was
        found ended stays ended."""
        pruned = Pruned(sequences=_forget(tx, self.sequences))
        if self.ledger:
            dropped_rows = tx.execute(sql.DROP_LEDGER, (as_json(self.ledger),)).rowcount
            pruned = pruned._replace(ledger=dropped_rows)
        entries = as_json(self.entries)
        tx.execute(sql.DROP_REPLIES, (entries,))
        gone = tx.execute(sql.DROP_ENTRIES, (entries,)).fetchall()
        tx.execute(sql.DROP_LEDGER_OF_ENTRIES, (entries,))
        dropped = tx.execute(sql.DROP_MESSAGES, (as_json([*self.messages]),)).fetchall()
        BY_SEQUENCE.forget(tx, gone)
        BY_CONNECTION.forget(tx, ((connection, key) for key, connection in dropped))
        freed = tx.execute(sql.FREE_BODIES, (as_json([*self.bodies]),)).fetchall()
        size = sum(self.messages[key] for key, _connection in dropped) + sum(self.bodies[key] for (key,) in freed)
        for key, count in Counter(key for key, _number in gone).items():
            tx.execute(sql.COUNT_PRUNED, (count, key))
        pruned = pruned._replace(messages=len(gone), bodies=len(freed), size=size)
        if any(pruned._replace(ledger=0)):  # of the ledger alone: it would never end
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


def batches(
    reader: Reader, kept: KeptOf, now: int, *, actor: str | None = None, reason: str | None = None
) -> Iterator[Batch]:
    """What is due at ``now``, in the order in which it goes. Each batch has to be run before the next is asked for; or
    none, to learn what would go. No connection is held between batches."""
    with reader() as db:
        partners = [partner for (partner,) in db.execute(sql.PARTNERS)]
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
    general = terms[None]
    if general.ledger is not None:
        for keys in _old_ledger(reader, now - general.ledger):
            yield Batch(Pruned(ledger=len(keys)), ledger=keys, actor=actor, reason=reason)


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
        bounds = {"after": 0, "horizon": _horizon(db, latest), "latest": latest, "count": BATCH}
    while True:
        with reader() as db:
            rows = [_Due._make(row) for row in db.execute(sql.DUE, bounds)]
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
    bounds = {"at": 0, "key": 0, "latest": latest, "settled": settled, "count": SEQUENCES}
    while True:
        with reader() as db:
            rows = db.execute(sql.OVER, bounds).fetchall()
        if not rows:
            return
        bounds["at"], bounds["key"], _partner = rows[-1]
        keys = tuple(key for at, key, partner in rows if _is_over(terms.get(partner), now - at))
        if keys:
            yield keys


def _old_ledger(reader: Reader, latest: int) -> Iterator[tuple[int, ...]]:
    bounds = {"at": 0, "key": 0, "latest": latest, "count": LEDGER}
    while True:
        with reader() as db:
            rows = db.execute(sql.OLD_LEDGER, bounds).fetchall()
        if not rows:
            return
        bounds["at"], bounds["key"] = rows[-1]
        yield tuple(key for _at, key in rows)


def _is_over(term: Kept | None, age: int) -> bool:
    return term is not None and term.ended is not None and age >= term.ended


def _horizon(db: Database, latest: int) -> int:
    """About the last position that was received by ``latest``: what is behind it cannot be due. A clock that was
    stepped back makes it a little less, no more."""
    lower, upper = 0, db.execute(sql.LAST_ENTRY).fetchone()[0]
    while lower < upper:
        middle = (lower + upper + 1) // 2
        found = db.execute(sql.RECEIVED_AT, (middle,)).fetchone()
        if found is None or found[1] <= latest:
            lower = middle
        else:
            upper = found[0] - 1
    return int(lower)


def _forget(tx: Transaction, keys: tuple[int, ...]) -> int:
    """Forget ended sequences, but those of which something is left. Answers how many."""
    forgotten = 0
    for (key,) in tx.execute(sql.EMPTY, (as_json(keys),)).fetchall():
        known = tx.sequence(key)
        if known is not None and known.owner is None:
            tx.execute(sql.DROP_LEDGER_OF_SEQUENCE, (key,))
            tx.forget_sequence(key)
            forgotten += 1
    return forgotten


def forget_instances(tx: Transaction, ended_before: int) -> int:
    """Delete the rows of instances that ended long ago and own nothing."""
    return tx.execute(sql.DROP_OLD_INSTANCES, (ended_before,)).rowcount


class Unused(NamedTuple):
    queues: tuple[int, ...]
    newest_sequence: int
    """At that time: what uses one of them since is behind it."""


def unused_queues(db: Database, made_before: int) -> Unused:
    """Keys of the queues that paths have named, of which nothing is left."""
    if db.execute(sql.OLD_QUEUE, (made_before,)).fetchone() is None:
        return Unused((), 0)
    newest = db.execute(sql.LAST_SEQUENCE).fetchone()[0]
    return Unused(
        tuple(key for (key,) in db.execute(sql.UNUSED_QUEUES, {"before": made_before, "count": BATCH})), newest
    )


def forget_queues(tx: Transaction, unused: Unused) -> int:
    """Delete them, with their dead-letter queues and what was counted of them, but for those that are used again.
    Answers how many."""
    again = {key for (key,) in tx.execute(sql.USED_SINCE, (unused.newest_sequence,)).fetchall()}
    keys = as_json([key for key in unused.queues if key not in again])
    below = [key for (key,) in tx.execute(sql.QUEUES_BELOW, (keys,)).fetchall()]
    tx.forget_queues(below)
    gone = [key for (key,) in tx.execute(sql.QUEUES_LEFT, (keys,)).fetchall()]
    tx.forget_queues(gone)
    counted = as_json([*below, *gone])
    tx.execute(sql.KEEP_COUNTS, (counted,))
    tx.execute(sql.DROP_COUNTS, (counted,))
    return len(gone)
