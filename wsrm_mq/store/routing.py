"""Statements on routes, next nodes, and the messages that go or come that way. Parameters are named."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import and_, delete, exists, func, or_, select, update
from sqlalchemy.dialects.sqlite import insert as upsert

from wsrm_mq.store.applications import INTAKE
from wsrm_mq.store.channels import entering
from wsrm_mq.store.entries import IS_LIVE
from wsrm_mq.store.outbound import REQUESTS_GO_ON
from wsrm_mq.store.sql import adding, compiled, given, listed, of, p, upserted
from wsrm_mq.store.tables import (
    arrived,
    channel,
    entry,
    epoch,
    header,
    hop,
    identity,
    lane,
    message,
    moving,
    outbound_sequence,
    queue,
    route,
    routed,
)
from wsrm_mq.store.words import Number

# the node, and its routes

NODE: Final = compiled(
    select(
        *(identity.c.node, identity.c.id),
        select(epoch.c.token).order_by(epoch.c.mark.desc()).limit(1).scalar_subquery(),
    )
)
"""The name that the node was given, the id of its store, and the token of the run of that."""
NAME_NODE: Final = compiled(update(identity).values(node=p("name")))
ROUTES: Final = compiled(
    select(*of(route, "id, pattern, next_hop, cost, strip"), hop.c.away_since, hop.c.node)
    .outerjoin(hop, hop.c.address == route.c.next_hop)
    .order_by(route.c.cost, route.c.id)
)
ADD_ROUTE: Final = upserted(route, "pattern, next_hop", "cost, strip", "created_at")
DROP_ROUTE: Final = compiled(
    delete(route)
    .where(given(route, "pattern"), route.c.next_hop == func.coalesce(p("next_hop"), route.c.next_hop))
    .returning(route.c.next_hop)
)

# next nodes

_STATE: Final = "away_since, tried_next_at, attempts, last_error"
HOPS: Final = compiled(select(*of(hop, f"address, {_STATE}, node")))
SAY_HOP: Final = upserted(hop, "address", _STATE)
NAME_HOP: Final = upserted(hop, "address", "node")
_WAITED_FOR: Final = (
    select(outbound_sequence.c.peer)
    .join(queue, queue.c.id == outbound_sequence.c.queue)
    .where(REQUESTS_GO_ON, queue.c.name.like("hop/%"))
)
WAITED_FOR: Final = compiled(_WAITED_FOR.distinct())
"""The addresses of next nodes that something may wait for, though no route leads there any more."""
IS_NEEDED: Final = compiled(
    select(
        or_(exists(select(route.c.id)), exists(select(queue.c.id).where(queue.c.name == INTAKE)), exists(_WAITED_FOR))
    )
)
"""Whether there is something to be sent to other nodes, or to be placed that has come from them."""

# what goes another way, as routes have changed: an end is the nodes that have had it, its queue, and its name there

_END: Final = "via, target, sent_as"
WAITS: Final = (
    select(*of(routed, _END), outbound_sequence.c.peer)
    .select_from(outbound_sequence)
    .join(queue, queue.c.id == outbound_sequence.c.queue)
    .join(channel, and_(channel.c.outbound == outbound_sequence.c.id, channel.c.is_numbered == 1))
    .join(entry, and_(entry.c.lane == channel.c.lane, IS_LIVE))
    .join(routed, routed.c.message == entry.c.message)
    .where(REQUESTS_GO_ON, queue.c.name.like("hop/%"))
)
"""The messages that wait for next nodes."""


def _may_move(found: Any) -> str:
    columns = ("via", "target", "sent_as", "address")
    return compiled(upsert(moving).from_select(columns, found, include_defaults=False).on_conflict_do_nothing())


MAY_MOVE: Final = _may_move(WAITS.distinct())
"""Routes have changed: all that waits for whatever next node may have to go another way."""
ONE_MAY_MOVE: Final = _may_move(select(*of(routed, _END), p("address")).where(given(routed, "message")))
"""The messages for the same queue as this one that wait for the node at ``address`` may have to go another way."""
MOVING: Final = compiled(
    select(moving.c.address).group_by(moving.c.address).order_by(func.count(moving.c.leads_to).desc())
)
"""The next nodes that it waits for; first those that a part of it has left."""
FOLLOWED: Final = compiled(
    select(*of(moving, "address, sent_as"))
    .where(given(moving, "via, target"))
    .order_by(moving.c.leads_to.is_(None))
    .limit(1)
)
"""Where the last of it waits for a queue that these nodes have had, and under which name."""
_leader: Final = moving.alias("leader")
ENDS: Final = compiled(
    select(*of(moving, f"{_END}, leads_to, leads_as")).where(
        given(moving, "address"),
        ~exists(
            select(_leader.c.via).where(
                *(_leader.c.via == moving.c.via, _leader.c.target == moving.c.target),
                *(_leader.c.leads_to == moving.c.address, _leader.c.leads_as == moving.c.sent_as),
            )
        ),
    )
)
"""The messages that wait for a next node and may move now: all that began to go there have arrived."""
_ONE: Final = given(moving, f"address, {_END}")
LEAD: Final = compiled(update(moving).where(_ONE).values(leads_to=p("leads_to"), leads_as=p("leads_as")))
MOVE_ON: Final = _may_move(
    select(*of(moving, "via, target, leads_as, leads_to")).where(
        given(moving, "address"), moving.c.leads_to.is_not(None)
    )
)
"""All of what has left a next node in parts is together again: routes may have changed meanwhile."""
HAS_MOVED: Final = compiled(delete(moving).where(_ONE))
ENDS_IN: Final = compiled(
    WAITS.with_only_columns(*of(routed, _END)).where(outbound_sequence.c.id == p("outbound")).distinct()
)
"""The ends of a sequence."""

# messages

ADD_ROUTED: Final = compiled(adding(routed).on_conflict_do_nothing())
LEAVING: Final = compiled(
    select(
        *of(routed, "sent_as, node, incarnation, position, via, max_hops, priority"),
        *of(routed, "lane_group, asks, deliver_at, expires_at, reach_by"),
        *of(header, "properties, content_type, client, report_to"),
        queue.c.name,
    )
    .join(entry, entry.c.message == routed.c.message)
    .join(queue, queue.c.id == entry.c.queue)
    .outerjoin(header, header.c.message == routed.c.message)
    .where(entry.c.id == p("key"))
)
"""The facts of the message at a position that go with it to the next node."""
_WAITING: Final = (
    select(entry.c.id, entry.c.number)
    .join(routed, routed.c.message == entry.c.message)
    .where(entry.c.lane == p("old"), IS_LIVE)
    .order_by(entry.c.number)
)
_TEXT: Final = routed.c.via.op("||")(routed.c.target).op("||")("\x1f").op("||")(routed.c.sent_as)
_FOR: Final = _TEXT.in_(select(func.texts_in(p("ends")).table_valued("value").c.value))
BEHIND: Final = compiled(_WAITING.where(_FOR).with_only_columns(entry.c.number).limit(1).offset(p("most")))
"""The number of the one behind so many messages of these ends that wait in a lane, where there are more."""
_PART: Final = _WAITING.where(_FOR, entry.c.number <= p("upto", type_=Number))
WAITING_FOR: Final = compiled(_PART.limit(p("count")))
COUNT_FOR: Final = compiled(select(func.count()).select_from(_PART.order_by(None).subquery()))
"""The messages in a lane that are of these ends, a JSON list: of each the three in one text."""
MOVE: Final = entering(_PART)
"""Have new entries for them in another lane."""
MOVED: Final = compiled(
    update(entry)
    .where(entry.c.id.in_(_PART.with_only_columns(entry.c.id).order_by(None)))
    .values(outcome="discarded", reason="replayed", settled_at=p("now"), retry_at=None)
)
SEND_AS: Final = compiled(
    update(routed)
    .where(routed.c.message.in_(select(entry.c.message).where(given(entry, "lane"))), _FOR)
    .values(sent_as=p("sent_as"))
)
"""Have those that have come into a lane another name at the next node."""
NO_DEADLINE: Final = compiled(update(routed).where(given(routed, "message")).values(expires_at=None, reach_by=None))
"""Have a message that is sent again live as long as it takes."""
IS_LATE: Final = compiled(
    select(routed.c.message).where(
        *(given(routed, "message"), routed.c.sent_as.is_not(None), routed.c.reach_by <= p("now")),
        or_(routed.c.expires_at.is_(None), routed.c.expires_at > p("now")),
    )
)
"""A row if a message waits for a next node that was to have reached its queue by now."""
_IS_EXPRESS: Final = queue.c.name.between(p("queue").op("||")("#"), p("queue").op("||")("$"))
OPEN_TO: Final = compiled(
    select(outbound_sequence.c.id)
    .join(queue, queue.c.id == outbound_sequence.c.queue)
    .where(REQUESTS_GO_ON, or_(queue.c.name == p("queue"), _IS_EXPRESS))
    .order_by(outbound_sequence.c.id)
)
"""The sequences to a next node that have not ended: those of its transmission queue, and of express messages."""
EXPRESS_BEFORE: Final = compiled(
    select(outbound_sequence.c.id, queue.c.name)
    .join(queue, queue.c.id == outbound_sequence.c.queue)
    .where(REQUESTS_GO_ON, queue.c.name.like("hop/%#%"), queue.c.name.not_like(p("mine")))
    .order_by(outbound_sequence.c.id)
)
"""The sequences of express messages that earlier runs of the store have begun."""
LANES_OF: Final = compiled(select(channel.c.lane).where(given(channel, "outbound")))
TO_SEND: Final = compiled(
    select(lane.c.id)
    .join(channel, channel.c.lane == lane.c.id)
    .join(outbound_sequence, outbound_sequence.c.id == channel.c.outbound)
    .where(
        *(REQUESTS_GO_ON, lane.c.owner.is_(None), lane.c.cursor < lane.c.limit),
        or_(lane.c.retry_at.is_(None), lane.c.retry_at <= p("now")),
    )
    .limit(1)
)
"""A row if something may be sent that no process sends."""
PRINCIPALS: Final = compiled(select(message.c.id, message.c.principal).where(message.c.id.in_(listed("keys"))))

# wishes of their senders

_TOLD: Final = (entry.c.id, message.c.id, message.c.body_size, routed.c.asks)
_WISHING: Final = (
    select(*_TOLD)
    .select_from(routed)
    .join(message, message.c.id == routed.c.message)
    .join(entry, entry.c.message == message.c.id)
)
GIVEN_UP: Final = compiled(_WISHING.where(entry.c.id == p("key"), routed.c.asks > 0))
"""The facts that are told of a message which goes no further from its transmission queue."""
LEFT: Final = compiled(
    _WISHING.where(message.c.id.in_(listed("keys")), *(given(entry, "lane"), routed.c.asks.op("&")(p("record")) > 0))
)
"""The same of those messages of a lane that a record is wished for."""
HOME: Final = compiled(
    select(*of(routed, "node, position, target"))
    .join(entry, entry.c.message == routed.c.message)
    .where(entry.c.id == p("key"))
)
"""Where the message of an entry was put, as which position, and for which queue."""

# the guard against repeats

_OF_NAME: Final = select(queue.c.id).where(
    or_(given(queue, "name"), queue.c.name.between(p("name").op("||")("#"), p("name").op("||")("$")))
)
HAS_ARRIVED: Final = compiled(
    select(arrived.c.at).where(arrived.c.queue.in_(_OF_NAME), given(arrived, "node, incarnation, position"))
)
"""A row if the message has come into the queue of this name, also if that was deleted since: see ``queues.TAKE_NAME``.
"""
ARRIVED: Final = compiled(adding(arrived))
