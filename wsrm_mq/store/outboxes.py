"""Statements on the outboxes of clients, as a server knows them."""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, insert, select, update

from wsrm_mq.store.compiling import compiled
from wsrm_mq.store.tables import outbox

p = bindparam

_IS_IT: Final = (outbox.c.principal == p("owner"), outbox.c.lane == p("which"))
OUTBOX_LAST: Final = compiled(select(outbox.c.last).where(*_IS_IT))
MOVE_OUTBOX: Final = compiled(
    update(outbox).where(*_IS_IT).values(last=p("reached"), seen_at=p("now")).returning(outbox.c.last)
)
ADD_OUTBOX: Final = compiled(
    insert(outbox).values(principal=p("owner"), lane=p("which"), last=p("reached"), seen_at=p("now"))
)
