"""A process that serves: the product's group commit, dispatcher and watch, on tasks instead of threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from tests.simulator.tasks import Condition, Tasks
from wsrm_mq.delivery.delivery import Delivery, Outcome
from wsrm_mq.delivery.dispatcher import Dispatcher
from wsrm_mq.delivery.waiting import Waiters
from wsrm_mq.delivery.watch import Watch
from wsrm_mq.destination.exchange import Commit, delivery_of
from wsrm_mq.engine.duty import Duty
from wsrm_mq.engine.engine import Engine
from wsrm_mq.errors import StoreError, StoreUnavailable
from wsrm_mq.events.telling import Events
from wsrm_mq.queue import retention
from wsrm_mq.queue.accept import accept
from wsrm_mq.queue.arrival import Arrival, MessageReceipt, Receipt
from wsrm_mq.queue.ownership import leave
from wsrm_mq.queue.policy import PolicyOf
from wsrm_mq.queue.settle import Settlement, settlement
from wsrm_mq.store import lanes, queues
from wsrm_mq.store.applications import NAMELESS
from wsrm_mq.store.believed import Believed
from wsrm_mq.store.counting import Tally
from wsrm_mq.store.database import connect_reader
from wsrm_mq.store.group_commit import GroupCommit
from wsrm_mq.store.guard import Guard
from wsrm_mq.store.port import Database
from wsrm_mq.store.write_queue import OnCommit, Verb, Write

R = TypeVar("R")

THREADS = 2
"""Of the dispatcher: fewer than there are sequences, so that some are left to other processes."""


NEVER = frozenset(
    ("dispatch.dropped", "dispatch.failed", "dispatch.not_given_back", "store.callback_failed", "watch.failed")
)
"""What a process tells only where it is broken itself."""


class Told(Events):
    """Keeps what must not be told; nothing is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []

    def tell(self, name: str, /, *, trouble: BaseException | None = None, **fields: object) -> None:
        if name in NEVER:
            self.wrong.append(f"{name} {trouble or fields}")


class Files:
    """The connections of one process, kept open from schedule to schedule: opening them would take most of the time."""

    def __init__(self, path: Path, clock: Callable[[], int]) -> None:
        self.path = path
        self.events = Told()
        self.commit = GroupCommit(
            path,
            clock=clock,
            believed=Believed(None),
            tally=Tally(None),
            events=self.events,
            reserve=None,
            serving=NAMELESS,
        )
        self.commit.start(0, "", lambda _files: None)
        db = self.commit._db
        assert db is not None
        db.execute("PRAGMA synchronous = OFF")
        self.writer = db
        self.reader = connect_reader(path)

    def begin(self, instance: int, name: str) -> None:
        """A new process has them: it knows nothing yet."""
        commit = self.commit
        commit.instance, commit.instance_name = instance, name
        commit.roll_back()
        commit.tally = Tally(None)
        commit.guard = Guard(self.path, self.events)
        commit.guard.opened()
        self.events.wrong.clear()


class Store:
    """What the rooms above ask of ``wsrm_mq.store.store.Store``. What is submitted waits for the step ``commit``."""

    def __init__(
        self, files: Files, clock: Callable[[], int], tasks: Tasks, name: str, wake: Callable[..., None]
    ) -> None:
        self.path = files.path
        self.clock = clock
        self.presence = SimpleNamespace(name=name)
        self.refusals = SimpleNamespace(take_up_left=lambda _path: None)
        self.writer = SimpleNamespace(bound=files.commit.bound)
        self.believed = Believed(None)
        self.is_dead = False
        self.waiting: list[Write[Any]] = []
        self.is_stored: dict[Write[Any], Callable[[Any], None]] = {}
        """Who notes what a write came to, whether or not its process hears of it."""
        self._files = files
        self._tasks = tasks
        self._wake = wake

    @property
    def instance(self) -> int:
        return self._files.commit.instance

    def submit(
        self,
        verb: Verb[R],
        on_commit: OnCommit[R],
        *,
        keep: bool = False,
        is_stored: Callable[[R], None] | None = None,
        **_: object,
    ) -> None:
        if self.is_dead:
            raise StoreUnavailable("the process was killed", "")
        write = Write(verb, on_commit, keep)
        self.waiting.append(write)
        if is_stored is not None:
            self.is_stored[write] = is_stored

    def call(
        self, verb: Verb[R], *, keep: bool = False, committed: Callable[[R], object] | None = None, **_: object
    ) -> R:
        done: list[Any] = []
        wake = self._tasks.waker()

        def on_commit(result: Any, error: BaseException | None) -> None:
            done.extend((result, error))
            try:
                if committed is not None and error is None:
                    committed(result)
            finally:
                wake()

        self.submit(verb, on_commit, keep=keep)
        self._tasks.sleep()
        if done[1] is not None:
            raise done[1]
        return done[0]  # type: ignore[no-any-return]

    def commit(self, *, is_told: bool = True, most: int | None = None) -> None:
        """Write what waits, as the writer does, or the first of it. Not ``is_told``: the process dies before it has
        heard of it."""
        batch = self.waiting[:most]
        self.waiting = self.waiting[len(batch) :]
        error = self._files.commit.run(batch)
        if error is not None and not isinstance(error, StoreError) and len(batch) > 1:
            for write in batch:
                write.error = self._files.commit.run([write])
        elif error is not None:
            for write in batch:
                write.error = error
        for write in batch:
            is_stored = self.is_stored.pop(write, None)
            if is_stored is not None and write.error is None:
                is_stored(write.result)
        for write in batch if is_told else ():
            write.on_commit(None if write.error is not None else write.result, write.error)

    @contextmanager
    def reader(self) -> Iterator[Database]:
        yield self._files.reader

    def reached(self) -> int:
        return self.clock()

    def foreign(self, _db: Database, *, sends: bool = True) -> str:
        return "[]"

    def wake(self, *names: str, word: str = "look") -> None:
        self._wake(names or None, word)


class Completion:
    """A request that waits for its message; ``answer`` gets what came of it."""

    def __init__(self, store: Store, complete: Callable[[Settlement | None], None]) -> None:
        self._store = store
        self._complete = complete

    def calling(self) -> None:
        pass

    storing = calling

    def submit(self, verb: Verb[R], on_commit: OnCommit[R], *, size: int) -> None:
        self._store.submit(verb, on_commit, keep=True)

    def complete(self, settlement: Settlement | None) -> None:
        self._complete(settlement)


class Process:
    """``call`` is the service. It is killed by being dropped, with all that it has not committed."""

    hand_over = Engine.hand_over

    def __init__(
        self,
        files: Files,
        clock: Callable[[], int],
        name: str,
        call: Callable[[Process, Delivery], Outcome],
        policy_of: PolicyOf,
        wake: Callable[..., None],
        watched: Callable[[str, int], AbstractContextManager[None]],
    ) -> None:
        """``watched`` is entered for each commit, with the process's name and key."""
        self.name = name
        self._watched = watched
        self.told = files.events.wrong
        self.tasks = Condition.tasks = Tasks()
        self.words: set[str] = set()
        """Wake-ups that it has not seen yet."""
        self.alarm: int | None = None
        """When its watch looks by itself, for a retry that is due then."""
        row = {"name": name, "host": "here", "pid": 1, "started_at": clock(), "application": None, "paths": None}
        files.begin(int(files.writer.execute(queues.ADD_INSTANCE, row).lastrowid or 0), name)
        self.store = Store(files, clock, self.tasks, name, wake)
        self.waiters = Waiters(4)
        self._policy_of = policy_of
        self.requests: list[tuple[Callable[[Any], None], int, str | None]] = []
        """Requests that wait for a message: who is answered, its position, its partner."""
        duty = Duty(is_asked=True)
        self.dispatcher = Dispatcher(
            self.store,  # type: ignore[arg-type]
            lambda delivery: call(self, delivery),
            policy_of,
            self.waiters,
            duty,
            max_threads=THREADS,
            request_threads=THREADS,
            events=files.events,
            on_retry=lambda _at: self.words.add("look"),
            on_left=lambda: self.watch.look_elsewhere(),
        )
        self.watch = Watch(
            self.store,  # type: ignore[arg-type]
            self.dispatcher,
            self.waiters,
            policy_of,
            duty,
            files.events,
        )
        self.is_watching = False
        self.look()

    # steps

    def step(self, which: int) -> None:
        Condition.tasks = self.tasks
        self.tasks.step(which)

    def commit(self, *, is_told: bool = True, most: int | None = None) -> None:
        Condition.tasks = self.tasks
        with self._watched(self.name, self.store.instance):
            self.store.commit(is_told=is_told, most=most)

    def look(self) -> None:
        """A turn of the watch, unless it is at one."""
        if not self.is_watching:
            self.is_watching = True
            self.words.clear()
            self.tasks.start(self._turn)

    def _turn(self) -> None:
        try:
            self.watch.look()
        finally:
            self.is_watching = False
        if self.watch._busy:
            self.words.add("look")
        with self.store.reader() as db:
            (self.alarm,) = db.execute(lanes.NEXT_RETRY, {"foreign": "[]"}).fetchone()

    def submit(
        self, verb: Verb[R], answered: Callable[[R], None], is_stored: Callable[[R], None] | None = None
    ) -> None:
        def on_commit(result: Any, error: BaseException | None) -> None:
            if error is not None:
                raise error
            if isinstance(result, Receipt):
                self.hand_over(result)  # type: ignore[arg-type]
            answered(result)

        self.store.submit(verb, on_commit, is_stored=is_stored)

    def message(
        self,
        arrival: Arrival,
        answered: Callable[[MessageReceipt, Settlement | None], None],
        is_stored: Callable[[MessageReceipt], None],
    ) -> None:
        """What a front does with a message: commit, finish, wait."""

        def on_commit(receipt: MessageReceipt | None, error: BaseException | None) -> None:
            if error is not None or receipt is None:
                raise error or AssertionError("no receipt")
            self._finish(arrival, receipt, lambda settled: answered(receipt, settled))

        self.store.submit(lambda tx: accept(tx, arrival), on_commit, is_stored=is_stored)

    def _finish(self, arrival: Arrival, receipt: MessageReceipt, answered: Callable[[Settlement | None], None]) -> None:
        commit = Commit(None, None, arrival=arrival)  # type: ignore[arg-type]
        delivery = delivery_of(commit, receipt) if receipt.runs_here else None
        is_answered_now = not arrival.waits or receipt.position is None or receipt.is_stuck or receipt.settled
        waits = (answered, receipt.position or 0, arrival.sender.partner)
        if delivery is not None and receipt.claim is not None and delivery.is_waited_for:
            told: list[object] = []

            def complete(settled: Settlement | None) -> None:
                if not told:  # the first call counts
                    told.append(settled)
                    answered(settled) if settled is not None else self.requests.append(waits)

            self.dispatcher.run_for(receipt.claim, delivery, Completion(self.store, complete))
            return
        self.hand_over(receipt, delivery)  # type: ignore[arg-type]
        if is_answered_now:
            answered(None)
        else:
            self.requests.append(waits)

    def answer_one(self, which: int) -> None:
        """A request that waits looks whether its message is settled; else it has waited for long enough."""
        answered, position, partner = self.requests.pop(which % len(self.requests))
        with self.store.reader() as db:
            answered(settlement(db, position, self._policy_of(partner)))

    def sweep(self, kept: Callable[[str | None], retention.Kept], before: Callable[[], None]) -> None:
        """A turn of the janitor. ``before`` each of its transactions the oracle has a look."""

        def turn() -> None:
            for batch in retention.batches(self.store.reader, kept, self.store.clock()):
                self.store.call(lambda tx, batch=batch: (before(), batch(tx)))

        self.tasks.start(turn)

    def leave(self, done: Callable[[], None]) -> None:
        """It ends in good order, as far as that is a verb."""
        self.store.submit(leave, lambda _result, _error: done())

    @property
    def is_idle(self) -> bool:
        return not (self.tasks.ready or self.store.waiting or self.requests or self.words)
