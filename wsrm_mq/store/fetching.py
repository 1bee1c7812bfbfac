"""Messages and acknowledgements that wait to be fetched (WS-MakeConnection), by the address that they are for."""

from __future__ import annotations

from typing import Final

from sqlalchemy import and_, not_, or_, select, update

from wsrm_mq.store.channels import IS_TAKEN
from wsrm_mq.store.entries import IS_LIVE, changed_if_live
from wsrm_mq.store.port import Database
from wsrm_mq.store.running import is_paused
from wsrm_mq.store.sql import changing, compiled, given, of, p
from wsrm_mq.store.tables import channel, entry, lane, message, sequence

FORGOTTEN: Final = "not_fetched"
"""Reason of what was not fetched in time."""

_first = lane.alias()
_FIRST_PEER: Final = (
    select(_first.c.peer)
    .join_from(channel, _first, _first.c.id == channel.c.lane)
    .where(given(channel, "address"), _first.c.principal.is_(None))
    .order_by(_first.c.id)
    .limit(1)
    .scalar_subquery()
)
_IS_THEIRS: Final = and_(
    lane.c.principal.is_not_distinct_from(p("principal")),
    or_(
        lane.c.principal.is_not(None),
        lane.c.peer.is_not_distinct_from(p("peer")),
        lane.c.peer.is_not_distinct_from(_FIRST_PEER),
    ),
)
"""An address belongs to one principal (MC-019). Where there is none, it has what was created from where the poll comes,
and what is of the first for whom something was put there: a client may move, and a stranger may name its address."""

WAITING: Final = compiled(
    select(entry.c.id, entry.c.number, *of(channel, "answers, outbound, is_numbered"))
    .join_from(channel, lane, lane.c.id == channel.c.lane)
    .join(entry, entry.c.lane == lane.c.id)
    .where(
        *(given(channel, "address"), _IS_THEIRS, lane.c.cursor < lane.c.limit, IS_LIVE),
        not_(is_paused(entry.c.retry_from, entry.c.retry_at, p("now"))),
    )
    .order_by(entry.c.id)
    .limit(p("count"))
)
"""The messages that wait to be fetched from an address, the oldest first. Addresses are the same character by character
(MC-003)."""
ACKNOWLEDGEMENTS: Final = compiled(
    select(sequence.c.lane)
    .join(lane, lane.c.id == sequence.c.lane)
    .where(sequence.c.acks_fetched_by == p("address"), sequence.c.ack_waits == 1, _IS_THEIRS)
    .order_by(sequence.c.lane)
    .limit(p("count"))
)
"""The keys of sequences of which an acknowledgement waits at the address."""
ENVELOPE: Final = compiled(select(message.c.environ, message.c.body).where(message.c.id == p("key")))
LEND: Final = changed_if_live(deliveries=entry.c.deliveries + 1, retry_from=p("now"), retry_at=p("until"))
"""Lend a message to a request: no other request gets it before ``:until``."""
WAITER: Final = compiled(select(entry.c.waiter).where(entry.c.id == p("key")))
"""The name of the instance in which a request waits for the message."""
TAKEN: Final = compiled(changing(entry, **IS_TAKEN).where(IS_LIVE).returning(entry.c.lane))
FORGET: Final = compiled(
    update(entry)
    .where(given(entry, "lane"), IS_LIVE)
    .values(outcome="discarded", reason=FORGOTTEN, settled_at=p("now"), retry_at=None)
)


def is_anything_waiting(db: Database, address: str, principal: str | None, peer: str | None, now: int) -> bool:
    """Asked before a transaction is begun: one who polls for what is not there costs a look (SEC-029)."""
    who = {"address": address, "principal": principal, "peer": peer, "count": 1}
    if db.execute(WAITING, {**who, "now": now}).fetchone() is not None:
        return True
    return db.execute(ACKNOWLEDGEMENTS, who).fetchone() is not None
