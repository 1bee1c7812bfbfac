"""Statements on journals. ``:keys`` is a JSON list of positions."""

from __future__ import annotations

from typing import Final

from sqlalchemy import case, exists, func, insert, select

from wsrm_mq.store.entries import IS_LIVE
from wsrm_mq.store.sql import adding, compiled, given, listed, of, p
from wsrm_mq.store.tables import entry, header, message, queue

_recorded: Final = entry.alias("recorded")
_last: Final = entry.alias("last")
_again: Final = entry.alias("again")
_journal: Final = queue.alias("journal")
_home: Final = func.coalesce(_recorded.c.origin, _recorded.c.queue)
_REPLAY: Final = (
    select(func.max(_again.c.id))
    .where(
        *(_again.c.message == _recorded.c.message, _again.c.replay_of.is_not(None), _again.c.id > _recorded.c.id),
        func.coalesce(_again.c.origin, _again.c.queue) == _home,
    )
    .correlate(_recorded)
    .scalar_subquery()
)
_CAME_TO: Final = case((_recorded.c.reason == "replayed", func.coalesce(_REPLAY, _recorded.c.id)), else_=_recorded.c.id)
RECORDED: Final = compiled(
    select(*(entry.c.id, queue.c.name, entry.c.journal_of), *of(_last, "outcome, reason, settled_at"))
    .select_from(entry)
    .join(_journal, _journal.c.id == entry.c.queue)
    .outerjoin(_recorded, _recorded.c.id == entry.c.journal_of)
    .outerjoin(_last, _last.c.id == _CAME_TO)
    .join(queue, queue.c.id == func.coalesce(_home, _journal.c.parent))
    .where(entry.c.id.in_(listed("keys")))
)
"""The entries that those of a journal, ``:keys``, record: the queue that each came into, and its outcome, or that of
its last replay. One that is not there is of an express message, and has no outcome yet."""
REPORTED: Final = compiled(
    select(header.c.report_to, queue.c.name, message.c.message_id)
    .select_from(entry)
    .join(message, message.c.id == entry.c.message)
    .join(header, header.c.message == entry.c.message)
    .join(queue, queue.c.id == func.coalesce(entry.c.origin, entry.c.queue))
    .where(entry.c.id == p("key"))
)
"""The facts in a report on the entry ``:key``, and the name of the queue that has it."""
IS_RECORDED: Final = compiled(
    select(entry.c.id).where(given(entry, "message, queue"), entry.c.journal_of == p("position"))
)
ADD_MESSAGE: Final = compiled(adding(message, "principal", "connection", environ="{}"))
"""Add an express message under the key that it has in the memory of its process."""
IS_KEPT: Final = compiled(
    select(message.c.id).where(message.c.id == p("key"), ~exists().where(entry.c.id == p("key")).correlate(message))
)
"""Whether the express message ``:key`` is recorded, and has no outcome yet."""
PUT_BACK: Final = compiled(
    insert(entry).values(
        {name: p(name) for name in ("id", "queue", "priority", "deliveries", "failures", "cancels", "last_error")}
        | {"message": p("id")}
    )
)
"""Add the entry that an express message has in its queue, once it is settled or lost."""
EXPRESS: Final = compiled(
    select(entry.c.id, message.c.id, message.c.body_size, entry.c.priority)
    .select_from(entry)
    .join(message, message.c.id == entry.c.journal_of)
    .outerjoin(_recorded, _recorded.c.id == entry.c.journal_of)
    .where(entry.c.queue == p("journal"), entry.c.priority.is_not(None), IS_LIVE)
    .where(_recorded.c.id.is_(None), entry.c.id > p("after"))
    .order_by(entry.c.id)
    .limit(p("count"))
)
"""The express messages that the journal ``:journal`` has behind its entry ``:after``, and that are not settled."""
LOST: Final = compiled(
    select(entry.c.id)
    .join(queue, queue.c.id == entry.c.queue)
    .where(queue.c.parent == p("queue"), queue.c.kind == "dead_letter")
    .where(entry.c.outcome == "dead", entry.c.reason == "express_lost", entry.c.owner.is_(None))
    .order_by(entry.c.id)
    .limit(p("count"))
)
"""The dead letters of the queue ``:queue`` that were lost with the process that kept them."""
