"""Outbound sequences as the store keeps them: those whose RM Source is this side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from sqlalchemy import and_, delete, literal, or_, select, text, union_all, update

from wsrm_mq.sequence.elements import EndpointReference, SequenceAcknowledgement
from wsrm_mq.sequence.outbound import OutboundSequence, OutboundTerms
from wsrm_mq.sequence.outbound_states import OUTBOUND_ENDED, OutboundState
from wsrm_mq.sequence.ranges import EMPTY, AckRanges
from wsrm_mq.store.applications import FOREIGN, SOURCE
from wsrm_mq.store.channels import IS_GAP, endpoint_from, endpoint_text
from wsrm_mq.store.entries import IS_LIVE
from wsrm_mq.store.port import Database
from wsrm_mq.store.sql import absent, adding, compiled, given, of, p, upserted
from wsrm_mq.store.tables import ACKNOWLEDGED, channel, entry, hop, lane, queue
from wsrm_mq.store.tables import outbound_sequence as outbound
from wsrm_mq.versions import ADDRESSING_OF_LABEL, MAKE_CONNECTION, RM_OF_LABEL, SOAP_OF_LABEL

if TYPE_CHECKING:
    from wsrm_mq.store.records import About, SequenceRecord

_AS_STORED: Final = ("id", "queue", "principal", "peer", "partner")
_SAVED: Final = (
    *("state", "given", "acknowledged", "unacknowledged", "last_number", "is_final", "takes_below", "waiting_since"),
)
_NAMES: Final = tuple(f"outbound_{column.name}" for column in outbound.columns)
OUTBOUND_COLUMNS: Final = tuple(column.label(name) for column, name in zip(outbound.columns, _NAMES, strict=True))
"""The columns that ``OutboundRecord.load`` reads, to be selected in any query."""
_KEY: Final = given(outbound, "id")
HAS_ENDED: Final = or_(*(outbound.c.state == state.value for state in sorted(OUTBOUND_ENDED)))
HAS_REQUESTS: Final = outbound.c.answers.is_(None)
REQUESTS_GO_ON: Final = and_(HAS_REQUESTS, ~HAS_ENDED)

ADD_OUTBOUND: Final = compiled(adding(outbound, "id").returning(outbound.c.id))
SAVE_OUTBOUND: Final = compiled(update(outbound).where(_KEY).values({name: p(name) for name in _SAVED}))
AGREE: Final = compiled(update(outbound).where(_KEY).values(identifier=p("identifier"), expires_at=p("expires_at")))
"""Write down that its destination has created the sequence."""
REPLIED: Final = compiled(update(outbound).where(_KEY).values(replied=p("replied")))
"""A reply has come in the sequence that it offers."""
DROP_ANSWERING: Final = compiled(delete(outbound).where(given(outbound, "answers")))
DROP_OVER: Final = compiled(
    delete(outbound).where(
        *(_KEY, HAS_REQUESTS, HAS_ENDED), ~select(channel.c.lane).where(channel.c.outbound == p("id")).exists()
    )
)
"""Delete an outbound sequence that answers none, has ended, and has no channel any more."""
HOP_FORGOT: Final = upserted(hop, "address", "forgot, forgot_at")
"""Write down what a next node has forgotten."""
_OF_QUEUE: Final = and_(HAS_REQUESTS, given(outbound, "queue"))
LAST_REQUESTING: Final = compiled(
    select(outbound.c.id)
    .where(_OF_QUEUE, given(outbound, "rm, soap, addressing"))
    .order_by(outbound.c.id.desc())
    .limit(1)
)
"""The newest sequence of requests in a queue, in these versions."""
REQUESTING_BEFORE: Final = compiled(
    select(outbound.c.id)
    .where(
        *(_OF_QUEUE, outbound.c.id < p("id")),
        or_(
            and_(outbound.c.unacknowledged > 0, or_(outbound.c.state == "creating", outbound.c.state == "created")),
            outbound.c.state == "closing",
        ),
    )
    .limit(1)
)
"""A row if requests of an earlier sequence in the same queue may be sent yet, or are held there until it is closed."""
CREATING_BEHIND: Final = compiled(
    select(outbound.c.id)
    .where(_OF_QUEUE, outbound.c.id > p("id"), outbound.c.state == "creating")
    .order_by(outbound.c.id)
)
"""The sequences of requests in a queue that were to follow one of them."""
REQUESTING: Final = compiled(select(outbound.c.id).where(REQUESTS_GO_ON).order_by(outbound.c.queue, outbound.c.id))
"""The sequences of requests that have not ended."""
_HAS_GAP: Final = (
    select(literal(1))
    .select_from(channel.join(entry, entry.c.lane == channel.c.lane))
    .where(
        *(channel.c.outbound == outbound.c.id, channel.c.is_numbered == 1, entry.c.number >= 1),
        text("outcome IN ('dead', 'discarded')"),  # the words of an index
        IS_GAP,
    )
    .exists()
)
_WAITS: Final = (
    select(literal(1))
    .select_from(channel.join(entry, entry.c.lane == channel.c.lane))
    .where(channel.c.outbound == outbound.c.id, channel.c.is_numbered == 1, entry.c.number >= 1, IS_LIVE)
    .exists()
)
_MAY_END: Final = or_(outbound.c.rm != "1.0", outbound.c.unacknowledged == 0)
TO_TEND: Final = compiled(
    select(outbound.c.id)
    .where(
        REQUESTS_GO_ON,
        or_(
            *(outbound.c.state == "creating", outbound.c.state == "closing", outbound.c.expires_at <= p("now")),
            and_(outbound.c.state == "created", _HAS_GAP),
            and_(outbound.c.state == "closed", _MAY_END, ~_WAITS),
            and_(outbound.c.state == "created", outbound.c.last_number.is_not(None), outbound.c.unacknowledged == 0),
        ),
    )
    .order_by(outbound.c.queue, outbound.c.id)
)
"""Sequences of requests about which something may be due."""
_SPOKE: Final = (
    select(lane.c.id)
    .join(channel, channel.c.lane == lane.c.id)
    .where(channel.c.outbound == outbound.c.id, lane.c.active_at > p("before"))
)
QUIET: Final = compiled(
    select(outbound.c.id).where(
        *(absent(outbound, "answers, last_number"), outbound.c.state == "created"),
        *(outbound.c.unacknowledged == 0, ~_SPOKE.exists()),
    )
)
"""The open sequences of requests in which nothing waits, and nothing was said after ``:before``."""
CLOSABLE: Final = compiled(
    select(*of(outbound, "id, peer, principal"))
    .join(queue, queue.c.id == outbound.c.queue)
    .where(*(HAS_REQUESTS, outbound.c.state == "created", outbound.c.rm != "1.0", queue.c.name.startswith(SOURCE)))
)
"""The sequences of requests that can be closed, each with its destination and the address at which that acknowledges
it."""
_IS_AWAITED: Final = (
    select(literal(1))
    .select_from(channel.join(lane, lane.c.id == channel.c.lane).join(entry, entry.c.lane == lane.c.id))
    .where(
        *(channel.c.outbound == outbound.c.id, channel.c.is_numbered == 1, IS_LIVE, entry.c.deliveries > 0),
        entry.c.number.between(lane.c.cursor, lane.c.limit - 1),
    )
    .exists()
)
EXPECTING: Final = compiled(
    select(outbound.c.id)
    .where(REQUESTS_GO_ON, outbound.c.principal.startswith(MAKE_CONNECTION.anonymous), _IS_AWAITED)
    .order_by(outbound.c.id)
)
"""The sequences of requests about which something is to be fetched: a request has left, and is not acknowledged or not
replied to."""
OFFERING: Final = compiled(select(outbound.c.id).where(HAS_REQUESTS, outbound.c.offered == p("identifier")))
"""The sequence of requests that offers this one for their replies."""
_FOUND: Final = select(*OUTBOUND_COLUMNS)
FOUND_BY_ID: Final = compiled(_FOUND.where(_KEY))
FOUND_BY_IDENTIFIER: Final = compiled(_FOUND.where(given(outbound, "identifier")))
IDENTIFIER_IN_USE: Final = compiled(
    union_all(*(select(literal(1)).where(given(named, "identifier")) for named in (lane, outbound)))
)
OVER: Final = compiled(
    select(outbound.c.id)
    .join(lane, lane.c.id == outbound.c.answers)
    .where(
        *(text(ACKNOWLEDGED), lane.c.ended_at.is_not(None), lane.c.cursor >= lane.c.limit, lane.c.held == 0),
        outbound.c.queue.not_in(FOREIGN),
    )
    .limit(p("count"))
)
"""The keys of open sequences with an endpoint that have nothing unacknowledged, and answer one that has ended and is
settled to its end."""


@dataclass(eq=False, slots=True, kw_only=True)
class OutboundRecord:
    """One row of ``outbound_sequence``. Only a transaction changes it, and any rollback drops it."""

    id: int = 0
    answered: SequenceRecord | None = None
    """The inbound sequence whose replies go out in it; ``None``: requests of an RM Source do."""
    value: OutboundSequence
    queue: int
    principal: str | None = None
    """The principal that may speak of it. Of requests it is the address of this side that they are acknowledged and
    replied to: who speaks there. ``None``: on the responses."""
    peer: str | None = None
    partner: str | None = None
    """The receiver's partner section; with principal and peer it says who may speak of the sequence."""
    waiting_since: int | None = None
    """Since when something waits for an acknowledgement, and none has come; ``None``: none waits. ms since the
    epoch."""
    endpoint: EndpointReference | None = None
    """The endpoint that messages about it are sent to; ``None``: they leave on responses."""
    acks_with_reply: bool = False
    """The number of a request is told with its reply alone, until that is acknowledged."""
    offered: str | None = None
    """The identifier of the sequence that it offers for the replies to its requests; ``None``: it offers none."""
    replied: AckRanges = EMPTY
    """The numbers of the replies that have come there."""
    requests_leave_in: int | None = field(default=None, init=False)
    """The key of the lane that its requests leave in; ``None``: it was not asked for yet."""
    written: OutboundSequence | None = field(default=None, init=False)
    """``value``, as the store has it."""

    @property
    def sender(self) -> str | None:
        """The sender for whom messages are counted that are sent because of this sequence."""
        return self.partner or self.principal or self.peer

    @property
    def has_requests(self) -> bool:
        """Whether it is that of an RM Source."""
        return self.answered is None

    @property
    def reply_acknowledgements(self) -> tuple[SequenceAcknowledgement, ...]:
        """The acknowledgement of the replies that have come in the sequence that it offers."""
        if self.offered is None or not self.replied:
            return ()
        return (SequenceAcknowledgement(self.offered, self.replied.ranges),)

    @property
    def about(self) -> About:
        """The sequence that what is said of this one is about: the one that it answers, or itself."""
        return self.answered or self

    @classmethod
    def load(cls, columns: Mapping[str, Any], answered: SequenceRecord | None = None) -> Self:
        """Make a record from ``OUTBOUND_COLUMNS`` by name."""
        row = {column.name: columns[name] for column, name in zip(outbound.columns, _NAMES, strict=True)}
        soap, addressing = SOAP_OF_LABEL[row["soap"]], ADDRESSING_OF_LABEL[row["addressing"]]
        terms = OutboundTerms(row["identifier"], RM_OF_LABEL[row["rm"]], soap, addressing, row["expires_at"])
        value = OutboundSequence(
            terms,
            state=OutboundState(row["state"]),
            given=row["given"],
            acknowledged=AckRanges.parse(row["acknowledged"]),
            last_number=row["last_number"],
            is_final=bool(row["is_final"]),
            takes_below=row["takes_below"],
        )
        record = cls(
            value=value,
            answered=answered,
            **{name: row[name] for name in (*_AS_STORED, "waiting_since")},
            endpoint=endpoint_from(row["endpoint"]),
            acks_with_reply=bool(row["acks_with_reply"]),
            offered=row["offered"],
            replied=AckRanges.parse(row["replied"]),
        )
        record.written = value
        return record

    @property
    def row(self) -> dict[str, object]:
        value = self.value
        terms = value.terms
        return {
            **{name: getattr(self, name) for name in _AS_STORED},
            "answers": None if self.answered is None else self.answered.id,
            "identifier": terms.identifier,
            "rm": terms.rm.label,
            "soap": terms.soap.label,
            "addressing": terms.addressing.label,
            "expires_at": terms.expires_at,
            "state": value.state.value,
            "given": value.given,
            "acknowledged": str(value.acknowledged),
            "unacknowledged": value.given - value.acknowledged.count(),
            "last_number": value.last_number,
            "is_final": int(value.is_final),
            "takes_below": value.takes_below,
            "waiting_since": self.waiting_since,
            "endpoint": endpoint_text(self.endpoint),
            "acks_with_reply": int(self.acks_with_reply),
            "offered": self.offered,
            "replied": str(self.replied),
        }

    def follow(self, value: OutboundSequence, now: int) -> None:
        """Take the next protocol value."""
        has_heard = value.acknowledged != self.value.acknowledged
        waits_since = now if has_heard else self.waiting_since or now
        self.value, self.waiting_since = value, None if value.is_acknowledged else waits_since


def read(db: Database, key: int) -> OutboundRecord:
    """The outbound sequence with this ``key``, which is there and answers none, as it is committed: to be looked at."""
    return loaded(db.execute(FOUND_BY_ID, {"id": key}).fetchone())


def loaded(row: tuple[Any, ...]) -> OutboundRecord:
    """The outbound sequence of a row of ``OUTBOUND_COLUMNS``, which answers none."""
    return OutboundRecord.load(dict(zip(_NAMES, row, strict=True)))
