"""A process that serves: the product's store, dispatcher, watch and janitor, on tasks instead of threads.

All that the simulator asks of the product's runtime is asked here and in ``place``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

from tests.simulator.machine import Bell, Neighbourhood
from tests.simulator.oracle import Violation
from tests.simulator.place import Files, OpenStore
from tests.simulator.tasks import Tasks
from wsrm_mq.delivery.completion import Waiters
from wsrm_mq.delivery.delivery import Call
from wsrm_mq.delivery.dispatcher import Dispatcher, Duty
from wsrm_mq.delivery.janitor import Janitor
from wsrm_mq.delivery.watch import Watch
from wsrm_mq.destination.destination import delivery_of
from wsrm_mq.destination.exchange import Commit
from wsrm_mq.engine import Engine
from wsrm_mq.errors import NotAllowed, NotFound, QuotaExceeded
from wsrm_mq.events.telling import Events
from wsrm_mq.node.doorbell import POLL_SECONDS, Doorbell
from wsrm_mq.queue.accept import accept
from wsrm_mq.queue.arrival import Arrival, MessageReceipt, Receipt
from wsrm_mq.queue.policy import PolicyOf
from wsrm_mq.queue.settle import Settlement, settlement
from wsrm_mq.store.applications import NAMELESS, Serving
from wsrm_mq.store.cache import MaySend, may_send
from wsrm_mq.store.group_commit import OnCommit, Verb, Write
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.testing import ManualClock

if TYPE_CHECKING:
    from tests.simulator.door import Door
    from tests.simulator.source import Program
    from tests.simulator.subscribers import Subscriber

R = TypeVar("R")

NEVER: Final = frozenset(
    (
        "dispatch.dropped",
        "dispatch.failed",
        "dispatch.not_given_back",
        "janitor.failed",
        "store.callback_failed",
        "store.writer_failed",
        "watch.failed",
        "watch.store_error",
    )
)
"""What a process tells only where it is broken itself."""
REFUSALS: Final = (NotAllowed, NotFound, QuotaExceeded)
"""Errors that the program of a queue gets instead of an answer: nothing is done then."""
WRITER: Final = "wsrm-mq-writer"
MOST_STEPS: Final = 10_000
"""More than any process takes without time passing."""


class Told(Events):
    """Nothing is logged: what must not be told is kept, the rest is counted."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self.wrong: list[str] = []
        self._counted = counts

    def tell(self, name: str, /, *, trouble: BaseException | None = None, **fields: object) -> None:
        if name in NEVER:
            self.wrong.append(f"{name} {trouble or fields}")
        if name == "sequence.ended":
            self._counted[f"sequences {fields['reason']}"] += 1
        elif name == "instance.gone":
            self._counted["instances found dead"] += 1
            self._counted["takeovers of sequences"] += int(str(fields["sequences"]))
        elif name == "delivery.fence_lost":
            self._counted["settlements refused by the fence"] += 1


class Completion:
    """A request that waits for its message; ``answer`` gets what came of it."""

    def __init__(self, store: OpenStore, complete: Callable[[Settlement | None], None]) -> None:
        self._store = store
        self._complete = complete
        self._is_complete = False

    def calling(self) -> None:
        pass

    storing = calling

    def submit(self, verb: Verb[R], on_commit: OnCommit[R], *, size: int) -> None:
        self._store.submit(verb, on_commit, keep=True, size=size)

    def complete(self, settlement: Settlement | None) -> None:
        is_first, self._is_complete = not self._is_complete, True
        if is_first:
            self._complete(settlement)


class Noted(NamedTuple):
    """A verb, and who is told what it came to, whether or not its process hears of it."""

    verb: Verb[Any]
    is_stored: Callable[[Any], None]

    def __call__(self, tx: Transaction) -> Any:
        return self.verb(tx)


class Work(NamedTuple):
    """The work of a process: ``call`` calls its service, or sends. ``left_alone``, ``senders`` and ``chores`` are those
    of a process that sends."""

    call: Call
    left_alone: MaySend = may_send
    senders: int = 1
    chores: tuple[Callable[[], None], ...] = ()


class Process:
    """``work_of`` answers its work, ``threads`` is how many the dispatcher has. ``watched`` is entered for each commit,
    with the process's name and key."""

    hand_over = Engine.hand_over
    is_running = is_asked = True
    acknowledging = None
    door: Door | None = None
    """Where requests come in as bytes."""
    program: Program | None = None
    """The program that sends from its store."""
    subscriber: Subscriber | None = None
    """The program that has subscribed to queues."""

    def __init__(
        self,
        files: Files,
        clock: ManualClock,
        neighbours: Neighbourhood,
        work_of: Callable[[Process], Work],
        threads: int,
        policy_of: PolicyOf,
        watched: Callable[[str, int], AbstractContextManager[None]],
        counts: Counter[str],
        serving: Serving = NAMELESS,
    ) -> None:
        self.tasks = Tasks.current = Tasks(clock)
        self.events = events = Told(counts)
        self.told = events.wrong
        self.neighbours = neighbours
        self.store = OpenStore(files, clock, events, neighbours, serving)
        assert isinstance(self.store.presence, Bell)
        self.bell = self.store.presence
        self.name = self.bell.name
        self._watched = watched
        self._policy_of = policy_of
        self._run_commit, self.store.committing.run = self.store.committing.run, self._commit  # type: ignore[method-assign]
        self._dies_with: str | None = None
        """It is to die ``after`` its next commit, or ``between`` that and another."""
        self.requests: list[tuple[Callable[[Settlement | None], None], int, str | None]] = []
        """Requests that wait for a message: who is answered, its position, its partner."""
        self.stalled = 0
        """Milliseconds that have passed while it had something to do and no turn, or later than it had asked for."""
        self.waiters, duty, work = Waiters(4), Duty(is_asked=True), work_of(self)
        self.dispatcher = Dispatcher(
            self.store,
            work.call,
            policy_of,
            self.waiters,
            duty,
            max_threads=threads,
            request_threads=threads,
            send_threads=work.senders,
            events=events,
            left_alone=work.left_alone,
            on_retry=lambda at: self.watch.nudge(at),
            on_left=lambda: self.watch.look_elsewhere(),
        )
        self.watch = Watch(self.store, self.dispatcher, self.waiters, policy_of, duty, events, work.chores)
        self.janitor = Janitor(self.store, policy_of, events)
        self.doorbell = Doorbell(self.store, events, lambda: None, lambda: POLL_SECONDS)
        self.store.begin()
        self.tasks.start(self._begin, "start")

    def _begin(self) -> None:
        self.watch.look()
        self.watch.start()

    def kill(self) -> None:
        self.store.end()
        self.tasks.kill()
        self.told.clear()

    # steps

    def dies_within(self, which: int, when: str) -> None:
        """Run one ready task; where it commits, the process is to be killed then: see ``commit``."""
        self._dies_with = when
        self.tasks.step(which)

    @property
    def is_ready(self) -> bool:
        return bool(self.tasks.ready)

    def step(self, which: int) -> None:
        self.tasks.step(which)

    def run_on(self) -> None:
        """All that is ready runs, and what comes of it is written together."""
        for _ in range(MOST_STEPS):
            if not self.tasks.ready:
                return
            self.tasks.ready.sort(key=lambda task: task.name == WRITER)
            self.tasks.step(0)
        raise Violation(f"{self.name} never comes to rest")

    @property
    def has_writes(self) -> bool:
        return self.store.has_writes

    def commit(self, dies: str | None = None) -> bool:
        """Have what waits written now. ``dies``: it is to be killed then, ``after`` it, or ``between`` the first part
        of it and the rest; no verb of it is told. Answers whether the writer was ready."""
        Tasks.current = self.tasks
        self._dies_with = dies
        self.store.writer.urge()
        return self.tasks.step_named(WRITER)

    def _commit(self, batch: list[Write[Any]], *, wait: bool = True) -> BaseException | None:
        if self._dies_with == "between":
            batch = batch[: max(1, len(batch) // 2)]
        with self._watched(self.name, self.store.instance):
            error = self._run_commit(batch, wait=wait)
        for write in () if error is not None else batch:
            if isinstance(write.verb, Noted):
                write.verb.is_stored(write.result)
        if self._dies_with is not None:
            self.tasks.sleep()
        return error

    def look(self) -> None:
        """Its watch takes a turn soon."""
        self.bell.under_way.add("look")

    def look_at_queues(self) -> None:
        """A turn of the watch of a node."""

        def turn() -> None:
            self.doorbell._look_around()
            self.doorbell._turn()
            self.doorbell._look()

        self.tasks.start(turn, "queues")

    def sweep(self, before: Callable[[], None]) -> None:
        """A turn of the janitor."""

        def turn() -> None:
            before()
            self.janitor.sweep()

        self.tasks.start(turn, "sweep")

    # requests

    def submit(
        self,
        verb: Verb[R],
        answered: Callable[[R], None],
        is_stored: Callable[[R], None] | None = None,
        refused: Callable[[BaseException], None] | None = None,
    ) -> None:
        """``refused`` is told where a queue refuses it."""

        def on_commit(result: R | None, error: BaseException | None) -> None:
            if refused is not None and isinstance(error, REFUSALS):
                refused(error)
                return
            if error is not None:
                raise error
            if isinstance(result, Receipt):
                self.hand_over(result)  # type: ignore[arg-type]
            answered(cast(R, result))

        self._submit(verb, on_commit, is_stored)

    def _submit(self, verb: Verb[R], on_commit: OnCommit[R], is_stored: Callable[[R], None] | None) -> None:
        Tasks.current = self.tasks
        self.store.submit(verb if is_stored is None else Noted(verb, is_stored), on_commit, is_request=True)

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

        self._submit(lambda tx: accept(tx, arrival), on_commit, is_stored)

    def _finish(self, arrival: Arrival, receipt: MessageReceipt, answered: Callable[[Settlement | None], None]) -> None:
        commit = Commit(None, None, arrival=arrival)  # type: ignore[arg-type]
        delivery = delivery_of(commit, receipt) if receipt.runs_here else None
        waits = (answered, receipt.position or 0, arrival.sender.partner)
        if delivery is not None and receipt.claim is not None and delivery.is_waited_for:

            def complete(settled: Settlement | None) -> None:
                answered(settled) if settled is not None else self.requests.append(waits)

            self.dispatcher.run_for(receipt.claim, delivery, Completion(self.store, complete))
            return
        self.hand_over(receipt, delivery)  # type: ignore[arg-type]
        if not arrival.waits or receipt.position is None or receipt.is_stuck or receipt.settled:
            answered(None)
        else:
            self.requests.append(waits)

    def answer_one(self, which: int) -> None:
        """A request that waits looks whether its message is settled; else it has waited for long enough."""
        answered, position, partner = self.requests.pop(which % len(self.requests))
        with self.store.reader() as db:
            answered(settlement(db, position, self._policy_of(partner)))
