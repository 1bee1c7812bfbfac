"""The values that pass between a front and the store: a message that arrived, and a receipt of its commit; and
the sequence that a sender speaks of."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from wsrm_mq.queue.ownership import Claim
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.queue.room import not_ours
from wsrm_mq.sequence.elements import (
    AckRequested,
    EndpointReference,
    SequenceAcknowledgement,
    SequenceHeader,
    TerminateSequence,
)
from wsrm_mq.sequence.faults import Fault, MalformedMessage, UnknownSequence
from wsrm_mq.sequence.inbound import InboundSequence
from wsrm_mq.sequence.ranges import EMPTY
from wsrm_mq.sequence.states import Act
from wsrm_mq.store import lanes
from wsrm_mq.store.port import Database
from wsrm_mq.store.records import Lane, SequenceRecord, load
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.versions import AddressingVersion, RMVersion, SOAPVersion

if TYPE_CHECKING:
    from wsrm_mq.queue.sending import OutgoingMessage
    from wsrm_mq.sequence.outbound import OutboundTerms
    from wsrm_mq.sequence.terms import Terms


class Sender(NamedTuple):
    """Who speaks, in which versions, to which queue: what a sequence is bound to."""

    queue: str
    rm: RMVersion
    soap: SOAPVersion
    addressing: AddressingVersion
    principal: str | None = None
    peer: str | None = None
    """The address it speaks from."""
    partner: str | None = None
    """The configuration section that fits it."""

    @property
    def who(self) -> str:
        """The key by which limits are counted: the principal, without one the address."""
        return self.principal or self.peer or ""


class Body:
    """The bytes of a message as received: in memory, or in a spooled file where they are many."""

    __slots__ = ("content", "file", "is_counted", "size")

    def __init__(
        self, content: bytes | None, file: BinaryIO | None = None, size: int = 0, *, is_counted: bool = True
    ) -> None:
        self.content = content
        self.file = file
        self.size = len(content) if content is not None else size
        self.is_counted = is_counted
        """The server vouches for its end. Some show a dropped connection as the end of a body without a length."""

    def open(self) -> BinaryIO:
        """A stream from the first byte. A spooled body has one: do not open it twice at a time."""
        if self.content is not None:
            return io.BytesIO(self.content)
        assert self.file is not None
        self.file.seek(0)
        return self.file


class Arrival(NamedTuple):
    """A message with a Sequence header, or one that gets its place when it is stored. ``environ`` is the part of the
    request that a replay needs, as JSON."""

    header: SequenceHeader
    message_id: str | None
    body: Body
    sender: Sender
    action: str | None
    environ: str
    connection: str | None
    policy: QueuePolicy
    wants_reply: bool = False
    named: bool = True
    empty_last: bool = False
    ack_requested: tuple[AckRequested, ...] = ()
    last_reply: Callable[[EndpointReference | None], OutgoingMessage] | None = None
    """For a 1.0 LastMessage without a body: makes the message that answers it, where the source has offered a
    sequence."""
    waits: bool = False
    """A request waits here for what becomes of it: its answer depends on that."""


class Receipt:
    """The outcome of a request, as committed. The defaults hold for most requests."""

    act: Act | None = None
    fault: Fault | None = None
    no_room: str = ""
    outcome: str = "refused"
    """The same in a word, as it is counted; see ``store.counting.RECEIVED``."""
    acknowledgement: SequenceAcknowledgement | None = None
    """The acknowledgement of the sequence that the request is about."""
    others: tuple[SequenceAcknowledgement, ...] = ()
    """The acknowledgements of other sequences that AckRequested headers asked for."""
    other_faults: tuple[Fault, ...] = ()
    wrong_acknowledgements: tuple[Fault, ...] = ()
    """The errors of acknowledgements on the request, which are about sequences sent from here."""
    acknowledged: tuple[int, ...] = ()
    """The positions of messages sent from here that it has acknowledged."""
    lane: int = 0
    """Key of the lane that it is about."""
    claim: Claim | None = None
    sends: tuple[Claim, ...] = ()
    """On what is to be sent because of it, by endpoint."""
    is_answered_elsewhere: bool = False
    """The answer is stored to be sent: none leaves on the response."""
    terminates: TerminateSequence | None = None
    """The end of an offered sequence, told from here: on the response, or at its endpoint."""
    faults_to: EndpointReference | None = None
    """Where a fault about the sequence is sent; ``None``: it leaves on the response."""
    is_consumed: bool = False
    """Consumers lease the lane that it is about: something may be ready for them."""
    needs_watch: bool = False
    """Another instance runs the sequence, or died while it did; or a tail has to be moved to the dead letters."""

    def turn_away(self, no_room: str) -> None:
        """Refuse for lack of room: nothing was recorded, and the sender is told to come again."""
        self.no_room = no_room
        self.outcome = "no_room"


class MessageReceipt(Receipt):
    """The receipt of a message."""

    position: int | None = None
    settled: bool = False
    given: SequenceHeader | None = None
    """The place that a message without WS-RM got."""
    partner: str | None = None
    """The partner of the sequence, whose policy rules retries."""
    at_most_once: bool = False
    """Whether the sequence was granted so, whatever the policy says by now."""
    is_late: bool = False
    """An operator had forced the sequence past it."""
    runs_here: bool = False
    """The claim begins with this message, or this instance runs its sequence and will come to it: it can be run
    without reading it again."""
    is_stuck: bool = False
    """A request waits for it, and its sequence is held, is blocked, or waits for a retry: that takes longer."""
    acknowledge_now: bool = False
    """The acknowledgement may not be put off: see ``acknowledgement_interval``."""
    has_last_reply: bool = False
    """It is the last message of its sequence, and is answered with that of the offered one."""
    reply_age: int | None = None
    """A duplicate: how long ago the reply of the first copy was stored, and left, ms."""


class CreateReceipt(Receipt):
    """The receipt of a CreateSequence."""

    created: InboundSequence | None = None
    """The sequence that answers it."""
    lifetime: int = 0
    """The granted Expires, in ms."""
    is_offer_accepted: bool = False


class EndReceipt(Receipt):
    """The receipt of a CloseSequence or TerminateSequence."""

    unfinished: int | None = None
    """Position of the last message that runs or may run and is not named yet."""


class Fetched(NamedTuple):
    """A message as it was stored, and its place."""

    position: int
    terms: Terms | OutboundTerms
    """The terms of the sequence that it is about."""
    content_type: str
    body: bytes
    place: SequenceHeader | None
    """In the offered sequence: it is fetched again until it is acknowledged there."""
    is_pending: bool = False
    """More waits for the same address."""


class FetchReceipt(Receipt):
    """The receipt of a MakeConnection. The acknowledgements that wait are in ``others``."""

    fetched: Fetched | None = None


# the sequence that a sender speaks of


def may_take(db: Database, sender: Sender, identifier: str) -> bool:
    """Whether a sequence of this name may still take messages of ``sender``: asked before a message is read to its end,
    so that what is refused in any case costs no more than its headers."""
    row = db.execute(lanes.LANE_BY_IDENTIFIER, {"identifier": identifier}).fetchone()
    if row is None:
        return False
    record = load(row, EMPTY, EMPTY)
    return isinstance(record, SequenceRecord) and record.principal == sender.principal and record.ended is None


def find(tx: Transaction, sender: Sender, identifier: str, receipt: Receipt) -> SequenceRecord | None:
    """The sequence that ``sender`` may speak of. Another sender learns nothing: to it the sequence is unknown
    (SEC-003)."""
    record = tx.sequence_named(identifier)
    if (
        record is None
        or record.principal != sender.principal
        or record.value.terms.rm is not sender.rm
        or record.queue != tx.queue_named(sender.queue)
    ):
        receipt.fault = UnknownSequence("The identifier is not that of a sequence known here.", identifier)
        return None
    if not tx.serves(record.queue):
        receipt.turn_away(not_ours(sender.queue))
        return None
    terms = record.value.terms
    if terms.soap is not sender.soap or terms.addressing is not sender.addressing:
        receipt.fault = MalformedMessage(
            f"The sequence was created with SOAP {terms.soap.label} and WS-Addressing {terms.addressing.label}; "
            "all its messages have to use the same."
        )
        return None
    return record


def look_around(tx: Transaction, lane: Lane, receipt: Receipt) -> None:
    """Put down what is to be done about the lane once this is committed."""
    receipt.lane = lane.id
    receipt.is_consumed = lane.is_consumed
    is_run_elsewhere = lane.owner not in (None, tx.instance) and not lane.is_consumed
    receipt.needs_watch = receipt.needs_watch or lane.discarding or is_run_elsewhere
    if isinstance(lane, SequenceRecord):
        receipt.faults_to = lane.acks_to
