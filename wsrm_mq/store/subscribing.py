"""Statements on who consumes: clients, their subscriptions and the barriers that these get, bindings, and the tokens of
those who use the queues from other machines. Parameters are named."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import and_, delete, func, insert, or_, select, update

from wsrm_mq.store.entries import IS_LIVE
from wsrm_mq.store.queues import QUEUE_COLUMNS
from wsrm_mq.store.sql import absent, adding, changed, compiled, given, p
from wsrm_mq.store.tables import binding, client, entry, header, instance, message, outbox, queue, subscription, token

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


# bindings, on durable subscriptions, and on who has subscribed

_IS_BINDING: Final = and_(given(binding, "queue, pattern"), binding.c.filter.is_not_distinct_from(p("filter")))
BINDINGS: Final = compiled(
    select(*(binding.c.pattern, binding.c.filter), *QUEUE_COLUMNS)
    .join(queue, queue.c.id == binding.c.queue)
    .order_by(binding.c.id)
)
"""Pattern and filter of each binding, and its queue's row."""
BOUND: Final = compiled(select(binding.c.id).where(_IS_BINDING))
BIND: Final = compiled(adding(binding, "id", created_at=p("now")))
UNBIND_ONE: Final = compiled(delete(binding).where(_IS_BINDING))
UNBIND: Final = compiled(delete(binding).where(given(binding, "queue, pattern")).returning(binding.c.id))
UNBIND_ALL: Final = compiled(delete(binding).where(given(binding, "queue")))
LOGS: Final = compiled(
    select(*QUEUE_COLUMNS).where(queue.c.name.like("%#retained"), queue.c.policy.is_not(None)).order_by(queue.c.id)
)
EVENTS: Final = compiled(
    select(header.c.topic, func.count(entry.c.message.distinct()), func.max(message.c.received_at))
    .select_from(queue)
    .join(entry, entry.c.queue == queue.c.id)
    .join(message, message.c.id == entry.c.message)
    .join(header, header.c.message == message.c.id)
    .where(
        *(queue.c.name.like("%#retained"), entry.c.priority.is_not(None), entry.c.outcome.is_(None)),
        or_(entry.c.expires_at.is_(None), entry.c.expires_at > p("now")),
        func.substr(header.c.topic, 1, func.length(p("begins"))) == p("begins"),
    )
    .group_by(header.c.topic)
    .order_by(header.c.topic)
)
"""The topics that begin so of what is retained: of each the number of messages, and when the last was stored."""
TO_COPY: Final = compiled(
    select(*(message.c.id, queue.c.name, message.c.action, message.c.environ, header.c.message.is_not(None)))
    .select_from(entry.join(message, message.c.id == entry.c.message))
    .join(queue, queue.c.id == func.coalesce(entry.c.origin, entry.c.queue))
    .outerjoin(header, header.c.message == message.c.id)
    .where(entry.c.id == p("key"), message.c.body.is_not(None))
)
"""The facts about a message that is copied: its key, its endpoint, its action, its request, and whether it has a
header."""
BODY: Final = compiled(select(message.c.body).where(message.c.id == p("key")))
DROP_HEADER: Final = compiled(delete(header).where(header.c.message == p("key")))
DROP_MESSAGE: Final = compiled(delete(message).where(message.c.id == p("key")))

_IS_DURABLE: Final = and_(
    *(given(subscription, "queue"), subscription.c.pattern.is_not(None), subscription.c.ended_at.is_(None))
)
DURABLE: Final = compiled(select(subscription.c.pattern, subscription.c.filter).where(_IS_DURABLE))
_NO_CREDIT: Final[dict[str, Any]] = {"asked": 0, "granted": 0, "lease": None, "acknowledges": "each"}
ADD_DURABLE: Final = compiled(
    adding(subscription, "id", "barrier", "beside", **_NO_CREDIT, created_at=p("now"), seen_at=p("now"), ended_at=None)
)
SET_DURABLE: Final = compiled(update(subscription).where(_IS_DURABLE).values(client=p("client"), seen_at=p("now")))
SET_COLLECTED: Final = compiled(update(subscription).where(_IS_DURABLE).values(filter=p("filter")))
END_DURABLE: Final = compiled(update(subscription).where(_IS_DURABLE).values(ended_at=p("now")))
CLIENTS: Final = compiled(
    select(
        *(client.c.id, client.c.name, instance.c.name, instance.c.pid, client.c.seen_at),
        func.coalesce(client.c.ended_at, instance.c.ended_at),
    )
    .join(instance, instance.c.id == client.c.instance)
    .order_by(client.c.id)
)
SUBSCRIBED: Final = compiled(
    select(subscription.c.client, queue.c.name, subscription.c.pattern, subscription.c.beside)
    .join(queue, queue.c.id == subscription.c.queue)
    .where(subscription.c.ended_at.is_(None), subscription.c.client.is_not(None))
    .order_by(subscription.c.id)
)
"""Client, queue and pattern of each subscription that has not ended, and the keys of its other queues."""


# tokens, and how far their outboxes are known

TOKENS: Final = compiled(select(*token.columns).order_by(token.c.name))
TOKEN: Final = compiled(select(*token.columns).where(given(token, "name")))
TOKEN_OF_CERTIFICATE: Final = compiled(select(token.c.name).where(given(token, "certificate")))
ADD_TOKEN: Final = compiled(adding(token, "used_at"))
DROP_TOKEN: Final = compiled(delete(token).where(given(token, "name")).returning(token.c.name))
TOKEN_USED: Final = compiled(update(token).where(given(token, "name")).values(used_at=p("at")))
_IS_IT: Final = (outbox.c.principal == p("owner"), outbox.c.lane == p("which"))
OUTBOX_LAST: Final = compiled(select(outbox.c.last).where(*_IS_IT))
MOVE_OUTBOX: Final = compiled(
    update(outbox).where(*_IS_IT).values(last=p("reached"), seen_at=p("now")).returning(outbox.c.last)
)
ADD_OUTBOX: Final = compiled(
    insert(outbox).values(principal=p("owner"), lane=p("which"), last=p("reached"), seen_at=p("now"))
)
