"""Lanes and sequences as the store keeps them.

A lane is an ordered group of entries: how far its delivery has come, who runs it, what stops it. A sequence is a lane
that WS-ReliableMessaging rules: ``value`` is what the protocol knows of it, and says how far its lane may be delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

from wsrm_mq.sequence.elements import EndpointReference, IncompleteSequenceBehavior
from wsrm_mq.sequence.inbound import InboundSequence, Late
from wsrm_mq.sequence.ranges import EMPTY, AckRange, AckRanges
from wsrm_mq.sequence.running import DELIVERY, DeliveryState, decide, is_paused
from wsrm_mq.sequence.states import ENDED, State
from wsrm_mq.sequence.terms import DeliveryAssurance, Terms
from wsrm_mq.store import entries, lanes
from wsrm_mq.store.channels import endpoint_from, endpoint_text
from wsrm_mq.store.lanes import LANE_COLUMNS, PROTOCOL_COLUMNS, SAVED_COLUMNS
from wsrm_mq.store.outbound import OutboundRecord
from wsrm_mq.store.outbound import read as read_outbound
from wsrm_mq.store.port import Database
from wsrm_mq.versions import ADDRESSING_OF_LABEL, RM_OF_LABEL, SOAP_OF_LABEL, AddressingVersion, SOAPVersion

_GIVEN: Final = (
    *("queue", "kind", "identifier", "principal", "peer", "partner", "inactivity", "created_at"),
    *("connection", "replay_of", "plan"),
)
"""Columns that never change, as they are."""
_OF_TERMS: Final = ("identifier", "soap", "addressing", "assurance", "ordered", "inactivity")
"""A lane's fields that a sequence has from its terms."""
_OF_VALUE: Final = ("active_at", "limit", "discard_from", "discard_reason")
"""And those that it has from the protocol's value."""
_saved: Final[Callable[[Lane], tuple[Any, ...]]] = attrgetter(*SAVED_COLUMNS)
_STATES: Final = decide(DELIVERY)


@dataclass(eq=False, slots=True, kw_only=True)
class Lane:
    """One row of ``lane`` with its ranges. Only a transaction changes it, and any rollback drops it. Times in ms since
    the epoch."""

    id: int = 0
    """Its key; 0 for one that is in no table of lanes."""
    queue: int
    kind: str
    """``rm``: a sequence rules it, see ``SequenceRecord``; ``connection``: messages without WS-RM, in order of receipt;
    ``replay``: stored messages are delivered again; ``outgoing``: this side's own messages are sent."""
    identifier: str
    soap: SOAPVersion
    addressing: AddressingVersion
    assurance: DeliveryAssurance = DeliveryAssurance.EXACTLY_ONCE
    ordered: bool = True
    inactivity: int | None = None
    """It ends after so many ms without traffic."""
    principal: str | None = None
    peer: str | None = None
    partner: str | None = None
    created_at: int = 0
    connection: str | None = None
    """The connection whose messages these are, where they came without WS-RM."""
    replay_of: int | None = None
    """Key of the lane whose messages are replayed."""
    plan: str | None = None
    """The plan that they are replayed by, if there is one."""
    active_at: int = 0
    """Last traffic."""
    ended: str | None = None
    """How it has ended: nothing new comes into it from outside."""
    ended_at: int | None = None
    due_at: int | None = None
    """When to look whether the clock ends it: not later than that is, and earlier where there was traffic since. So the
    column is not written with every message."""
    numbers: AckRanges = EMPTY
    """The numbers that were accepted."""
    cursor: int = 1
    """The lowest accepted and unsettled number; ``limit`` if there is none."""
    limit: int = 1
    """Numbers below it are delivered; it never falls."""
    discard_from: int | None = None
    """Unsettled numbers from here on go to the dead letters; they are never delivered."""
    discard_reason: str | None = None
    discarding: bool = False
    """Entries from ``discard_from`` on are still being moved to the dead letters."""
    owner: int | None = None
    """Key of the instance that runs it."""
    fence: int = 0
    """Grows with every change of owner; a settlement has to bring the one it was given."""
    running_since: int | None = None
    retry_at: int | None = None
    retry_from: int | None = None
    """When the wait until ``retry_at`` began: one that begins in the future is over, the clock went back."""
    blocked: int | None = None
    """Position of the entry that stopped it."""
    on_hold_since: int | None = None
    """Since when an operator holds it: nothing more of it is delivered."""
    is_consumed: bool = False
    """Consumers lease its messages; an application is called only with those that are to be answered."""
    redelivery_below: int = 0
    """Deliveries below this number may be repeated: an owner died while it ran them."""
    held: int = 0
    """How many accepted numbers wait."""
    held_bytes: int = 0
    """The bytes of their bodies; more than that once some of several runs were released. See ``queue.room``."""
    held_is_exact: bool = field(default=False, init=False)
    """``held_bytes`` is the sum; else it may be more."""
    written: tuple[Any, ...] = field(default=(), init=False)
    """``saved``, as the store has it."""
    written_ranges: tuple[AckRange, ...] = field(default=(), init=False)
    """The ranges of ``numbers``, as the store has them."""
    written_protocol: tuple[Any, ...] = field(default=(), init=False)
    """``protocol``, as the store has it."""

    @property
    def sender(self) -> str | None:
        """The sender for whom messages are counted that are sent because of this lane."""
        return self.partner or self.principal or self.peer

    @property
    def row(self) -> dict[str, object]:
        """The columns of a lane that its transactions write."""
        return {
            **dict(zip(SAVED_COLUMNS, self.saved, strict=True)),
            **{name: getattr(self, name) for name in _GIVEN},
            "soap": self.soap.label,
            "addressing": self.addressing.label,
            "assurance": self.assurance.value,
            "ordered": int(self.ordered),
            "served_at": 0 if self.is_consumed else None,
        }

    @property
    def saved(self) -> tuple[Any, ...]:
        """``SAVED_COLUMNS``."""
        return _saved(self)

    @property
    def protocol(self) -> tuple[Any, ...]:
        """``PROTOCOL_COLUMNS``, of a sequence."""
        return ()

    def mark_written(self) -> None:
        """Remember the present values as those in the store: this transaction has written them."""
        self.written, self.written_ranges, self.written_protocol = self.saved, self.numbers.ranges, self.protocol

    @property
    def weight(self) -> int:
        """How much it takes of the memory that is kept for lanes."""
        return 1 + len(self.numbers.ranges)

    @property
    def deliver_below(self) -> int:
        return self.limit if self.discard_from is None else min(self.limit, self.discard_from)

    @property
    def in_any_order(self) -> bool:
        """Whether a number may run while a lower one is unsettled."""
        return not self.ordered

    def is_given_up(self, number: int) -> bool:
        return self.discard_from is not None and number >= self.discard_from

    @property
    def is_unsettled(self) -> bool:
        """Whether a number below the limit is neither settled nor given up."""
        return self.cursor < self.limit and (self.discard_from is None or self.cursor < self.discard_from)

    @property
    def has_next(self) -> bool:
        """Something is to be delivered now or after a retry. Its owner asks: the state is running whatever is left."""
        return self.on_hold_since is None and self.is_unsettled

    @property
    def keeps_tail(self) -> bool:
        """Whether messages that are given up stay for now: an operator holds the lane, or its owner may be running some
        of them, which were deliverable when the run began."""
        begun = self.discard_from is not None and self.discard_from <= self.cursor < self.limit
        return self.on_hold_since is not None or (self.owner is not None and begun)

    def delivery_state(self, now: int) -> DeliveryState:
        return _STATES[
            self.on_hold_since is not None,
            self.blocked is not None,
            self.owner is not None,
            self.is_unsettled,
            self.retry_at is not None and is_paused(self.retry_from, self.retry_at, now),
            self.discarding,
            self.held > 0,
        ]

    @property
    def is_over(self) -> bool:
        """Whether it has ended, and nothing is left to be done with it, now or later."""
        return self.ended is not None and self.delivery_state(self.active_at) is DeliveryState.IDLE

    def wait(self, now: int, retry_at: int | None) -> None:
        """Try the head again at ``retry_at``; ``None``: whenever it can be."""
        self.retry_at = retry_at
        self.retry_from = now if retry_at is not None else None

    def append(self, now: int, number: int | None = None) -> int:
        """Accept the next number, or ``number``, which is deliverable at once; answers it."""
        number = self.limit if number is None else number
        if number < self.cursor or self.cursor >= self.limit:
            self.cursor = number
        self.numbers, self.limit, self.active_at = self.numbers.add(number), max(self.limit, number + 1), now
        if not self.ordered:
            self.wait(now, None)  # it need not wait for another one's retry
        return number

    def put_off(self, now: int, number: int, size: int) -> int:
        """Accept ``number``, of ``size`` bytes, which waits for the limit to rise; answers it."""
        self.numbers, self.active_at = self.numbers.add(number), now
        self.hold(size)
        return number

    def give_up(self, number: int, reason: str) -> None:
        """Deliver nothing from ``number`` on: such messages go to the dead letters, marked with ``reason``."""
        self.discard_from, self.discard_reason, self.discarding = number, reason, True
        if self.held:
            self.release(0)

    def hold(self, size: int) -> None:
        """A message of ``size`` bytes was accepted and waits."""
        self.held_is_exact = self.held_is_exact or not self.held
        self.held += 1
        self.held_bytes += size

    def release(self, left: int) -> None:
        """Count ``left`` messages as held from now on; the others go on. The bytes of the rest are not known here."""
        self.held = left
        self.held_is_exact = False
        if not left:
            self.held_bytes = 0

    def passed(self, number: int) -> bool:
        """``number`` was settled: in order the cursor goes to the next accepted one. ``False``: lower ones may wait, so
        that is not known here."""
        if self.in_any_order:
            return False
        if number >= self.cursor:
            beyond, limit = number + 1, self.limit
            self.cursor = limit if beyond >= limit else self.numbers.first_from(beyond, limit)
        return True

    def name(self, number: int, now: int) -> None:
        """Let acknowledgements name ``number`` from now on. A lane without a sequence has none: nothing is to be
        done."""


@dataclass(eq=False, slots=True, kw_only=True)
class SequenceRecord(Lane):
    """One row of ``sequence`` and of the lane that it rules. ``follow`` takes the protocol's next value."""

    value: InboundSequence
    acks_to: EndpointReference | None = None
    """The endpoint that its acknowledgements are sent to; ``None``: they leave on the responses."""
    acks_fetched_by: str | None = None
    """The address of WS-MakeConnection where those may be fetched that no response takes along."""
    ack_due_at: int | None = field(default=None, init=False)
    """When the next acknowledgement is to be sent to ``acks_to``."""
    ack_waits: bool = field(default=False, init=False)
    """An acknowledgement waits to be fetched."""
    duplicates: int = field(default=0, init=False)
    acknowledged_at: int = field(default=0, init=False)
    """When an acknowledgement was sent last, as far as this process knows."""
    outbound: OutboundRecord | None = field(default=None, init=False)
    """The sequence that its replies go out in, where its source has offered one."""

    @classmethod
    def begin(cls, queue: int, value: InboundSequence, **source: Any) -> SequenceRecord:
        """A new sequence, as it is when ``value`` is granted. ``source``: the fields that tell of who sends it, and of
        what becomes of it."""
        return cls(
            queue=queue,
            kind="rm",
            created_at=value.active_at,
            numbers=value.received,
            ended=value.state.value if value.state in ENDED else None,
            value=value,
            **{name: getattr(value.terms, name) for name in _OF_TERMS},
            **{name: getattr(value, name) for name in ("due_at", *_OF_VALUE)},
            **source,
        )

    @property
    def protocol_row(self) -> dict[str, object]:
        """The columns of a sequence, but its lane and what created it."""
        terms = self.value.terms
        return {
            **dict(zip(PROTOCOL_COLUMNS, self.protocol, strict=True)),
            "rm": terms.rm.label,
            "behavior": terms.behavior.value,
            "incomplete_reason": terms.incomplete_reason,
            "expires_at": terms.expires_at,
            "acks_to": endpoint_text(self.acks_to),
            "acks_fetched_by": self.acks_fetched_by,
        }

    @property
    def protocol(self) -> tuple[Any, ...]:
        """``PROTOCOL_COLUMNS``."""
        value = self.value
        state = State.CREATED if value.state in ENDED else value.state
        return state, value.last_number, self.duplicates, value.late, self.ack_due_at, self.ack_waits

    @property
    def weight(self) -> int:
        return 1 + len(self.numbers.ranges) + len(self.value.unnamed.ranges)

    @property
    def in_any_order(self) -> bool:
        return not self.ordered or self.value.late is not None

    def follow(self, value: InboundSequence, accepted: int | None = None) -> None:
        """Take the next protocol value; the cursor goes where its definition puts it."""
        previous = self.value
        self.value = value
        self.numbers, self.limit, self.active_at = value.received, value.limit, value.active_at
        self.discard_from, self.discard_reason = value.discard_from, value.discard_reason
        if self.cursor >= previous.limit and value.limit > previous.limit and accepted != self.cursor:
            # Everything below the old limit is settled: the next unsettled is the next received.
            self.cursor = value.received.first_from(previous.limit, value.limit)
        if accepted is not None and accepted < self.cursor:
            self.cursor = accepted
        if self.held and (value.limit != previous.limit or value.discard_from is not None):
            self.release(value.held if value.discard_from is None else 0)
        if value.state is not previous.state or value.active_at < previous.active_at:  # else it is due no earlier
            if value.state in ENDED:
                self.ended = value.state.value
            due_at = value.due_at
            if due_at is None or self.due_at is None or due_at < self.due_at:
                self.due_at = due_at

    def name(self, number: int, now: int) -> None:
        """Acknowledgements may name it from now on, and one is to tell of it."""
        if self.value.unnamed.ranges and number in self.value.unnamed:
            self.value = self.value._replace(unnamed=self.value.unnamed.remove(number))
            self.ack_due_at = now if self.acks_to is not None else None
            self.ack_waits = self.acks_fetched_by is not None


About = SequenceRecord | OutboundRecord
"""The sequence that a message of this side is about: an inbound one, or an outbound one that answers none."""


def read(db: Database, key: int) -> Lane:
    """The lane with this ``key``, which is there, as it is committed: to be looked at."""
    return loaded(db, db.execute(lanes.LANE_BY_ID, {"key": key}).fetchone())


def loaded(db: Database, row: tuple[Any, ...]) -> Lane:
    """The lane of a row of ``LANE_COLUMNS``."""
    lane = {"lane": row[0]}
    ranges = tuple(db.execute(lanes.RANGES, lane))
    unnamed = AckRanges.of(number for (number,) in db.execute(entries.UNNAMED, lane))
    return load(row, AckRanges(ranges), unnamed)


def read_about(db: Database, answers: int | None, outbound: int | None) -> About:
    """The sequence that a channel is about, as it is committed."""
    if answers is None:
        assert outbound is not None
        return read_outbound(db, outbound)
    record = read(db, answers)
    assert isinstance(record, SequenceRecord)
    return record


def outbound_of(about: About) -> OutboundRecord | None:
    """The outbound sequence that may number messages about this one; ``None`` if there is none."""
    return about if isinstance(about, OutboundRecord) else about.outbound


def load(row: tuple[Any, ...], numbers: AckRanges, unnamed: AckRanges) -> Lane:
    """Make a lane of a row of ``LANE_COLUMNS``, its received numbers, and the ones that may not be acknowledged yet."""
    columns = dict(zip(LANE_COLUMNS, row, strict=True))
    known: dict[str, Any] = {
        **{name: columns[name] for name in ("id", *_GIVEN, *SAVED_COLUMNS)},
        "soap": SOAP_OF_LABEL[columns["soap"]],
        "addressing": ADDRESSING_OF_LABEL[columns["addressing"]],
        "assurance": DeliveryAssurance(columns["assurance"]),
        "ordered": bool(columns["ordered"]),
        "discarding": bool(columns["discarding"]),
        "is_consumed": columns["served_at"] is not None,
        "numbers": numbers,
    }
    lane = Lane(**known) if columns["sequence_lane"] is None else _sequence(columns, known, unnamed)
    lane.mark_written()
    return lane


def _sequence(columns: Mapping[str, Any], lane: Mapping[str, Any], unnamed: AckRanges) -> SequenceRecord:
    terms = Terms(
        **{name: lane[name] for name in _OF_TERMS},
        rm=RM_OF_LABEL[columns["sequence_rm"]],
        behavior=IncompleteSequenceBehavior(columns["sequence_behavior"]),
        expires_at=columns["sequence_expires_at"],
        incomplete_reason=columns["sequence_incomplete_reason"],
    )
    value = InboundSequence(
        terms,
        **{name: lane[name] for name in _OF_VALUE},
        state=State(lane["ended"] or columns["sequence_state"]),
        received=lane["numbers"],
        unnamed=unnamed,
        last_number=columns["sequence_last_number"],
        late=None if columns["sequence_late"] is None else Late(columns["sequence_late"]),
    )
    record = SequenceRecord(
        **lane,
        value=value,
        acks_to=endpoint_from(columns["sequence_acks_to"]),
        acks_fetched_by=columns["sequence_acks_fetched_by"],
    )
    record.duplicates = columns["sequence_duplicates"]
    record.ack_due_at, record.ack_waits = columns["sequence_ack_due_at"], bool(columns["sequence_ack_waits"])
    record.outbound = None if columns["outbound_id"] is None else OutboundRecord.load(columns, record)
    return record
