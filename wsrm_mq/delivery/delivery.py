"""One message on its way to the application, as a run has it: read from the store, or kept in memory since its commit;
and the outcome of its delivery."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

from wsrm_mq.queue.arrival import Body, Receipt
from wsrm_mq.queue.failure import UNKNOWN, Diagnosis
from wsrm_mq.queue.ownership import Claim
from wsrm_mq.queue.settle import ServiceReply
from wsrm_mq.sequence.ranges import AckRange
from wsrm_mq.sequence.terms import DeliveryAssurance
from wsrm_mq.store import entries, lanes
from wsrm_mq.store.channels import Channel
from wsrm_mq.store.group_commit import Verb
from wsrm_mq.store.loose import LOOSE_BOUNDS, RUN_LOOSE
from wsrm_mq.store.outbound import OutboundRecord, read
from wsrm_mq.store.store import Store

if TYPE_CHECKING:
    from wsrm_mq.store.transaction import Transaction


class Key(NamedTuple):
    """The key by which the application knows a message: identifier and number that it came under, and the plan that
    makes it a new one."""

    identifier: str
    number: int
    replay_id: str = ""


class Delivery(NamedTuple):
    """All that a call of the application needs. ``environ`` is the stored part of the request, as JSON; ``rm``,
    ``soap`` and ``addressing`` are labels of versions."""

    position: int
    number: int
    identifier: str
    partner: str | None
    rm: str
    soap: str
    addressing: str
    action: str | None
    message_id: str | None
    environ: str
    principal: str | None
    connection: str | None
    body: Body
    wants_reply: bool
    attempt: int = 1
    """1 for the first try."""
    redelivery: bool = False
    """The application may have seen it before."""
    late: bool = False
    """Out of order: an operator had forced the sequence past it before it came."""
    at_most_once: bool = False
    """Settled before the call."""
    is_waited_for: bool = False
    """A request waits for the settlement, or may wait for it by now."""
    is_replay: bool = False
    """It was read back from the store: the second loop delivers it."""
    channel: Channel | None = None
    """The channel in which it is sent; ``None``: it is delivered to the application."""
    outbound: OutboundRecord | None = None
    """The sequence of requests that it is about, as its run has found it."""
    received_at: int = 0
    """The time when a message to be sent was made."""
    source: Key | None = None
    """The key that it came under, where an operator has it delivered again: its sequence here is one of replays."""

    @property
    def key(self) -> Key:
        return self.source or Key(self.identifier, self.number)


@dataclass(eq=False, slots=True)
class Heard:
    """The changes that the answer to a sent message makes."""

    verb: Verb[Receipt]
    committed: Callable[[Receipt], object]
    """To be called with its result where the commit is told."""
    size: int
    """Bytes that it writes, about."""
    is_plain: bool
    """The next message of the lane may leave before it is committed: it is not about that one, nor is it the last word
    on the message that it answers, which leaves again otherwise."""
    ranges: frozenset[tuple[str, AckRange]]
    """The acknowledged ranges, by identifier."""
    later: Heard | None = None
    """A later answer that acknowledges the same is about to be committed too: it is taken in the place of this one."""
    taken: tuple[Transaction, frozenset[int]] | None = None
    """The transaction that has taken it, and the positions of the messages that it has settled."""

    def follow(self, before: Heard | None) -> None:
        """Take the place of ``before``, an earlier answer in the same lane, where this one acknowledges all that it
        does and neither says more."""
        if before is not None and before.is_plain and self.is_plain:
            is_said_again = all(self._has(identifier, *range_) for identifier, range_ in before.ranges)
            before.later = self if is_said_again else None

    def take(self, tx: Transaction) -> Receipt:
        """Take it, or the last one in its place, once in a transaction: so its messages are written once."""
        last = self
        while last.later is not None:
            last = last.later
        receipt = Receipt()
        if last.taken is None or last.taken[0] is not tx:
            receipt = last.verb(tx)
            last.taken = tx, frozenset(receipt.acknowledged)
        self.taken = last.taken
        return receipt

    def has_settled(self, position: int) -> bool:
        return self.taken is not None and position in self.taken[1]

    def _has(self, identifier: str, lower: int, upper: int) -> bool:
        return any(one == identifier and low <= lower and upper <= up for one, (low, up) in self.ranges)


@dataclass(slots=True)
class Outcome:
    """The outcome of a delivery. ``error`` says why the application has not taken the message; ``None``: it has.
    ``remark`` is the answer that it gave to a one-way message, where it took the message and answered a fault or
    content: the sender does not read that."""

    reply: ServiceReply | None = None
    error: str | None = None
    remark: str | None = None
    diagnosis: Diagnosis = UNKNOWN
    """The diagnosis of the error, or of the fault that the remark is about."""
    is_known: bool = False
    """The application says that it had done it before."""
    is_copied: bool = False
    """The message is published, now that the application has taken it."""
    is_sent: bool = False
    """It has left, and is settled only by its acknowledgement."""
    is_again: bool = False
    """It has left before."""
    left_alone: float | None = None
    """With an error: nothing was called or sent, and nothing is to be for so many seconds. That counts as no
    attempt."""
    seconds: float | None = None
    """How long the call took; ``None``: it was not called yet."""
    heard: Heard | None = None
    """It is committed with the outcome, which does not stop it."""
    settling: Callable[[BaseException | None], object] | None = None
    """Ends a span, once the outcome is stored or could not be; see ``tracing``."""


Call = Callable[[Delivery], Outcome]
"""Calls the application. Raises nothing: a raising application is an ``Outcome`` with an error."""


# The messages that a run can have: read from the store, or kept in memory since their commit.
#
# The store has them all. Reading them back would cost about a quarter of the CPU of a message whose sequence is being
# run when it comes.

RUN_LENGTH: Final = 64
_KEPT_MESSAGES: Final = 1_000
_KEPT_BYTES: Final = 16 * 1024 * 1024


class _Bounds(NamedTuple):
    """The row that ``RUN_BOUNDS`` answers for a lane."""

    cursor: int
    limit: int
    discard_from: int | None
    redelivery_below: int
    identifier: str
    partner: str | None
    ordered: int
    assurance: str
    rm: str
    soap: str
    addressing: str
    kind: str
    replay_id: str
    answers: int | None
    """This column and those below are of its channel, if it has one."""
    outbound: int | None
    address: str | None
    parameters: str
    is_numbered: int

    @property
    def channel(self) -> Channel | None:
        """The channel in which its messages are sent; ``None``: they go to the application."""
        if self.address is None:
            return None
        return Channel.load(self.answers, self.outbound, self.address, self.parameters, self.is_numbered)


class _Row(NamedTuple):
    """The row that ``RUN`` answers for a message; ``RUN_REPLAYS`` has the last two columns too."""

    position: int
    number: int
    deliveries: int
    failures: int
    wants_reply: int
    late: int
    waiter: str | None
    message: int
    action: str | None
    message_id: str | None
    environ: str
    principal: str | None
    connection: str | None
    size: int
    body: bytes | None
    """``None``: it is large, and is read when the application reads it."""
    received_at: int
    source: str | None = None
    """Identifier of the sequence, and there the number, that the message came with."""
    source_number: int | None = None


def deliverable(store: Store, claim: Claim, after: int) -> list[Delivery]:
    """Read the next messages of a sequence to run, from number ``after`` on, at most ``RUN_LENGTH``; none where nothing
    of it is deliverable."""
    with store.reader() as db:
        if claim.entry:
            key = {"key": claim.entry}
            bounds = _Bounds._make(db.execute(LOOSE_BOUNDS, key).fetchone())
            rows = db.execute(RUN_LOOSE, key).fetchall() if after < bounds.limit else []
        else:
            bounds = _Bounds._make(db.execute(lanes.RUN_BOUNDS, {"key": claim.lane}).fetchone())
            limit, discard_from = bounds.limit, bounds.discard_from
            rows = db.execute(
                entries.RUN_REPLAYS if bounds.kind == "replay" else entries.RUN,
                {
                    "lane": claim.lane,
                    "lower": max(bounds.cursor, after),
                    "upper": limit if discard_from is None else min(limit, discard_from),
                    "now": store.clock(),
                    "ordered": bounds.ordered,
                    "count": RUN_LENGTH,
                },
            ).fetchall()
        channel, outbound = bounds.channel, None
        if channel is not None and channel.answers is None and channel.outbound is not None:
            outbound = read(db, channel.outbound)
    return [_delivery(store, bounds, channel, outbound, _Row(*row)) for row in rows]


def _delivery(
    store: Store, bounds: _Bounds, channel: Channel | None, outbound: OutboundRecord | None, row: _Row
) -> Delivery:
    body = Body(row.body) if row.body is not None else _StoredBody(store, row.message, row.size)
    redelivery = row.deliveries > 0 or row.number < bounds.redelivery_below
    source = None
    if row.source is not None and row.source_number is not None:
        source = Key(row.source, row.source_number, bounds.replay_id)
        redelivery = redelivery or not bounds.replay_id
    return Delivery(
        position=row.position,
        number=row.number,
        identifier=bounds.identifier,
        partner=bounds.partner,
        rm=bounds.rm,
        soap=bounds.soap,
        addressing=bounds.addressing,
        action=row.action,
        message_id=row.message_id,
        environ=row.environ,
        principal=row.principal,
        connection=row.connection,
        body=body,
        wants_reply=bool(row.wants_reply),
        attempt=row.deliveries + 1,
        late=bool(row.late),
        redelivery=redelivery,
        at_most_once=bounds.assurance == DeliveryAssurance.AT_MOST_ONCE,
        is_waited_for=bool(row.wants_reply) or row.waiter is not None,
        is_replay=True,
        channel=channel,
        outbound=outbound,
        received_at=row.received_at,
        source=source,
    )


class _StoredBody(Body):
    """A large body in the store, copied to a temporary file when the application reads it: no connection is lent
    while the application runs."""

    __slots__ = ("_message", "_store")

    def __init__(self, store: Store, message: int, size: int) -> None:
        super().__init__(None, None, size)
        self._store = store
        self._message = message

    def open(self) -> BinaryIO:
        file = tempfile.TemporaryFile()  # noqa: SIM115 - the reader closes it
        with self._store.reader() as db, db.open_body(self._message) as body:
            shutil.copyfileobj(body, file, 1024 * 1024)
        file.seek(0)
        return file


class Prefetch:
    """Messages in memory, by lane and number. They are bounded in messages and bytes; a body in a file is not kept, it
    would keep the file."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[int, dict[int, Delivery]] = {}
        self._messages = 0
        self._bytes = 0

    def keep(self, sequence: int, delivery: Delivery) -> None:
        size = delivery.body.size
        with self._lock:
            if delivery.body.content is None or self._messages >= _KEPT_MESSAGES or self._bytes + size > _KEPT_BYTES:
                return
            self._kept.setdefault(sequence, {})[delivery.number] = delivery
            self._messages += 1
            self._bytes += size

    def take(self, sequence: int, number: int) -> Delivery | None:
        if sequence not in self._kept:
            return None
        with self._lock:
            delivery = self._kept.get(sequence, {}).pop(number, None)
            if delivery is not None:
                self._messages -= 1
                self._bytes -= delivery.body.size
            return delivery

    def drop(self, sequence: int) -> None:
        """Forget the messages of a lane: the next ones are run from the store, or by another process."""
        if sequence not in self._kept:
            return
        with self._lock:
            for delivery in self._kept.pop(sequence, {}).values():
                self._messages -= 1
                self._bytes -= delivery.body.size
