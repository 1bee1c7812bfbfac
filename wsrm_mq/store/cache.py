"""A process keeps some of the store in memory from one transaction to the next.

It is kept only while the version that ``begin`` answers proves that no other connection wrote. What a transaction
changes of it is true once that is committed; any rollback empties it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from wsrm_mq.errors import LeftAlone
from wsrm_mq.sequence.outbound import RoundTrips
from wsrm_mq.store.applications import NAMELESS, Serving
from wsrm_mq.store.outbound import OutboundRecord
from wsrm_mq.store.queues import QueueRow
from wsrm_mq.store.records import Lane

MAX_WEIGHT: Final = 40_000
"""The weight of all lanes that are kept: 20,000 received in order, fewer that have gaps."""
MAX_QUEUES: Final = 10_000
MAX_CONNECTIONS: Final = 10_000
MAX_REQUESTING: Final = 1_000


class ConnectionCache:
    """Facts about connections, filled for the connections that are asked about and not for every message."""

    def __init__(self) -> None:
        self.lanes: dict[tuple[str, int], int] = {}
        """Key of the open lane of a connection's messages without WS-RM in a queue."""
        self.unsettled: dict[str, int] = {}
        """How many unsettled messages a connection has, at most."""
        self.asked_at: dict[str, int] = {}
        """The time of the transaction that counted a connection's messages last."""
        self.floors: OrderedDict[str, int] = OrderedDict()
        """The key of a message below which, and at which, all of a connection's are settled: for ever, so it stays
        true whatever is written."""

    def clear(self) -> None:
        self.lanes.clear()
        self.unsettled.clear()
        self.asked_at.clear()
        self.floors = OrderedDict()

    def set_floor(self, connection: str, key: int) -> None:
        self.floors[connection] = key
        self.floors.move_to_end(connection)
        if len(self.floors) > MAX_CONNECTIONS:
            gone, _key = self.floors.popitem(last=False)
            self.unsettled.pop(gone, None)
            self.asked_at.pop(gone, None)

    def set_lane(self, connection: str, queue: int, key: int) -> None:
        if len(self.lanes) > MAX_CONNECTIONS:
            self.lanes.clear()
        self.lanes[connection, queue] = key


class LaneCache:
    """Lanes, the least recently used first out. One weighs as much as it has ranges, which may be thousands, and
    one more."""

    def __init__(self) -> None:
        self.records: OrderedDict[int, Lane] = OrderedDict()
        self.keys: dict[str, int] = {}
        """Keys of lanes by identifier."""
        self.weight = 0
        self._weights: dict[int, int] = {}
        self.held_in_all: tuple[int, int] | None = None
        """Messages and bytes held in all lanes of the store; ``None``: not asked yet."""

    def clear(self) -> None:
        self.records.clear()
        self.keys.clear()
        self._weights.clear()
        self.weight = 0
        self.held_in_all = None

    def keep(self, records: Iterable[Lane], held: int = 0, held_bytes: int = 0) -> None:
        """Keep what was committed, with which so much more is ``held`` in all. What has ended and has nothing left to
        deliver is not kept, unless this side's own messages leave in it: those lanes have ended from the beginning."""
        if self.held_in_all is not None:
            self.held_in_all = (self.held_in_all[0] + held, self.held_in_all[1] + held_bytes)
        for record in records:
            if record.ended_at is not None and record.kind != "outgoing" and record.is_over:
                self.drop(record.id)
                continue
            key, weight = record.id, record.weight
            self.weight += weight - self._weights.get(key, 0)
            self._weights[key] = weight
            self.keys[record.identifier] = key
            self.records[key] = record
            self.records.move_to_end(key)
            while self.weight > MAX_WEIGHT and len(self.records) > 1:
                self.drop(next(iter(self.records)))

    def drop(self, key: int) -> None:
        record = self.records.pop(key, None)
        if record is not None:
            del self.keys[record.identifier]
            self.weight -= self._weights.pop(key)


class RequestingCache:
    """Outbound sequences of requests."""

    def __init__(self) -> None:
        self.records: dict[int, OutboundRecord] = {}
        self.newest: dict[tuple[object, ...], int] = {}
        """Keys of the newest in a queue, by that and the versions."""

    def clear(self) -> None:
        self.records.clear()
        self.newest.clear()

    def named(self, identifier: str) -> OutboundRecord | None:
        return next((one for one in self.records.values() if one.value.terms.identifier == identifier), None)

    def keep(self, record: OutboundRecord) -> None:
        if len(self.records) >= MAX_REQUESTING:
            self.clear()
        self.records[record.id] = record

    def drop(self, key: int) -> None:
        if self.records.pop(key, None) is not None:
            self.newest.clear()


MaySend = Callable[[str, str | None, float, int], LeftAlone | None]
"""Why nothing is sent now to an address because of a sender, after so many seconds, where a transaction has taken so
many sequences that lead to addresses; ``None``: it may be."""


def may_send(_url: str, _who: str | None, _waited: float, _taken: int) -> LeftAlone | None:
    """Let all leave, wherever it is to."""
    return None


class Cache:
    """``serving`` is what the process serves."""

    def __init__(self, serving: Serving = NAMELESS) -> None:
        self.serving = serving
        self.lanes = LaneCache()
        self.connections = ConnectionCache()
        self.requesting = RequestingCache()
        self.queues: OrderedDict[str, QueueRow] = OrderedDict()
        """Queues by name, the first that was asked for first out."""
        self.skipped: dict[tuple[str, int], int] = {}
        """When it was told last of a queue that something is not added to it: ms since the epoch, by event and key."""
        self.served: set[int] = set()
        """Keys of queues that the process may run. No other takes one of them away while this one lives, but for
        requests, which may be signed from now on."""
        self.has_slot: Callable[[int], bool] = lambda _taken: True
        """Whether the process has a thread for one sequence more, where a transaction has taken so many."""
        self.left_alone: MaySend = may_send
        self.round_trips = RoundTrips()
        self.positions: Iterator[int] | None = None
        """The positions that are given next; ``None``: the store was not asked yet."""
        self.last_position = 0
        """The last that was given in a transaction that was committed; 0: none yet."""
        self._version: int | None = None

    def validate(self, version: int) -> bool:
        """Empty the cache if another connection has committed since; answers whether none has."""
        if version == self._version:
            return True
        served = set[int]() if self.serving.is_source else self.served
        floors, skipped = self.connections.floors, self.skipped
        self.clear()
        self.served, self.connections.floors, self.skipped = served, floors, skipped
        self._version = version
        return False

    def clear(self) -> None:
        self.lanes.clear()
        self.connections.clear()
        self.requesting.clear()
        self.queues.clear()
        self.skipped = {}
        self.served = set()
        self.positions = None
        self.last_position = 0
        self._version = None

    def keep_queue(self, name: str, row: QueueRow) -> None:
        self.queues[name] = row
        if len(self.queues) > MAX_QUEUES:
            self.queues.popitem(last=False)

    def drop_queues(self, keys: Collection[int]) -> None:
        """Forget queues that this process has deleted. ``validate`` forgets queues that another one has deleted."""
        self.served.difference_update(keys)
        for name in [name for name, row in self.queues.items() if row.key in keys]:
            del self.queues[name]
