"""Statements on barriers. Parameters are named."""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, func, or_, select, update

from wsrm_mq.store.compiling import compiled
from wsrm_mq.store.tables import client, entry, instance, subscription

p = bindparam

FIRST_BARRIER: Final = compiled(
    select(func.min(entry.c.id)).where(
        *(entry.c.hold == "barrier", entry.c.outcome.is_(None), entry.c.queue == p("queue"))
    )
)
UNSETTLED_BEFORE: Final = compiled(
    select(entry.c.id)
    .where(
        *(entry.c.queue == p("queue"), entry.c.id < p("position")),
        *(entry.c.priority.is_not(None), entry.c.outcome.is_(None)),
    )
    .limit(1)
)
_OF_QUEUE: Final = (
    *(subscription.c.queue == p("queue"), subscription.c.ended_at.is_(None)),
    subscription.c.pattern.is_(None),
)
SUBSCRIBED_WITHOUT: Final = compiled(
    select(subscription.c.id, instance.c.name)
    .join(client, client.c.id == subscription.c.client)
    .join(instance, instance.c.id == client.c.instance)
    .where(
        *(*_OF_QUEUE, instance.c.ended_at.is_(None)),
        or_(subscription.c.barrier.is_(None), subscription.c.barrier < p("position")),
    )
)
"""Subscriptions of a queue that have not ended and that have not had the barrier at a position, with their
instances."""
HAD: Final = compiled(update(subscription).where(subscription.c.id == p("key")).values(barrier=p("position")))
WAS_HAD: Final = compiled(select(subscription.c.id).where(*_OF_QUEUE, subscription.c.barrier >= p("position")).limit(1))
