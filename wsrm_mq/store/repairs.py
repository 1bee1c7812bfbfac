"""Statements of an operator's repairs: messages are put aside, restored, confirmed, and delivered again."""

from __future__ import annotations

from typing import Final

from sqlalchemy import case, select

from wsrm_mq.store.late_index import OF_LANE
from wsrm_mq.store.sql import changed, changing, compiled, given, of, p
from wsrm_mq.store.tables import entry, lane, ledger, message

STORED: Final = compiled(
    select(
        *of(entry, "lane, queue, origin, number, outcome, reason, retry_at, confirmed_at, message, wants_reply"),
        *(message.c.body_size, entry.c.failures, entry.c.cancels),
        message.c.body.is_not(None),
    )
    .join(message, message.c.id == entry.c.message)
    .where(entry.c.id == p("key"))
)
REPLAY_OF: Final = compiled(
    select(entry.c.id).where(given(entry, "message"), entry.c.replay_of == p("key")).order_by(entry.c.id.desc())
)
WITHDRAW_DEAD_LETTER: Final = compiled(
    changing(entry, outcome="discarded", reason=p("reason"), settled_at=p("now")).where(entry.c.outcome == "dead")
)
_DIED: Final = (
    select(ledger.c.reason, ledger.c.at)
    .where(ledger.c.position == p("key"), ledger.c.event == "dead")
    .order_by(ledger.c.id.desc())
    .limit(1)
)
RESTORE_DEAD_LETTER: Final = compiled(
    changing(
        entry,
        outcome="dead",
        reason=_DIED.with_only_columns(ledger.c.reason).scalar_subquery(),
        settled_at=_DIED.with_only_columns(ledger.c.at).scalar_subquery(),
        confirmed_at=None,
    ).where(entry.c.outcome == "discarded")
)
UNSETTLE: Final = compiled(
    changing(entry, outcome=None, reason=None, settled_at=None).where(entry.c.outcome == "discarded")
)
COUNT_ON: Final = changed(entry, failures=p("failures"), cancels=p("cancels"))
CONFIRM: Final = changed(entry, confirmed_at=p("now"))
DELIVERED_BEYOND: Final = f"""
SELECT e.id FROM {OF_LANE} i JOIN entry e ON e.id = i.entry
WHERE i.number > :number AND (e.outcome = 'delivered' OR e.reason = 'replayed') LIMIT 1
"""
"""A row if a sequence has delivered a number above ``:number``, or its replay was entered."""
REPLAYS_OF: Final = compiled(
    select(lane.c.id)
    .where(
        *(lane.c.replay_of == p("lane"), given(lane, "queue"), lane.c.plan.is_not_distinct_from(p("plan"))),
        case((lane.c.served_at.is_(None), 0), else_=1) == p("consumed"),
    )
    .order_by(lane.c.id.desc())
    .limit(1)
)
"""The lane that a lane's messages are replayed in: by a plan, or by none."""
