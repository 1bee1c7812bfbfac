"""Statements on clients, their subscriptions, and the barriers that these get. Parameters are named."""

from __future__ import annotations

from typing import Final

from sqlalchemy import and_, func, or_, select, update

from wsrm_mq.store.entries import IS_LIVE
from wsrm_mq.store.sql import absent, adding, changed, compiled, given, p
from wsrm_mq.store.tables import client, entry, instance, subscription

CLIENT: Final = compiled(select(client.c.id).where(given(client, "instance, name"), client.c.ended_at.is_(None)))
ADD_CLIENT: Final = compiled(
    adding(client, "id", started_at=p("now"), seen_at=p("now"), ended_at=None).returning(client.c.id)
)
END_CLIENT: Final = compiled(
    update(client)
    .where(given(client, "instance"), client.c.name == p("who"), client.c.ended_at.is_(None))
    .values(ended_at=p("now"))
)
ADD_SUBSCRIPTION: Final = compiled(
    adding(subscription, "id", "ended_at", "pattern", "barrier", created_at=p("now"), seen_at=p("now")).returning(
        subscription.c.id
    )
)
OTHER_LOADS: Final = compiled(
    select(
        select(func.count())
        .where(
            *(entry.c.owner == client.c.instance, entry.c.leased_until.is_not(None)),
            entry.c.lessee == subscription.c.id,
        )
        .correlate(client, subscription)
        .scalar_subquery(),
        subscription.c.granted,
    )
    .select_from(subscription)
    .join(client, client.c.id == subscription.c.client)
    .join(instance, instance.c.id == client.c.instance)
    .where(
        given(subscription, "queue"),
        absent(subscription, "ended_at, filter"),
        *(client.c.instance != p("instance"), instance.c.ended_at.is_(None)),
    )
)
"""The subscriptions of other instances to all of a queue: how many messages each has leased, and may have."""
SET_FILTER: Final = changed(subscription, filter=p("filter"))
END_SUBSCRIPTION: Final = changed(subscription, ended_at=p("now"))
FIRST_BARRIER: Final = compiled(
    select(func.min(entry.c.id)).where(entry.c.hold == "barrier", IS_LIVE, given(entry, "queue"))
)
UNSETTLED_BEFORE: Final = compiled(
    select(entry.c.id)
    .where(given(entry, "queue"), entry.c.id < p("position"), entry.c.priority.is_not(None), IS_LIVE)
    .limit(1)
)
_OF_QUEUE: Final = and_(given(subscription, "queue"), absent(subscription, "ended_at, pattern"))
SUBSCRIBED_WITHOUT: Final = compiled(
    select(subscription.c.id, instance.c.name)
    .join(client, client.c.id == subscription.c.client)
    .join(instance, instance.c.id == client.c.instance)
    .where(
        *(_OF_QUEUE, instance.c.ended_at.is_(None)),
        or_(subscription.c.barrier.is_(None), subscription.c.barrier < p("position")),
    )
)
"""Subscriptions of a queue that have not ended and that have not had the barrier at a position, with their
instances."""
HAD: Final = changed(subscription, barrier=p("position"))
WAS_HAD: Final = compiled(select(subscription.c.id).where(_OF_QUEUE, subscription.c.barrier >= p("position")).limit(1))
