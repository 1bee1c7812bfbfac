"""Channels: the endpoint that a lane of kind outgoing sends to, and the sequence that its messages are about.
Messages and acknowledgements that wait there to be fetched (WS-MakeConnection)."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from sqlalchemy import Select, and_, case, delete, func, insert, not_, or_, select, text, update

from wsrm_mq.sequence.elements import EndpointReference
from wsrm_mq.store.applications import IS_OURS
from wsrm_mq.store.entries import IS_LIVE, changed_if_live
from wsrm_mq.store.port import Database
from wsrm_mq.store.running import is_paused
from wsrm_mq.store.sql import adding, changing, compiled, given, of, p
from wsrm_mq.store.tables import channel, entry, lane, message, sequence
from wsrm_mq.store.words import Number

_LOOKED_AT: Final = 100

ADD_CHANNEL: Final = compiled(adding(channel))
DROP_CHANNEL: Final = compiled(delete(channel).where(given(channel, "lane")).returning(channel.c.outbound))
CHANNEL: Final = {
    about: compiled(select(channel.c.lane).where(given(channel, f"{about}, address, parameters, is_numbered")))
    for about in ("answers", "outbound")
}
"""The key of the lane of kind outgoing that leads there, about an inbound sequence, or about an outbound one."""
CHANNELS_NUMBERED: Final = compiled(
    select(channel.c.lane).where(given(channel, "outbound"), channel.c.is_numbered == 1)
)
"""The keys of those that have numbers of an outbound sequence."""
REQUESTS_IN: Final = compiled(
    select(channel.c.outbound).where(given(channel, "lane"), channel.c.is_numbered == 1, channel.c.answers.is_(None))
)
"""The key of the outbound sequence whose requests leave in a lane."""
CHANNELS_BESIDE: Final = compiled(select(channel.c.lane).where(given(channel, "outbound"), channel.c.is_numbered == 0))
"""The keys of those that have what is said about it."""
MAY_HAVE_ARRIVED: Final = compiled(
    select(entry.c.id)
    .join(channel, channel.c.lane == entry.c.lane)
    .where(
        *(given(channel, "outbound"), channel.c.is_numbered == 0),
        or_(entry.c.last_error.is_not(None), entry.c.deaths > 0),
    )
    .limit(1)
)
"""A row if something that is said about it has been sent before, and no answer to that was heard."""
LEAVING: Final = compiled(
    select(channel.c.address, entry.c.id, message.c.received_at)
    .join(entry, and_(entry.c.lane == channel.c.lane, given(entry, "number")))
    .join(message, message.c.id == entry.c.message)
    .where(given(channel, "lane"))
)
"""The address that the message with this number is sent to, its position, and the time at which it was stored."""
_THERE: Final = (
    select(channel.c.lane)
    .where(channel.c.address >= p("origin"), channel.c.address < p("beyond"))
    .order_by(channel.c.address.desc())
    .limit(_LOOKED_AT)
    .subquery()
)
ANSWERED_THERE: Final = compiled(
    select(entry.c.id).join(_THERE, _THERE.c.lane == entry.c.lane).where(entry.c.outcome == "delivered").limit(1)
)
"""A row if something has been taken at one of the addresses from ``:origin`` to ``:beyond``."""
_LIVE: Final = and_(given(entry, "lane"), IS_LIVE)
_IN_RANGE: Final = and_(_LIVE, entry.c.number.between(p("lower"), p("upper")))
IS_TAKEN: Final[dict[str, Any]] = {"outcome": "delivered", "settled_at": p("now"), "retry_at": None}
"""The changes of an entry that the other side has taken."""
SETTLE_RANGE: Final = compiled(
    update(entry)
    .where(_IN_RANGE, entry.c.wants_reply == 0)
    .values(IS_TAKEN)
    .returning(*of(entry, "message, deliveries, retry_from"))
)
"""Settle the messages in a range that the other side has acknowledged, but for those that it is to reply to; their
positions, as they were stored first, how often each has left, and when for the last time."""
UNREPLIED: Final = compiled(select(entry.c.number).where(_LIVE, entry.c.number >= 1, entry.c.wants_reply == 1))
"""The numbers of requests whose replies have not come, whether they are acknowledged or not."""
LAST_LEFT: Final = compiled(
    select(entry.c.retry_from).where(_LIVE, entry.c.number >= 1).order_by(entry.c.number.desc()).limit(1)
)
"""The time at which the last request that is not done has left; NULL: it has not."""
SENT: Final = changed_if_live(deliveries=entry.c.deliveries + 1, deaths=0, retry_from=p("now"), retry_at=p("retry_at"))
"""It has left, and leaves again unless it is acknowledged; or it is lent to a request, and no other gets it until
then."""
_later: Final = entry.alias("later")
_ACKNOWLEDGED_SINCE: Final = (
    select(func.count())
    .where(
        *(_later.c.lane == entry.c.lane, _later.c.number > entry.c.number, _later.c.number >= p("upper")),
        *(_later.c.number <= p("highest"), _later.c.settled_at >= entry.c.retry_from),
    )
    .scalar_subquery()
)
SEND_OVERTAKEN: Final = compiled(
    update(entry)
    .where(
        *(_IN_RANGE, entry.c.retry_at.is_not(None)),
        *(entry.c.deliveries <= p("most"), entry.c.failures == 0, p("most") <= _ACKNOWLEDGED_SINCE),
    )
    .values(retry_at=None)
)
"""At once, what was sent ``:most`` times or fewer, if so many above it, up to the number ``:highest``, have been
acknowledged since."""
_IS_ON_ITS_WAY: Final = and_(entry.c.failures == 0, entry.c.retry_at.is_not(None))
SEND_AGAIN: Final = compiled(
    update(entry)
    .where(_IN_RANGE)
    .values(retry_at=None, deliveries=case((_IS_ON_ITS_WAY, entry.c.deliveries - 1), else_=entry.c.deliveries))
)
"""At once: the other side says that it has not come, so its last sending takes no step of ``resend``. Said twice of one
sending, that counts once."""
_place = func.row_number().over(order_by=entry.c.number)
_NEW: Final = (
    *(p("begins", type_=Number) - 1 + _place, p("queue", type_=Number), entry.c.message),
    *(p("lane", type_=Number), p("given", type_=Number) + _place),
)


def entering(moved: Select[Any], also: str = "") -> str:
    """The text that enters the messages of ``moved`` anew, with positions from ``:begins`` on, in ``:queue`` and
    ``:lane`` with numbers behind ``:given``. ``also``: columns that they keep."""
    names = f"id, queue, message, lane, number, {also}expires_at, replay_of".split(", ")
    entries = moved.with_only_columns(*_NEW, *of(entry, f"{also}expires_at, id"))
    return compiled(insert(entry).from_select(names, entries, include_defaults=False))


_MOVED: Final = and_(entry.c.lane == p("old"), IS_LIVE, entry.c.number.between(p("lower"), p("upper")))
CARRY_ON: Final = entering(select(entry.c.id).where(_MOVED).order_by(entry.c.number), "wants_reply, ")
"""Have new entries for the unsettled ones of the lane ``:old`` that have a number in a range."""
CARRIED_ON: Final = compiled(
    update(entry).where(_MOVED).values(outcome="discarded", reason=p("reason"), settled_at=p("now"), retry_at=None)
)
IS_GAP: Final = or_(
    and_(entry.c.outcome == "dead", entry.c.reason != "not_replied_to"),
    *(entry.c.reason == reason for reason in ("by_operator", "replayed")),
)
"""An entry that was given up, taken out by an operator, or has gone on under another number: its own number is a gap
for ever, unless it is acknowledged."""
_OUT: Final = select(entry.c.number, entry.c.last_error).where(
    *(given(entry, "lane"), entry.c.number >= 1),
    text("outcome IN ('dead', 'discarded')"),  # the words of an index
)
DEAD_IN: Final = compiled(_OUT.where(entry.c.outcome == "dead").order_by(entry.c.number).limit(1))
"""The first dead letter of a lane."""
GAPS_IN: Final = compiled(_OUT.where(IS_GAP).order_by(entry.c.number))
ACKS_DUE: Final = compiled(
    select(sequence.c.lane)
    .join(lane, lane.c.id == sequence.c.lane)
    .where(sequence.c.ack_due_at <= p("now"), IS_OURS)
    .order_by(sequence.c.ack_due_at)
    .limit(p("count"))
)
NEXT_ACK_DUE: Final = compiled(
    select(func.min(sequence.c.ack_due_at))
    .join(lane, lane.c.id == sequence.c.lane)
    .where(sequence.c.ack_due_at.is_not(None), IS_OURS)
)


class Channel(NamedTuple):
    """The endpoint of a lane of kind outgoing, and the sequence that its messages are about."""

    endpoint: EndpointReference
    answers: int | None
    """Key of the inbound sequence that they are about; ``None``: they are about the outbound one alone."""
    outbound: int | None = None
    """Key of the outbound sequence."""
    is_numbered: bool = False
    """Whether its messages have their numbers in the outbound sequence."""

    @property
    def row(self) -> dict[str, object]:
        """The columns of ``channel`` but the key."""
        return {
            "answers": self.answers,
            "outbound": self.outbound,
            "address": self.endpoint.address,
            "parameters": json.dumps(self.endpoint.parameters, ensure_ascii=False),
            "is_numbered": int(self.is_numbered),
        }

    @classmethod
    def load(
        cls, answers: int | None, outbound: int | None, address: str, parameters: str, is_numbered: int
    ) -> Channel:
        return cls(EndpointReference(address, tuple(json.loads(parameters))), answers, outbound, bool(is_numbered))


def endpoint_text(endpoint: EndpointReference | None) -> str | None:
    """Write an endpoint as one text: a JSON list of address and parameters."""
    return None if endpoint is None else json.dumps([endpoint.address, *endpoint.parameters], ensure_ascii=False)


def endpoint_from(text: str | None) -> EndpointReference | None:
    """The endpoint that ``endpoint_text`` has written; ``None`` for none."""
    if text is None:
        return None
    address, *parameters = json.loads(text)
    return EndpointReference(address, tuple(parameters))


# messages and acknowledgements that wait to be fetched (WS-MakeConnection), by the address that they are for

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
