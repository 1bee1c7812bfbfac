"""The messages that a run can have: read from the store, or kept in memory since their commit.

The store has them all. Reading them back would cost about a quarter of the CPU of a message whose sequence is being run
when it comes.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from typing import BinaryIO, Final, NamedTuple

from wsrm_mq.delivery.delivery import Delivery, Key
from wsrm_mq.queue.arrival import Body
from wsrm_mq.queue.ownership import Claim
from wsrm_mq.sequence.terms import DeliveryAssurance
from wsrm_mq.store import entries, lanes
from wsrm_mq.store.channels import Channel
from wsrm_mq.store.loose import LOOSE_BOUNDS, RUN_LOOSE
from wsrm_mq.store.outbound import OutboundRecord, read
from wsrm_mq.store.store import Store

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
