"""Statements on the way of a message over nodes. Parameters are named."""

from __future__ import annotations

from typing import Final

from sqlalchemy import and_, not_, select

from wsrm_mq.store.applications import INTAKE
from wsrm_mq.store.published import messages
from wsrm_mq.store.sql import compiled, given, of, p
from wsrm_mq.store.tables import arrived, queue, routed

_m: Final = messages.c
_ORIGIN: Final = "node, incarnation, position"
_STOP: Final = select(
    *of(messages, "hop, target, queue, origin, position, state, reason, received_at, settled_at"),
    *of(messages, "consumer, holder, last_error"),
)
STOPS: Final = compiled(
    _STOP.where(
        _m.message.in_(select(routed.c.message).where(given(routed, _ORIGIN))),
        _m.journal_of.is_(None),
        # Another entry has it since: it was tried again, or goes by another route.
        not_(and_(_m.outcome.is_not_distinct_from("discarded"), _m.reason.is_not_distinct_from("replayed"))),
    ).order_by(_m.position)
)
"""Where a message lies, or lay, that was put at a node."""
UNPLACED: Final = compiled(
    _STOP.where(*(_m.queue == INTAKE, _m.priority.is_not(None), _m.outcome.is_(None), _m.message_id == p("message_id")))
)
"""The envelope that it has come in, while that waits for its place."""
AT: Final = compiled(_STOP.add_columns(_m.trace).where(_m.position == p("position")))
_came_at: Final = select(arrived.c.at).where(arrived.c.queue == queue.c.id, given(arrived, _ORIGIN)).scalar_subquery()
CAME: Final = compiled(select(queue.c.name, _came_at).where(_came_at.is_not(None)))
"""The queues that it has come into, as far as they know it yet."""
