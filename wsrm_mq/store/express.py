"""The store of express messages: the temporary database of one process, with the schema and the verbs of any store.

To its own process it is a session of that database, to another one a connection to its socket (``remote``). Positions
come from the store beside which it is, so that none is given twice.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection
from contextlib import closing
from pathlib import Path
from typing import Final

from wsrm_mq.events.telling import Events
from wsrm_mq.store import queues
from wsrm_mq.store.counting import Tally
from wsrm_mq.store.driver import FileIds, Guard, Reserve, beside
from wsrm_mq.store.group_commit import CHECKPOINT_BYTES, GroupCommit, Verb, WriteQueue
from wsrm_mq.store.port import MAY_BE_READY, Connection, Database
from wsrm_mq.store.store import Store
from wsrm_mq.store.transaction import Transaction

BLOCK: Final = 1_024
"""Positions that are reserved together, in one commit of the store."""


class Positions:
    """Positions for express messages, each given once. A block is at hand before the one in use is through: nothing
    that is put waits for the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._blocks = deque([_reserve(store), _reserve(store)])
        self._left = iter(self._blocks.popleft())
        self._lock = threading.Lock()

    def __call__(self) -> int:
        with self._lock:
            position = next(self._left, None)
            if position is None:
                self._left = iter(self._blocks.popleft() if self._blocks else _reserve(self._store))
                position = next(self._left)
                self._store.submit(lambda tx: tx.reserve_positions(BLOCK), self._take)
        return position

    def _take(self, block: range | None, _error: BaseException | None) -> None:
        if block is not None:  # else the next one is waited for, or is told why there is none
            self._blocks.append(block)


def _reserve(store: Store) -> range:
    return store.call(lambda tx: tx.reserve_positions(BLOCK))


class Relayed:
    """The place of an instance among the others, as an express store has it: the place in the store itself, whose
    doorbell is heard there and rings here."""

    is_in_place = True

    def __init__(self, name: str, home: Path) -> None:
        self.name = name
        self.home = home
        self._rung = threading.Event()

    def ring(self) -> None:
        self._rung.set()

    def take_place(self) -> None:
        """It is another one's to take."""

    def has_open(self, files: FileIds) -> None:
        """There are none."""

    def wait(self, seconds: float) -> set[str]:
        if not self._rung.wait(seconds):
            return set()
        self._rung.clear()
        return {MAY_BE_READY}

    def close(self) -> None:
        """It is another one's to leave."""

    def abandon(self) -> None:
        """It is another one's to leave."""


class _NoFiles(Guard):
    """The guard of a store without files: nothing could be removed or replaced."""

    are_there = True

    def check_same(self) -> None:
        pass

    def opened(self) -> FileIds:
        return ()

    def are_gone(self) -> bool:
        return False

    def check_newest(self, db: Database) -> None:
        pass

    def is_behind(self, db: Database) -> bool:
        return False

    def committed(self, position: int, mark: int | None) -> None:
        pass


class _NoReserve(Reserve):
    """The reserve of a store without files: nothing fills a disk which settlements need."""

    is_spent = False

    def restore(self, spare: int = 0) -> None:
        self.size = CHECKPOINT_BYTES

    def release(self) -> None:
        pass


class ExpressStore(Store):
    """The express messages of ``keeper``, an instance of ``store``. ``connect`` answers a connection to them."""

    def __init__(self, store: Store, connect: Callable[[], Connection], events: Events) -> None:
        assert store.presence is not None
        self.path = store.path
        self.instances, self.serving = store.instances, store.serving
        self.clock, self.believed = store.clock, store.believed
        self.relayed = Relayed(store.presence.name, beside(store.path))
        self.presence = self.relayed
        self._connect = connect
        self._events = events
        self._write_with(
            GroupCommit(
                self.path,
                clock=self.clock,
                believed=self.believed,
                tally=Tally(),
                events=events,
                reserve=_NoReserve(self.path),
                serving=self.serving,
                instances=self.instances,
                connect=lambda _path: connect(),
                guard=_NoFiles,
            ),
            WriteQueue(1_024, 64 * 1024 * 1024),
        )

    def connect_reader(self) -> Connection:
        return self._connect()

    @property
    def is_disk_full(self) -> bool:
        return False

    def open(self) -> None:
        """Take a place among the instances that use them, and start the writer. Raises ``KeeperGone``."""
        with closing(self.connect_reader()) as db:
            db.for_writing()
            db.begin()
            (key,) = db.execute(queues.ADD_INSTANCE, self._row(self.relayed.name, self.clock())).fetchone()
            db.execute("COMMIT")
        self.writer.start(key, self.relayed.name, lambda _files: None)

    def close(self, last: Verb[object] = lambda _tx: None, timeout: float | None = None) -> None:
        if self.is_open:
            self.writer.close(last, timeout)
        self._end_reading()

    def bear_witness(self) -> None:
        """Write nothing: nothing of the store outlives its process."""

    def stay_in_place(self) -> None:
        """Do nothing: the store beside stays in its place."""


def unsettled(tx: Transaction, names: Collection[str]) -> dict[str, int]:
    """How many messages each of these queues has that are not settled."""
    found = {name: tx.queue_named(name) for name in names}
    return {name: tx.unsettled_in(key)[0] for name, key in found.items() if key is not None}
