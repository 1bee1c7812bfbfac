"""Statements on clients and their subscriptions."""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, insert, select, update

from wsrm_mq.store.compiling import compiled
from wsrm_mq.store.tables import client, subscription

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
ADD_SUBSCRIPTION: Final = compiled(
    insert(subscription)
    .values(
        {
            column.name: p(column.name)
            for column in subscription.columns
            if column.name not in ("id", "ended_at", "created_at", "seen_at", "pattern")
        }
        | {"created_at": p("now"), "seen_at": p("now")}
    )
    .returning(subscription.c.id)
)
SET_FILTER: Final = compiled(update(subscription).where(subscription.c.id == p("key")).values(filter=p("filter")))
END_SUBSCRIPTION: Final = compiled(update(subscription).where(subscription.c.id == p("key")).values(ended_at=p("now")))
