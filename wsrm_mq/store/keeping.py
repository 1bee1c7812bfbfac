"""Statements on the instances that keep the express messages of queues. Parameters are named."""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, select, update

from wsrm_mq.store.compiling import compiled
from wsrm_mq.store.tables import instance, queue

p = bindparam

KEEP: Final = compiled(update(queue).where(queue.c.id == p("key")).values(keeper=p("keeper")))
_KEPT: Final = select(queue.c.name, queue.c.keeper, instance.c.name, instance.c.pid).outerjoin(
    instance, instance.c.id == queue.c.keeper
)
KEEPERS: Final = compiled(_KEPT.where(queue.c.keeper.is_not(None)).order_by(queue.c.id))
KEEPER: Final = compiled(_KEPT.where(queue.c.id == p("key"), queue.c.keeper.is_not(None)))
KEPT_BY: Final = compiled(select(queue.c.id, queue.c.name).where(queue.c.keeper == p("keeper")).order_by(queue.c.id))
