"""A sequence as the store keeps it: the protocol's value and, beside it, how far delivery has come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final

from wsrm_mq.sequence.elements import EndpointReference, IncompleteSequenceBehavior
from wsrm_mq.sequence.inbound import InboundSequence, Late
from wsrm_mq.sequence.ranges import AckRange, AckRanges
from wsrm_mq.sequence.running import DeliveryState, delivery_state, is_unsettled
from wsrm_mq.sequence.states import ENDED, State
from wsrm_mq.sequence.terms import DeliveryAssurance, Terms
from wsrm_mq.store import entries, sequences
from wsrm_mq.store.channels import endpoint_from, endpoint_text
from wsrm_mq.store.outgoing import Outgoing
from wsrm_mq.store.port import Database
from wsrm_mq.store.sequences import SAVED_COLUMNS, SEQUENCE_COLUMNS
from wsrm_mq.versions import ADDRESSING_OF_LABEL, SOAP_OF_LABEL, UNSEQUENCED, WSRM_1_0, WSRM_1_1

__all__ = ["SequenceRecord"]

Written = tuple[tuple[Any, ...], tuple[AckRange, ...]]

_RM: Final = {version.label: version for version in (WSRM_1_0, WSRM_1_1, UNSEQUENCED)}
_AS_STORED: Final = (
    *("cursor", "owner", "fence", "running_since", "retry_from", "retry_at", "blocked", "on_hold_since"),
    *("redelivery_below", "due_at", "held", "held_bytes", "duplicates", "ended_at", "ack_due_at"),
)
"""Columns that a record has under the same name, and as they are."""


@dataclass(eq=False, slots=True)
class SequenceRecord:
    """One row of ``sequence`` with its ranges. Only a transaction changes it, and any rollback drops it. Times in ms
    since the epoch."""

    id: int
    queue: int
    value: InboundSequence
    _: KW_ONLY
    principal: str | None = None
    peer: str | None = None
    partner: str | None = None
    connection: str | None = None
    """The connection whose messages these are, where they came without WS-RM."""
    created_at: int = 0
    kind: str = "rm"
    """``rm``: its source made it; ``connection``: this side made it of messages without WS-RM; ``replay``: they are
    delivered again; ``outgoing``: they are this side's own, and are sent."""
    replay_of: int | None = None
    """Key of the sequence whose messages are replayed."""
    plan: str | None = None
    """The plan that they are replayed by, if there is one."""
    acks_to: EndpointReference | None = None
    """Where its acknowledgements are sent; ``None``: on the responses."""
    acks_fetched_by: str | None = None
    """The address of WS-MakeConnection where those may be fetched that no response takes along."""
    ack_due_at: int | None = field(default=None, init=False)
    """When the next acknowledgement is to be sent to ``acks_to``."""
    ack_waits: bool = field(default=False, init=False)
    """An acknowledgement waits to be fetched."""
    cursor: int = field(default=1, init=False)
    """The lowest accepted and unsettled number; ``limit`` if there is none."""
    owner: int | None = field(default=None, init=False)
    """Key of the instance that runs it."""
    fence: int = field(default=0, init=False)
    """Grows with every change of owner; a settlement has to bring the one it was given."""
    running_since: int | None = field(default=None, init=False)
    retry_at: int | None = field(default=None, init=False)
    retry_from: int | None = field(default=None, init=False)
    """When the wait until ``retry_at`` began: one that begins in the future is over, the clock went back."""
    blocked: int | None = field(default=None, init=False)
    """Position of the entry that stopped it."""
    on_hold_since: int | None = field(default=None, init=False)
    """Since when an operator holds it: nothing more of it is delivered."""
    redelivery_below: int = field(default=0, init=False)
    """Deliveries below this number may be repeated: an owner died while it ran them."""
    duplicates: int = field(default=0, init=False)
    discarding: bool = field(default=False, init=False)
    """Entries from ``discard_from`` on are still being moved to the dead letters."""
    ended_at: int | None = field(default=None, init=False)
    due_at: int | None = field(init=False)
    """When to look whether the clock ends it: not later than that is, and earlier where there was traffic since. So the
    column is not written with every message."""
    held: int = field(default=0, init=False)
    """How many accepted numbers wait."""
    held_bytes: int = field(default=0, init=False)
    """The bytes of their bodies; more than that once some of several runs were released. See ``queue.room``."""
    held_is_exact: bool = field(default=False, init=False)
    """``held_bytes`` is the sum; else it may be more."""
    acknowledged_at: int = field(default=0, init=False)
    """When an acknowledgement was sent last, as far as this process knows."""
    outgoing: Outgoing | None = field(default=None, init=False)
    """The sequence that its replies go out in, where its source has offered one."""
    written_outgoing: Outgoing | None = field(default=None, init=False)
    """The same, as the store has it."""
    written: Written = field(default=((), ()), init=False)
    """``saved`` and the ranges of what was received, as the store has them."""

    def __post_init__(self) -> None:
        self.due_at = self.value.due_at

    @property
    def sender(self) -> str | None:
        """Whom it is counted for what is sent because of it."""
        return self.partner or self.principal or self.peer

    @classmethod
    def read(cls, db: Database, key: int) -> SequenceRecord:
        """The sequence with this ``key``, which is there, as it is committed: to be looked at."""
        row = db.execute(sequences.SEQUENCE_BY_ID, {"key": key}).fetchone()
        ranges = AckRanges(tuple(db.execute(sequences.RANGES, {"sequence": key})))
        unnamed = AckRanges.of(number for (number,) in db.execute(entries.UNNAMED, {"sequence": key}))
        return cls.load(row, ranges, unnamed)

    @classmethod
    def load(cls, row: tuple[Any, ...], ranges: AckRanges, unnamed: AckRanges) -> SequenceRecord:
        """From a row of ``SEQUENCE_COLUMNS``, and what the store has of it in other tables."""
        columns = dict(zip(SEQUENCE_COLUMNS, row, strict=True))
        terms = _terms(columns)
        value = InboundSequence(
            terms,
            active_at=columns["active_at"],
            state=State(columns["ended"] or columns["state"]),
            received=ranges,
            unnamed=unnamed,
            limit=columns["limit"],
            last_number=columns["last_number"],
            discard_from=columns["discard_from"],
            discard_reason=columns["discard_reason"],
            late=None if columns["late"] is None else Late(columns["late"]),
        )
        record = cls(
            columns["id"],
            columns["queue"],
            value,
            principal=columns["principal"],
            peer=columns["peer"],
            partner=columns["partner"],
            connection=columns["connection"],
            created_at=columns["created_at"],
            kind=columns["kind"],
            replay_of=columns["replay_of"],
            plan=columns["plan"],
            acks_to=endpoint_from(columns["acks_to"]),
            acks_fetched_by=columns["acks_fetched_by"],
        )
        for name in _AS_STORED:
            setattr(record, name, columns[name])
        record.discarding = bool(columns["discarding"])
        record.ack_waits = bool(columns["ack_waits"])
        record.outgoing = record.written_outgoing = Outgoing.load(columns, terms.rm)
        record.mark_written()
        return record

    @property
    def terms_row(self) -> dict[str, object]:
        terms = self.value.terms
        return {
            "queue": self.queue,
            "principal": self.principal,
            "peer": self.peer,
            "partner": self.partner,
            "kind": self.kind,
            "connection": self.connection,
            "replay_of": self.replay_of,
            "plan": self.plan,
            "acks_to": endpoint_text(self.acks_to),
            "acks_fetched_by": self.acks_fetched_by,
            "identifier": terms.identifier,
            "rm": terms.rm.label,
            "soap": terms.soap.label,
            "addressing": terms.addressing.label,
            "behavior": terms.behavior.value,
            "assurance": terms.assurance.value,
            "ordered": int(terms.ordered),
            "incomplete_reason": terms.incomplete_reason,
            "created_at": self.created_at,
            "expires_at": terms.expires_at,
            "inactivity": terms.inactivity,
        }

    @property
    def saved(self) -> tuple[Any, ...]:
        """``SAVED_COLUMNS``; the state, which says how it ended too, as it is in Python."""
        value = self.value
        return (
            value.active_at,
            value.received.expected,
            self.cursor,
            value.limit,
            self.fence,
            self.running_since,
            self.owner,
            self.held,
            self.held_bytes,
            value.state,
            None,
            self.ended_at,
            self.due_at,
            value.last_number,
            value.discard_from,
            value.discard_reason,
            self.discarding,
            self.retry_from,
            self.retry_at,
            self.blocked,
            self.redelivery_below,
            self.duplicates,
            self.on_hold_since,
            value.late,
            self.ack_due_at,
            self.ack_waits,
        )

    def mark_written(self) -> Written:
        """All of it is in the store, or will be with this transaction."""
        self.written = self.saved, self.value.received.ranges
        return self.written

    @property
    def saved_row(self) -> dict[str, object]:
        """``SAVED_COLUMNS`` by name."""
        state = self.value.state
        row = dict(zip(SAVED_COLUMNS, self.saved, strict=True))
        if state in ENDED:
            return row | {"state": "ended", "ended": state.value}
        return row | {"state": state.value}

    @property
    def is_rm(self) -> bool:
        """A sequence that its source speaks of; else one that this side has made."""
        return self.kind == "rm"

    @property
    def is_unsettled(self) -> bool:
        """Something below the limit is neither settled nor given up."""
        return is_unsettled(self.cursor, self.value.limit, self.value.discard_from)

    @property
    def has_next(self) -> bool:
        """Something is to be delivered now or after a retry. Its owner asks: the state is running whatever is left."""
        return self.on_hold_since is None and self.is_unsettled

    @property
    def keeps_tail(self) -> bool:
        """What is given up is not moved yet: an operator holds the sequence, or its owner may be running some of it,
        which was deliverable when the run began."""
        begun = self.value.discard_from is not None and self.value.discard_from <= self.cursor < self.value.limit
        return self.on_hold_since is not None or (self.owner is not None and begun)

    def delivery_state(self, now: int) -> DeliveryState:
        value = self.value
        return delivery_state(
            on_hold_since=self.on_hold_since,
            blocked=self.blocked,
            owner=self.owner,
            cursor=self.cursor,
            limit=value.limit,
            discard_from=value.discard_from,
            retry_from=self.retry_from,
            retry_at=self.retry_at,
            discarding=self.discarding,
            held=self.held,
            now=now,
        )

    @property
    def is_over(self) -> bool:
        """Ended, and nothing is left to be done with it, now or later."""
        return self.value.state in ENDED and self.delivery_state(self.value.active_at) is DeliveryState.IDLE

    def wait(self, now: int, retry_at: int | None) -> None:
        """Try the head again at ``retry_at``; ``None``: whenever it can be."""
        self.retry_at = retry_at
        self.retry_from = now if retry_at is not None else None

    def follow(self, value: InboundSequence, accepted: int | None = None) -> None:
        """Take the next protocol value; the cursor goes where its definition puts it."""
        previous = self.value
        self.value = value
        if self.cursor >= previous.limit and value.limit > previous.limit and accepted != self.cursor:
            # Everything below the old limit is settled: the next unsettled is the next received.
            self.cursor = value.received.first_from(previous.limit, value.limit)
        if accepted is not None and accepted < self.cursor:
            self.cursor = accepted
        if self.held and (value.limit != previous.limit or value.discard_from is not None):
            self.release(value.held if value.discard_from is None else 0)
        if value.state is not previous.state or value.active_at < previous.active_at:  # else it is due no earlier
            due_at = value.due_at
            if due_at is None or self.due_at is None or due_at < self.due_at:
                self.due_at = due_at

    def hold(self, size: int) -> None:
        """A message of ``size`` bytes was accepted and waits."""
        self.held_is_exact = self.held_is_exact or not self.held
        self.held += 1
        self.held_bytes += size

    def release(self, left: int) -> None:
        """Some of what was held goes on, or all of it: so many are ``left``. What those weigh is not known here."""
        self.held = left
        self.held_is_exact = False
        if not left:
            self.held_bytes = 0

    def name(self, number: int, now: int) -> None:
        """Acknowledgements may name it from now on, and one is to tell of it."""
        if number in self.value.unnamed:
            self.value = self.value._replace(unnamed=self.value.unnamed.remove(number))
            self.ack_due_at = now if self.acks_to is not None else None
            self.ack_waits = self.acks_fetched_by is not None

    def passed(self, number: int) -> None:
        """``number`` was settled in order: the cursor goes to the next received number."""
        if number >= self.cursor:
            beyond, limit = number + 1, self.value.limit
            self.cursor = limit if beyond >= limit else self.value.received.first_from(beyond, limit)


def _terms(columns: Mapping[str, Any]) -> Terms:
    return Terms(
        identifier=columns["identifier"],
        rm=_RM[columns["rm"]],
        soap=SOAP_OF_LABEL[columns["soap"]],
        addressing=ADDRESSING_OF_LABEL[columns["addressing"]],
        behavior=IncompleteSequenceBehavior(columns["behavior"]),
        assurance=DeliveryAssurance(columns["assurance"]),
        ordered=bool(columns["ordered"]),
        expires_at=columns["expires_at"],
        inactivity=columns["inactivity"],
        incomplete_reason=columns["incomplete_reason"],
    )
