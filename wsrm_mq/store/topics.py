"""Statements on bindings, on durable subscriptions, and on who has subscribed."""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, delete, insert, select, update

from wsrm_mq.store.compiling import compiled
from wsrm_mq.store.tables import binding, client, header, instance, message, queue, subscription

p = bindparam

_IS_BINDING: Final = (
    *(binding.c.queue == p("queue"), binding.c.pattern == p("pattern")),
    binding.c.filter.is_not_distinct_from(p("filter")),
)
BINDINGS: Final = compiled(
    select(
        *(binding.c.pattern, binding.c.filter, queue.c.id, queue.c.name, queue.c.kind, queue.c.parent),
        *(queue.c.application, queue.c.policy),
    )
    .join(queue, queue.c.id == binding.c.queue)
    .order_by(binding.c.id)
)
"""Pattern and filter of each binding, and its queue's row."""
BOUND: Final = compiled(select(binding.c.id).where(*_IS_BINDING))
BIND: Final = compiled(
    insert(binding).values(queue=p("queue"), pattern=p("pattern"), filter=p("filter"), created_at=p("now"))
)
UNBIND_ONE: Final = compiled(delete(binding).where(*_IS_BINDING))
UNBIND: Final = compiled(
    delete(binding).where(binding.c.queue == p("queue"), binding.c.pattern == p("pattern")).returning(binding.c.id)
)
UNBIND_ALL: Final = compiled(delete(binding).where(binding.c.queue == p("queue")))
DROP_HEADER: Final = compiled(delete(header).where(header.c.message == p("key")))
DROP_MESSAGE: Final = compiled(delete(message).where(message.c.id == p("key")))

_IS_DURABLE: Final = (
    subscription.c.queue == p("queue"),
    *(subscription.c.pattern.is_not(None), subscription.c.ended_at.is_(None)),
)
DURABLE: Final = compiled(select(subscription.c.pattern, subscription.c.filter).where(*_IS_DURABLE))
ADD_DURABLE: Final = compiled(
    insert(subscription).values(
        name=p("name"),
        client=p("client"),
        queue=p("queue"),
        pattern=p("pattern"),
        filter=p("filter"),
        asked=0,
        granted=0,
        lease=None,
        acknowledges="each",
        created_at=p("now"),
        seen_at=p("now"),
        ended_at=None,
    )
)
SET_DURABLE: Final = compiled(
    update(subscription)
    .where(*_IS_DURABLE)
    .values(client=p("client"), pattern=p("new_pattern"), filter=p("filter"), seen_at=p("now"))
)
END_DURABLE: Final = compiled(update(subscription).where(*_IS_DURABLE).values(ended_at=p("now")))

CLIENTS: Final = compiled(
    select(client.c.id, client.c.name, instance.c.name, instance.c.pid, client.c.seen_at, instance.c.ended_at)
    .join(instance, instance.c.id == client.c.instance)
    .order_by(client.c.id)
)
SUBSCRIBED: Final = compiled(
    select(subscription.c.client, queue.c.name, subscription.c.pattern)
    .join(queue, queue.c.id == subscription.c.queue)
    .where(subscription.c.ended_at.is_(None), subscription.c.client.is_not(None))
    .order_by(subscription.c.id)
)
"""Client, queue and pattern of each subscription that has not ended."""
