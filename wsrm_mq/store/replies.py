"""Replies of the application, and what a request is answered with once its message is settled."""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, func, insert, select

from wsrm_mq.store.compiling import compiled
from wsrm_mq.store.tables import entry, reply

ADD_REPLY: Final = compiled(insert(reply).values({column.name: bindparam(column.name) for column in reply.columns}))
HAS_REPLY: Final = compiled(select(reply.c.entry).where(reply.c.entry == bindparam("entry")))
OUTCOME_AND_REPLY: Final = compiled(
    select(
        *(entry.c.outcome, entry.c.lane, entry.c.number),
        *(reply.c[name] for name in ("status", "headers", "body", "number", "outgoing_entry")),
    )
    .join(reply, reply.c.entry == entry.c.id, isouter=True)
    .where(entry.c.id == bindparam("key"))
)

_NUMBERS: Final = func.pairs_in(bindparam("numbers")).table_valued("lower", "upper")
ANSWERED_WITH: Final = compiled(
    select(entry.c.number)
    .select_from(_NUMBERS)
    .join(reply, reply.c.number.between(_NUMBERS.c.lower, _NUMBERS.c.upper))
    .join(entry, entry.c.id == reply.c.entry)
    .where(reply.c.outbound == bindparam("outbound"), reply.c.outgoing_entry.is_(None))
)
"""The numbers of the requests whose replies have left on a response, with ``:numbers`` of ``:outbound``: a JSON
list of [lower, upper]."""
