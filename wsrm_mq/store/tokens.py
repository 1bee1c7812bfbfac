"""Statements on those who use the queues from other machines: their tokens, and how far their outboxes are known."""

from __future__ import annotations

from typing import Final

from sqlalchemy import delete, insert, select, update

from wsrm_mq.store.sql import adding, compiled, given, p
from wsrm_mq.store.tables import outbox, token

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
