"""Statements on the requests of an RM Source, as its program asks for them. Parameters are named."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import and_, func, select

from wsrm_mq.store.entries import IS_LIVE
from wsrm_mq.store.outbound import HAS_REQUESTS
from wsrm_mq.store.sql import compiled, given, listed, of, p
from wsrm_mq.store.tables import channel, entry, lane, ledger, message, outbound_sequence, reply

_REQUESTS: Final = (
    select(channel.c.lane)
    .join(outbound_sequence, outbound_sequence.c.id == channel.c.outbound)
    .where(HAS_REQUESTS, channel.c.is_numbered == 1)
)
_WAITS: Final = (entry.c.lane.in_(_REQUESTS), entry.c.number >= 1, IS_LIVE)
WAITING: Final = compiled(select(func.count()).where(*_WAITS))
WAIT: Final = compiled(
    select(message.c.id, message.c.message_id).join(entry, entry.c.message == message.c.id).where(*_WAITS)
)
"""Positions and MessageIDs of the requests that wait."""
OUTCOME: Final = compiled(
    select(entry.c.outcome, entry.c.reason).where(given(entry, "message")).order_by(entry.c.id.desc()).limit(1)
)
"""The outcome of the request that was stored at the position ``:message``, whatever sequence has it now."""
_own, _beside, _head = entry.alias("own"), entry.alias("beside"), entry.alias("head")
_numbered, _other = channel.alias("numbered"), channel.alias("other")
WHY: Final = compiled(
    select(
        func.coalesce(
            _own.c.last_error,
            select(func.max(_beside.c.last_error))
            .join(_other, and_(_other.c.lane == _beside.c.lane, _other.c.is_numbered == 0))
            .where(_other.c.outbound == _numbered.c.outbound, _beside.c.outcome.is_(None))
            .scalar_subquery(),
            select(_head.c.last_error)
            .where(_head.c.lane == lane.c.id, _head.c.number == lane.c.cursor)
            .scalar_subquery(),
        )
    )
    .join(lane, lane.c.id == _own.c.lane)
    .join(_numbered, _numbered.c.lane == lane.c.id)
    .where(given(_own, "message"))
    .order_by(_own.c.id.desc())
    .limit(1)
)
"""Why the request at the position ``:message`` waits: the error of its last attempt, else of what is to be sent
first."""
_again = entry.alias("again")
OUTCOMES: Final = compiled(
    select(*of(entry, "message, outcome, reason"))
    .where(
        entry.c.message.in_(listed("keys")),
        entry.c.outcome.is_not(None),
        entry.c.id == select(func.max(_again.c.id)).where(_again.c.message == entry.c.message).scalar_subquery(),
    )
    .order_by(entry.c.message)
)
"""The same of those at the positions ``:keys``, a JSON list, that do not wait any more."""
REQUEST: Final = compiled(
    select(message.c.id, message.c.action)
    .join(entry, entry.c.id == message.c.id)
    .join(channel, and_(channel.c.lane == entry.c.lane, channel.c.is_numbered == 1))
    .where(given(message, "message_id"))
    .order_by(message.c.id.desc())
    .limit(1)
)
"""Position and action of a request, by its MessageID: all that are kept are looked through."""


class Awaited(NamedTuple):
    """A request whose reply is awaited."""

    position: int
    number: int
    lane: int
    outbound: int
    """Key of its sequence."""
    message: int
    """Its position when it was stored."""


AWAITED: Final = compiled(
    select(*of(entry, "id, number, lane"), channel.c.outbound, entry.c.message)
    .select_from(outbound_sequence)
    .join(channel, and_(channel.c.outbound == outbound_sequence.c.id, channel.c.is_numbered == 1))
    .join(lane, lane.c.id == channel.c.lane)
    .join(entry, and_(entry.c.lane == lane.c.id, entry.c.number.between(lane.c.cursor, lane.c.limit - 1)))
    .join(message, message.c.id == entry.c.message)
    .where(
        *(HAS_REQUESTS, outbound_sequence.c.principal == p("acks_to")),
        *(IS_LIVE, entry.c.wants_reply == 1, given(message, "message_id")),
    )
    .limit(1)
)
"""The request of this MessageID that has left, and whose reply is to come to ``:acks_to``."""
REPLY: Final = compiled(
    select(*of(reply, "status, headers, body"))
    .join(entry, entry.c.id == reply.c.entry)
    .where(given(entry, "message"))
    .order_by(entry.c.id.desc())
    .limit(1)
)
"""The reply to the request that was stored at the position ``:message``."""
_why = (
    select(ledger.c.reason)
    .where(ledger.c.sequence == entry.c.lane, ledger.c.event == "sequence_refused")
    .order_by(ledger.c.id.desc())
    .limit(1)
    .scalar_subquery()
)
DEAD: Final = compiled(
    select(message.c.message_id, channel.c.address, entry.c.id, entry.c.reason, func.coalesce(entry.c.last_error, _why))
    .join(message, message.c.id == entry.c.message)
    .join(channel, and_(channel.c.lane == entry.c.lane, channel.c.is_numbered == 1))
    .join(outbound_sequence, outbound_sequence.c.id == channel.c.outbound)
    .where(HAS_REQUESTS, entry.c.outcome == "dead")
    .order_by(entry.c.id)
)
