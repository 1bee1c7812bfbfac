"""What waits to be fetched (WS-MakeConnection), by the address that it is for."""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, not_, select, update

from wsrm_mq.store.compiling import compiled
from wsrm_mq.store.port import Database
from wsrm_mq.store.running import is_paused
from wsrm_mq.store.tables import channel, entry, message, sequence

__all__ = [
    "ACKNOWLEDGEMENTS",
    "ENVELOPE",
    "FORGET",
    "FORGOTTEN",
    "LEND",
    "TAKEN",
    "WAITER",
    "WAITING",
    "is_anything_waiting",
]

FORGOTTEN: Final = "not_fetched"
"""Reason of what was not fetched in time."""

p = bindparam

WAITING: Final = compiled(
    select(entry.c.id, entry.c.number, channel.c.answers, channel.c.is_numbered)
    .join_from(channel, sequence, sequence.c.id == channel.c.sequence)
    .join(entry, entry.c.sequence == sequence.c.id)
    .where(
        channel.c.address == p("address"),
        sequence.c.principal.is_not_distinct_from(p("principal")),
        sequence.c.cursor < sequence.c.limit,
        entry.c.outcome.is_(None),
        not_(is_paused(entry.c.retry_from, entry.c.retry_at, p("now"))),
    )
    .order_by(entry.c.id)
    .limit(p("count"))
)
"""The oldest first. Addresses are the same character by character (MC-003), and belong to one principal (MC-019)."""
ACKNOWLEDGEMENTS: Final = compiled(
    select(sequence.c.id)
    .where(
        sequence.c.acks_fetched_by == p("address"),
        sequence.c.ack_waits == 1,
        sequence.c.principal.is_not_distinct_from(p("principal")),
    )
    .order_by(sequence.c.id)
    .limit(p("count"))
)
"""The keys of sequences of which one waits there."""
ENVELOPE: Final = compiled(select(message.c.environ, message.c.body).where(message.c.id == p("key")))
LEND: Final = compiled(
    update(entry)
    .where(entry.c.id == p("key"), entry.c.outcome.is_(None))
    .values(deliveries=entry.c.deliveries + 1, retry_from=p("now"), retry_at=p("until"))
)
"""It is on its way: until then no other request gets it."""
WAITER: Final = compiled(select(entry.c.waiter).where(entry.c.id == p("key")))
"""Where a request waits for it."""
TAKEN: Final = compiled(
    update(entry)
    .where(entry.c.id == p("key"), entry.c.outcome.is_(None))
    .values(outcome="delivered", settled_at=p("now"), retry_at=None)
    .returning(entry.c.sequence)
)
FORGET: Final = compiled(
    update(entry)
    .where(entry.c.sequence == p("sequence"), entry.c.outcome.is_(None))
    .values(outcome="discarded", reason=FORGOTTEN, settled_at=p("now"), retry_at=None)
)


def is_anything_waiting(db: Database, address: str, principal: str | None, now: int) -> bool:
    """Asked before a transaction is begun: one who polls for what is not there costs a look (SEC-029)."""
    who = {"address": address, "principal": principal, "count": 1}
    if db.execute(WAITING, {**who, "now": now}).fetchone() is not None:
        return True
    return db.execute(ACKNOWLEDGEMENTS, who).fetchone() is not None
