"""Replies of the application, and what a request is answered with once its message is settled."""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, insert, select

from wsrm_mq.store.compiling import compiled
from wsrm_mq.store.tables import entry, reply

__all__ = ["ADD_REPLY", "OUTCOME_AND_REPLY"]

ADD_REPLY: Final = compiled(insert(reply).values({column.name: bindparam(column.name) for column in reply.columns}))
OUTCOME_AND_REPLY: Final = compiled(
    select(
        *(entry.c.outcome, entry.c.sequence),
        *(reply.c[name] for name in ("status", "headers", "body", "number", "letter")),
    )
    .join(reply, reply.c.entry == entry.c.id, isouter=True)
    .where(entry.c.id == bindparam("key"))
)
