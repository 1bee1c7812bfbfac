"""Retention: messages are deleted that were settled long ago, then sequences that ended long ago, each with the
ledger's rows about it; then plans of replays, and old rows of the ledger about anything else.

Nothing that is needed goes: what is unsettled, dead letters, and of a sequence that still answers duplicates the
stored replies. The ranges stay until the sequence is forgotten, so no sequence answers differently before that: a
number that was received is known as received without its entry. A sequence is forgotten when its end is long ago and
nothing of it is kept any more; from then on it is unknown, which is what it answered to nearly everything before.

Where that is asked for, nothing goes before an archive that was confirmed holds it (``queue.archiving``).

Looking for it only reads. What is found is deleted in batches, each a short transaction of its own with one row in
the ledger.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple

from wsrm_mq.store import pruning as sql
from wsrm_mq.store.late_index import BY_CONNECTION, BY_LANE
from wsrm_mq.store.port import Database
from wsrm_mq.store.transaction import Transaction, as_json

BATCH: Final = 200
SEQUENCES: Final = 50
"""The most sequences that are forgotten in one transaction."""
LEDGER: Final = 1_000
"""Rows of the ledger deleted in one transaction."""
BATCH_BYTES: Final = 4 * 1024 * 1024
"""The most bytes of bodies in a batch; one message may have more."""
ARRIVED: Final = 30 * 24 * 3_600_000
"""Milliseconds for which a message of another node is known again at least, whatever a service keeps: one that was away
may send for so long what has come by another way."""
CLIENTS: Final = 24 * 3_600_000
"""ms. How long a subscription that has ended, and its client, are on record."""
GRACE: Final = 60_000
"""ms. A request that waits for a message reads what became of it after it is settled."""


_LARGEST: Final = 2**63 - 1


class Kept(NamedTuple):
    """How long something is kept, in ms; ``None``: for ever."""

    settled: int | None
    """A message, once it is settled."""
    ended: int | None
    """A sequence, once it has ended."""
    ledger: int | None = None
    """A row of the ledger that is about neither a message nor a sequence; that of no partner holds for all."""
    until_archived: bool = False
    """Whether nothing goes before an archive holds it."""


KeptOf = Callable[[str | None], Kept]
"""The times to keep things for, by a partner's name."""

Reader = Callable[[], AbstractContextManager[Database]]


class Pruned(NamedTuple):
    """How much went. ``bodies``: of messages whose entry stays; ``size`` is in bytes, of all bodies."""

    messages: int = 0
    bodies: int = 0
    size: int = 0
    sequences: int = 0
    ledger: int = 0
    """Rows of the ledger beside those that went with what they were about."""
    plans: int = 0
    """The number of plans of replays."""

    def plus(self, other: Pruned) -> Pruned:
        return Pruned(*map(sum, zip(self, other, strict=True)))

    def minus(self, other: Pruned) -> Pruned:
        return Pruned(*map(operator.sub, self, other))


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows that one transaction deletes: a verb. ``entries`` are positions, the others keys."""

    expected: Pruned
    entries: tuple[int, ...] = ()
    messages: Mapping[int, int] = field(default_factory=dict)
    """The messages of ``entries``, each with the size of its body."""
    bodies: Mapping[int, int] = field(default_factory=dict)
    """Messages that lose their body only, with its size."""
    sequences: tuple[int, ...] = ()
    ledger: tuple[int, ...] = ()
    plans: tuple[str, ...] = ()
    archived: Mapping[int, int] = field(default_factory=dict)
    """Positions that lose their entry or body only while an archive holds them, with their messages."""
    archived_sequences: tuple[int, ...] = ()
    """The keys among ``sequences`` that are forgotten only while an archive holds them."""
    actor: str | None = None
    reason: str | None = None

    def __call__(self, tx: Transaction) -> Pruned:
        """Delete what is still there, and still held by an archive where it has to be: another process may prune, and
        an operator act, meanwhile. What was found settled stays settled, and what was found ended stays ended."""
        waits = self.archived or self.archived_sequences
        return (self._held(tx) if waits else self)._deleted(tx)

    def _held(self, tx: Transaction) -> Batch:
        """Without what no archive holds any more."""
        lost = {one for (one,) in tx.execute(sql.UNARCHIVED, (as_json([*self.archived]),)).fetchall()}
        kept = {self.archived[one] for one in lost}
        unarchived = tx.execute(sql.UNARCHIVED_SEQUENCES, (as_json(self.archived_sequences),)).fetchall()
        lost_sequences = {key for (key,) in unarchived}
        return replace(
            self,
            entries=tuple(one for one in self.entries if one not in lost),
            messages={key: size for key, size in self.messages.items() if key not in kept},
            bodies={key: size for key, size in self.bodies.items() if key not in kept},
            sequences=tuple(one for one in self.sequences if one not in lost_sequences),
        )

    def _deleted(self, tx: Transaction) -> Pruned:
        pruned = Pruned(sequences=_forget(tx, self.sequences))
        if self.ledger:
            dropped_rows = tx.execute(sql.DROP_LEDGER, (as_json(self.ledger),)).rowcount
            pruned = pruned._replace(ledger=dropped_rows)
        if self.plans:
            pruned = pruned._replace(plans=tx.execute(sql.DROP_PLANS, (as_json(self.plans),)).rowcount)
        entries = as_json(self.entries)
        tx.execute(sql.DROP_REPLIES, (entries,))
        tx.execute(sql.DROP_LOOSE, (entries,))
        gone = tx.execute(sql.DROP_ENTRIES, (entries,)).fetchall()
        tx.execute(sql.DROP_LEDGER_OF_ENTRIES, (entries,))
        dropped = tx.execute(sql.DROP_MESSAGES, (as_json([*self.messages]),)).fetchall()
        tx.execute(sql.DROP_HEADERS, (as_json([*self.messages]),))
        tx.execute(sql.DROP_ROUTED, (as_json([*self.messages]),))
        BY_LANE.forget(tx, gone)
        BY_CONNECTION.forget(tx, ((connection, key) for key, connection in dropped))
        freed = tx.execute(sql.FREE_BODIES, {"keys": as_json([*self.bodies]), "now": tx.now}).fetchall()
        size = sum(self.messages[key] for key, _connection in dropped) + sum(self.bodies[key] for (key,) in freed)
        for key, count in Counter(key for key, _number in gone if key is not None).items():
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
            pruned.plans and f"{pruned.plans} ended plans",
        )
        text = ", ".join(part for part in what if part)
        return f"{text}: {self.reason}" if self.reason else text


def batches(
    reader: Reader, kept: KeptOf, now: int, *, actor: str | None = None, reason: str | None = None
) -> Iterator[Batch]:
    """Find what is due at ``now``, in the order in which it goes. Each batch has to be run before the next is asked
    for; or none, to learn what would go. No connection is held between batches."""
    with reader() as db:
        partners = [partner for (partner,) in db.execute(sql.PARTNERS)]
    terms = {partner: kept(partner) for partner in {None, *partners}}
    settled = [now - max(one.settled, GRACE) for one in terms.values() if one.settled is not None]
    ended = [now - one.ended for one in terms.values() if one.ended is not None]
    batch = partial(Batch, actor=actor, reason=reason)
    if settled:
        for due in _due(reader, terms, now, max(settled)):
            yield batch(
                Pruned(
                    messages=sum(not row.only_body for row in due),
                    bodies=sum(row.only_body for row in due),
                    size=sum(row.size for row in due),
                ),
                entries=tuple(row.position for row in due if not row.only_body),
                messages={row.message: row.size for row in due if not row.only_body},
                bodies={row.message: row.size for row in due if row.only_body},
                archived={row.position: row.message for row in due if terms[row.partner].until_archived},
            )
    if ended:
        for over in _over(reader, terms, now, max(ended), max(settled, default=0)):
            yield batch(
                Pruned(sequences=len(over)),
                sequences=tuple(key for key, _partner in over),
                archived_sequences=tuple(key for key, partner in over if terms[partner].until_archived),
            )
    general = terms[None]
    if general.ended is not None and (plans := _ended_plans(reader, now - general.ended)):
        yield batch(Pruned(plans=len(plans)), plans=plans)
    if general.ledger is not None:
        for keys in _old_ledger(reader, now - general.ledger, general.until_archived):
            yield batch(Pruned(ledger=len(keys)), ledger=keys)


class _Due(NamedTuple):
    position: int
    message: int
    settled_at: int
    partner: str | None
    size: int
    only_body: int
    """Its reply is still wanted, and the entry that leads to it."""
    is_archived: int
    policy: str | None
    """The policy of its queue, where programs consume that."""

    def goes(self, term: Kept | None, now: int) -> bool:
        if term is None or term.settled is None or (term.until_archived and not self.is_archived):
            return False
        of_queue = 0
        if self.policy is not None:
            from wsrm_mq.queue.policies import decoded, ms

            policy = decoded(self.policy)
            of_queue = ms(max(policy.retain, policy.dedupe_window))
        return self.settled_at <= now - max(term.settled, GRACE, of_queue)


def _due(reader: Reader, terms: dict[str | None, Kept], now: int, latest: int) -> Iterator[list[_Due]]:
    with reader() as db:
        horizon = _horizon(db, latest)
        if all(term.until_archived for term in terms.values()):
            horizon = min(horizon, db.execute(sql.LAST_ARCHIVED).fetchone()[0])
        bounds = {"after": 0, "horizon": horizon, "latest": latest, "count": BATCH}
    while True:
        with reader() as db:
            rows = [_Due._make(row) for row in db.execute(sql.DUE, bounds)]
        if not rows:
            return
        taken: list[_Due] = []
        size = 0
        for row in rows:
            if row.goes(terms.get(row.partner), now):
                if taken and size + row.size > BATCH_BYTES:
                    break
                taken.append(row)
                size += row.size
            bounds["after"] = row.position
        if taken:
            yield taken


def _over(
    reader: Reader, terms: dict[str | None, Kept], now: int, latest: int, settled: int
) -> Iterator[list[tuple[int, str | None]]]:
    """Keys of sequences, and their partners."""
    for rows in _pages(reader, sql.OVER, {"latest": latest, "settled": settled, "count": SEQUENCES}):
        if over := [(key, partner) for at, key, partner, held in rows if _is_over(terms.get(partner), now - at, held)]:
            yield over


def _old_ledger(reader: Reader, latest: int, until_archived: bool) -> Iterator[tuple[int, ...]]:
    upto = _LARGEST
    if until_archived:
        with reader() as db:
            (upto,) = db.execute(sql.ARCHIVED_LEDGER).fetchone()
    for rows in _pages(reader, sql.OLD_LEDGER, {"latest": latest, "upto": upto, "count": LEDGER}):
        yield tuple(key for _at, key in rows)


def _pages(reader: Reader, statement: str, bounds: Mapping[str, int]) -> Iterator[list[Any]]:
    """The rows of a statement, whose order is that of their first two columns: each page is behind the last."""
    behind = {"at": 0, "key": 0}
    while True:
        with reader() as db:
            rows = db.execute(statement, {**bounds, **behind}).fetchall()
        if not rows:
            return
        behind["at"], behind["key"], *_ = rows[-1]
        yield rows


def _ended_plans(reader: Reader, latest: int) -> tuple[str, ...]:
    """The ended plans of which no sequence is kept. They are few: each is an act of an operator."""
    with reader() as db:
        return tuple(plan for (plan,) in db.execute(sql.OLD_PLANS, (latest,)))


def _is_over(term: Kept | None, age: int, is_archived: int) -> bool:
    if term is None or term.ended is None or (term.until_archived and not is_archived):
        return False
    return age >= term.ended


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
        known = tx.lane(key)
        if known is not None and known.owner is None:
            tx.execute(sql.DROP_LEDGER_OF_LANE, (key,))
            tx.forget_lane(key)
            forgotten += 1
    return forgotten


def forget_instances(tx: Transaction, ended_before: int) -> int:
    """Delete the rows of instances that ended long ago and own nothing."""
    return tx.execute(sql.DROP_OLD_INSTANCES, (ended_before,)).rowcount


def are_old_clients(db: Database, before: int) -> bool:
    """Whether ``forget_clients`` has anything to do."""
    return db.execute(sql.OLD_CLIENTS, {"before": before, "count": 1}).fetchone() is not None


def forget_clients(tx: Transaction, before: int) -> int:
    """Delete up to ``BATCH`` subscriptions that ended ``before``, and as many clients that have none any more. Answers
    how many of either there were at most: fewer than ``BATCH`` were the last."""
    which = {"before": before, "count": BATCH}
    return max(tx.execute(statement, which).rowcount for statement in (sql.DROP_SUBSCRIPTIONS, sql.DROP_CLIENTS))


class Unused(NamedTuple):
    queues: tuple[int, ...]
    newest: tuple[int, int] = (0, 0)
    """Lane and entry at that time: what uses one of them since is behind these."""


def unused_queues(db: Database, made_before: int) -> Unused:
    """Keys of the queues that paths have named, of which nothing is left."""
    if db.execute(sql.OLD_QUEUE, (made_before,)).fetchone() is None:
        return Unused(())
    newest = db.execute(sql.LAST_KEYS).fetchone()
    return Unused(
        tuple(key for (key,) in db.execute(sql.UNUSED_QUEUES, {"before": made_before, "count": BATCH})), newest
    )


def forget_queues(tx: Transaction, unused: Unused) -> int:
    """Delete them, with their dead-letter queues and what was counted of them, but for those that are used again.
    Answers how many."""
    again = {key for (key,) in tx.execute(sql.USED_SINCE, unused.newest).fetchall()}
    keys = as_json([key for key in unused.queues if key not in again])
    below = [key for (key,) in tx.execute(sql.QUEUES_BELOW, (keys,)).fetchall()]
    tx.forget_queues(below)
    gone = [key for (key,) in tx.execute(sql.QUEUES_LEFT, (keys,)).fetchall()]
    tx.forget_queues(gone)
    counted = as_json([*below, *gone])
    tx.execute(sql.KEEP_COUNTS, (counted,))
    tx.execute(sql.DROP_COUNTS, (counted,))
    return len(gone)
