"""Statements on clients and their subscriptions."""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, func, insert, select, update

from wsrm_mq.store.compiling import compiled
from wsrm_mq.store.tables import client, entry, instance, subscription

p = bindparam

CLIENT: Final = compiled(
    select(client.c.id).where(
        client.c.instance == p("instance"), client.c.name == p("name"), client.c.ended_at.is_(None)
    )
)
ADD_CLIENT: Final = compiled(
    insert(client)
    .values(name=p("name"), instance=p("instance"), started_at=p("now"), seen_at=p("now"), ended_at=None)
    .returning(client.c.id)
)
END_CLIENT: Final = compiled(
    update(client)
    .where(client.c.instance == p("instance"), client.c.name == p("who"), client.c.ended_at.is_(None))
    .values(ended_at=p("now"))
)
ADD_SUBSCRIPTION: Final = compiled(
    insert(subscription)
    .values(
        {
            column.name: p(column.name)
            for column in subscription.columns
            if column.name not in ("id", "ended_at", "created_at", "seen_at", "pattern", "barrier")
        }
        | {"created_at": p("now"), "seen_at": p("now")}
    )
    .returning(subscription.c.id)
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
    .select_from(
        subscription.join(client, client.c.id == subscription.c.client).join(
            instance, instance.c.id == client.c.instance
        )
    )
    .where(
        *(subscription.c.queue == p("queue"), subscription.c.ended_at.is_(None), subscription.c.filter.is_(None)),
        *(client.c.instance != p("instance"), instance.c.ended_at.is_(None)),
    )
)
"""The subscriptions of other instances to all of a queue: how many messages each has leased, and may have."""
SET_FILTER: Final = compiled(update(subscription).where(subscription.c.id == p("key")).values(filter=p("filter")))
END_SUBSCRIPTION: Final = compiled(update(subscription).where(subscription.c.id == p("key")).values(ended_at=p("now")))
