"""A look at the whole store, for ``status`` and ``check``, and what pruning it would free."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from wsrm_mq.cli.output import Column, key, when
from wsrm_mq.cli.place import Place, now_ms, unconfirmed

if TYPE_CHECKING:
    from wsrm_mq.queue.retention import Kept, KeptOf, Pruned
    from wsrm_mq.store.port import Database
    from wsrm_mq.views.overview import Room, Sight


INSTANCE: Final = (key("instance", "name"), "host", Column("process", of="pid"), when("since", "started_at"))
"""The columns of a process that uses the store."""

# The room that pruning would free: for ``store prune``, and for an operator who is told that there is none.

AGES: Final = (("P7D", 7 * 86_400_000), ("P1D", 86_400_000), ("PT1H", 3_600_000), ("PT1M", 60_000))
"""Ages to name, the longest first. What was settled in the last minute stays."""
WORTH: Final = 0.1
"""A share of the store that is worth a command: an age that frees less is passed over for a shorter one."""
LOOKED_AT: Final = 50
"""Batches of an age: an answer may not take long."""


def kept_as(place: Place, kept: Kept) -> KeptOf:
    """``kept`` by every partner, each as its configuration has it until it is archived."""
    settings = place.settings

    def of(partner: str | None) -> Kept:
        policy = settings.policy(settings.partners.get(partner or ""))
        return kept._replace(until_archived=policy.retain_until_archived)

    return of


def lent(db: Database) -> Callable[[], Any]:
    """A function that gives ``db`` to each of several reads."""

    @contextmanager
    def reader() -> Iterator[Database]:
        yield db

    return reader


def expected(db: Database, kept: KeptOf, now: int, most: int | None = None) -> Pruned:
    """Find what would be pruned, in ``most`` batches; ``None``: in all."""
    from wsrm_mq.queue.retention import Pruned, batches

    found = Pruned()
    for batch in islice(batches(lent(db), kept, now), most):
        found = found.plus(batch.expected)
    return found


def room(place: Place, db: Database, now: int, used: int) -> Room:
    """The room that pruning would make in a store that uses ``used`` bytes, and the age that it prunes by."""
    from wsrm_mq.queue.retention import Kept
    from wsrm_mq.views.overview import Room

    best = Room()
    for text, age in AGES:
        found = expected(db, kept_as(place, Kept(age, None)), now, LOOKED_AT)
        if found.size > best.size or (found.messages and not best.older_than):
            best = Room(text, found.messages, found.size)
        if best.size >= used * WORTH:
            break
    return best


LOCK_SECONDS: Final = 1.0
"""How long it tries to get the write lock, in seconds: services hold it for much less."""


def see(place: Place, db: Database) -> Sight:
    from wsrm_mq.store.driver import snapshot
    from wsrm_mq.store.sqlite.connection import why_not_written
    from wsrm_mq.views.overview import Sight, overview, verdicts
    from wsrm_mq.views.rows import plans

    now = now_ms()
    with snapshot(db):
        at, judged, doubt, replays = overview(db, now), verdicts(db, now), unconfirmed(place, db), plans(db)
    waits = [one.retain for one in place.settings.policies() if one.retain_until_archived and one.retain is not None]
    sight = Sight(
        *(now, at, judged, why_not_written(db, LOCK_SECONDS), doubt, replays, place.settings.max_store),
        archive_within=min(waits, default=None),
    )
    return sight._replace(room=room(place, db, now, at.used_bytes)) if sight.lacks_room else sight
