"""The store of one process: its file, its writer, its readers and its place among the instances."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from wsrm_mq.errors import StoreFull, StoreUnavailable
from wsrm_mq.events.telling import Events
from wsrm_mq.store import applications, driver, identity, queues
from wsrm_mq.store.applications import NAMELESS, Serving
from wsrm_mq.store.clock import Clock, believed_of, wall_clock
from wsrm_mq.store.counting import Refusals, Tally
from wsrm_mq.store.group_commit import GroupCommit, Verb, WriteQueue
from wsrm_mq.store.port import MAY_BE_READY, Connection, Database, Instances, Presence
from wsrm_mq.store.transaction import Transaction, as_json
from wsrm_mq.store.writer import Writer

R = TypeVar("R")


def store_path(where: str | os.PathLike[str]) -> Path:
    """The file that ``where`` names: a path, ``sqlite:///relative``, ``sqlite:////absolute``, or a directory, in which
    the file is ``store.db``."""
    text = os.fspath(where)
    if text.startswith("sqlite:///"):
        text = text.removeprefix("sqlite:///")
    elif "://" in text:
        raise StoreUnavailable(f"{text}: only SQLite stores exist.", "Write sqlite:///path or a path.")
    path = Path(text)
    # Resolved: what stands beside a store stands beside the file, whatever link it is opened by. By realpath: of a link
    # that leads to itself the open shall tell, and Path.resolve() raises there until Python 3.13.
    return Path(os.path.realpath(path / "store.db" if path.is_dir() else path))


def _leave(tx: Transaction) -> None:
    """End the instance. One that still owns a sequence does not end: it is found dead, and its sequences are freed."""
    tx.execute(queues.LEAVE, {"key": tx.instance, "now": tx.now})
    tx.count_now()


class Store:
    """Opened once a process. Not to be carried over a fork: ``close`` before, open anew after (the engine does)."""

    def __init__(
        self,
        where: str | os.PathLike[str],
        *,
        clock: Clock = wall_clock,
        max_queued: int = 1_024,
        max_queued_bytes: int = 64 * 1024 * 1024,
        events: Events | None = None,
        serving: Serving = NAMELESS,
        instances: Instances | None = None,
    ) -> None:
        """``instances``: liveness and doorbell of the store's instances; if none are given, their files beside it."""
        self.path = store_path(where)
        self.instances = instances or driver.instances_of(self.path)
        self.serving = serving
        self.clock = clock
        self.believed = believed_of(clock, driver.beside(self.path) / "clock")
        self._events = events or Events()
        self.presence: Presence | None = None
        self.refusals = Refusals()
        self._witness = driver.Witness(self.path)
        self._witnessed = 0
        """The number of commits when the witness was told last."""
        self._reserve = driver.Reserve(driver.beside(self.path) / "reserve")
        commit = GroupCommit(
            self.path,
            clock=clock,
            believed=self.believed,
            tally=Tally(self.refusals),
            events=self._events,
            reserve=self._reserve,
            serving=serving,
            instances=self.instances,
        )
        self._write_with(commit, WriteQueue(max_queued, max_queued_bytes))

    def _write_with(self, commit: GroupCommit, queue: WriteQueue) -> None:
        self.writer = Writer(commit, queue)
        self.call = self.writer.call
        self.submit = self.writer.submit
        self._idle_readers: list[Connection] = []
        self._readers_lock = threading.Lock()
        """Taken as itself: an error thrown into a thread that reads could leave a condition's own ``with`` locked."""
        self._readers_changed = threading.Condition(self._readers_lock)
        self._lent = 0
        self._closing = False
        self._suspended = False

    @property
    def is_open(self) -> bool:
        return self.writer.is_open

    @property
    def is_disk_full(self) -> bool:
        """Whether the disk is full, also where there was no room for the reserve from the beginning, which the writer
        cannot tell."""
        return self.writer.is_disk_full or driver.is_spent(self.path)

    @property
    def instance(self) -> int:
        return self.writer.instance

    def open(self) -> None:
        """Create or migrate the file, take a place among the instances, start the writer. Raises ``StoreLocked`` for
        what is no database, ``StoreCorrupt`` for one of another program, and ``StoreUnconfirmed`` for one that may have
        forgotten what it acknowledged."""
        try:
            self._begin()
        except StoreFull:  # the reserve has room for that
            self._reserve.restore()
            self._reserve.release()
            self._begin()

    def _begin(self) -> None:
        driver.refuse_foreign(self.path)
        driver.keep_private(self.path, self._events)
        if dropped := driver.dropped_pages(self.path):
            self._events.tell("store.cut_off", path=self.path, pages=dropped)
        driver.ensure(self.path)
        self._witness = driver.admit(self.path)
        self._closing = False
        presence = self.instances.enter()
        try:
            key = self._register(presence.name)
            self._witness.tell_of(self.path)
            self._reserve.restore()
            self.writer.start(key, presence.name, presence.has_open)
            self.refusals.open(self.path, presence.name)
            self.refusals.take_up_left(self.path)
        except BaseException:
            presence.close()
            raise
        self.presence = presence

    def _register(self, name: str) -> int:
        db = driver.connect_writer(self.path)
        try:
            with driver.store_errors(self.path):
                now = self.clock()
                row = self._row(name, now)
                with suppress(db.Error):  # what is damaged is told where it is needed
                    (known,) = db.execute(queues.LAST_KNOWN).fetchone()
                    self.believed.know(known, now)
                db.for_writing()
                db.begin()
                driver.known_revision(db, self.path)  # a newer version may have come before this one could be seen
                applications.admit(db, self.serving)
                key = int(db.execute(queues.ADD_INSTANCE, row).fetchone()[0])
                others = applications.take_queues(db, self.serving)
                db.execute(identity.ADVANCE).fetchall()
                live = db.execute(queues.LIVE_INSTANCES).fetchall()
                is_alone = not any(self.instances.lives(other) for its, other in live if its != key)
                if is_alone:
                    identity.begin_epoch(db)
                if self.believed.steady is not None:
                    self.believed.steady.agree(db, is_first=is_alone)
                db.execute("COMMIT")
        finally:
            db.close()
        for queue, application in others:
            self._events.tell("store.other_application", queue=queue, application=application)
        return key

    def _row(self, name: str, now: int) -> dict[str, object]:
        return {
            "name": name,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "started_at": now,
            "application": self.serving.application,
            "paths": self.serving.stored_paths,
        }

    def serve(self, serving: Serving) -> None:
        """This process serves other queues from now on."""
        self.serving = serving
        self.call(lambda tx: tx.serve(serving))

    def revive(self, tx: Transaction) -> None:
        """Write down that this instance lives, which was perhaps taken for dead, and so long ago that its row is
        deleted."""
        if not tx.execute(queues.REVIVE_INSTANCE, {"key": tx.instance}).rowcount:
            tx.execute(queues.ADD_INSTANCE_AGAIN, {"id": tx.instance, **self._row(tx.instance_name, tx.now)})

    def close(self, last: Verb[object] = _leave, timeout: float | None = None) -> None:
        """Write what waits and, behind it, ``last``, which leaves the instances; close every connection. What cannot
        be written in ``timeout`` seconds is left to the next start."""
        if self.is_open:
            self.writer.close(lambda tx: (last(tx), identity.advance(tx)), timeout)
            self._witness.tell_of(self.path)
            self.believed.note(self.clock())
        self._end_reading()
        if self.presence is not None:
            self.refusals.close(self.path, self.presence.name)
            self.presence.close()
            self.presence = None

    def _end_reading(self) -> None:
        with self._readers_lock:
            self._closing = True
            self._readers_changed.notify_all()
        self._close_readers()

    def reached(self) -> int:
        """The time by which what ends for ever is judged: the clock's, as far as that is believed."""
        return self.believed.by(self.clock())

    def bear_witness(self) -> None:
        """Tell the witness, where something was written since it was told, and which time is believed."""
        if self.writer.commits == self._witnessed:
            self._witness.remind()
            return
        self._witness.tell(self.call(identity.advance, drains=True))
        self._witnessed = self.writer.commits
        self.believed.note(self.clock())

    def stay_in_place(self) -> None:
        """Make this instance's lock file again where it was removed: without it others take the instance for dead, and
        what it runs would be run twice."""
        presence = self.presence
        if presence is None or presence.is_in_place:
            return
        presence.take_place()
        self._events.tell("instance.files_removed", path=presence.home)
        self.refusals.open(self.path, presence.name)
        self.submit(self.revive, lambda _result, _error: None, keep=True)

    def look_after(self) -> None:
        """Notice what was done to the store's files, or to the writer, although this process writes nothing."""
        self.writer.look_after()
        with self.reader() as db:
            self.writer.look_after(db)

    def suspend(self) -> None:
        """Close every connection for the moment of a fork: none may be open then. What is asked meanwhile waits."""
        with self._readers_lock:
            self._suspended = True
        if self.is_open:
            self.writer.suspend()
        self._close_readers()

    def resume(self) -> None:
        """Go on in the parent, after the fork."""
        if self.is_open:
            self.writer.resume()
        with self._readers_lock:
            self._suspended = False
            self._readers_changed.notify_all()

    def abandon(self) -> None:
        """The child, after the fork: nothing here is its own."""
        self.refusals.close()
        if self.presence is not None:
            self.presence.abandon()

    def _close_readers(self) -> None:
        with self._readers_lock:
            while self._lent:
                self._readers_changed.wait()
            for reader in self._idle_readers:
                reader.close()
            self._idle_readers.clear()

    @contextmanager
    def reader(self) -> Iterator[Connection]:
        """A read-only connection, lent for a moment: never across a call of the application."""
        with self._readers_lock:
            while self._suspended and not self._closing:
                self._readers_changed.wait()
            if self._closing:
                raise StoreUnavailable(f"{self.path}: the store is closed.", "")
            self._lent += 1
            reader = self._idle_readers.pop() if self._idle_readers else None
        try:
            if reader is None:
                reader = self.connect_reader()
            with driver.store_errors(self.path):
                yield reader
        finally:
            with self._readers_lock:
                self._lent -= 1
                if reader is not None:
                    self._idle_readers.append(reader)
                if self._closing or self._suspended:  # nothing else waits for a reader
                    self._readers_changed.notify_all()

    def connect_reader(self) -> Connection:
        return driver.connect_reader(self.path)

    def foreign(self, db: Database, *, sends: bool = True) -> str:
        """The keys of queues whose messages are for other applications, and unless it ``sends`` now of those that are
        sent; as JSON."""
        return as_json(applications.foreign(db, self.serving, sends=sends))

    def ring(self) -> None:
        """Wake the other instances that wait for messages."""
        self.instances.ring(MAY_BE_READY, self.presence.name if self.presence else "")

    def wake(self, *names: str, word: str = "look") -> None:
        """Wake other instances by name; all live ones where no name is given."""
        if not names:
            with self.reader() as db:
                names = tuple(name for _key, name in db.execute(queues.LIVE_INSTANCES))
        mine = self.presence.name if self.presence else ""
        if others := [name for name in names if name != mine]:
            self.instances.wake(others, word)
