"""One schedule: partners, processes, an operator and a clock, and the steps that a list of numbers orders."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

from tests.simulator.oracle import ENTIRE, NO_DISCARD, Oracle, Truth, Violation
from tests.simulator.process import Files, Process
from tests.simulator.tasks import Condition, Lock, Pool
from tests.support.stored import empty_store
from wsrm_mq.delivery import dispatcher, pipeline, watch
from wsrm_mq.delivery.delivery import Delivery, Outcome
from wsrm_mq.errors import NotAllowed, NotFound
from wsrm_mq.queue import dead_letters, operate
from wsrm_mq.queue.arrival import Arrival, Body, CreateReceipt, EndReceipt, MessageReceipt, Sender
from wsrm_mq.queue.creation import create
from wsrm_mq.queue.lifecycle import lifecycle
from wsrm_mq.queue.policy import Acknowledge, OnPoison, QueuePolicy
from wsrm_mq.queue.retention import Kept
from wsrm_mq.queue.settle import ServiceReply, Settlement
from wsrm_mq.sequence.elements import (
    CloseSequence,
    CreateSequence,
    IncompleteSequenceBehavior,
    SequenceAcknowledgement,
    SequenceHeader,
    TerminateSequence,
)
from wsrm_mq.sequence.inbound import Late
from wsrm_mq.sequence.states import Act
from wsrm_mq.sequence.terms import DeliveryAssurance
from wsrm_mq.store import instances
from wsrm_mq.store.database import connect_reader
from wsrm_mq.store.write_queue import Write
from wsrm_mq.testing import ManualClock
from wsrm_mq.versions import WSA_2005, WSRM_1_1, SOAPVersion

_, _, FOLLOWING = IncompleteSequenceBehavior
HOUR: Final = 3_600_000
MOST_SEQUENCES: Final = 4
HIGHEST: Final = 12
"""The highest number that a partner sends."""

POLICIES: Final = {
    str(index): QueuePolicy(
        retry=(1_000,) * tries,
        on_poison=on_poison,
        behavior=behavior,
        ordered=ordered,
        assurance=assurance,
        acknowledge=acknowledge,
        max_expires=2 * HOUR,
        retain=HOUR,
        retain_ended=2 * HOUR,
    )
    for index, (tries, on_poison, behavior, ordered, assurance, acknowledge) in enumerate(
        [
            (1, OnPoison.BLOCK, NO_DISCARD, True, DeliveryAssurance.EXACTLY_ONCE, Acknowledge.STORED),
            (0, OnPoison.DEAD_LETTER, NO_DISCARD, True, DeliveryAssurance.EXACTLY_ONCE, Acknowledge.STORED),
            (2, OnPoison.TERMINATE, NO_DISCARD, True, DeliveryAssurance.EXACTLY_ONCE, Acknowledge.STORED),
            (1, OnPoison.DEAD_LETTER, FOLLOWING, True, DeliveryAssurance.EXACTLY_ONCE, Acknowledge.STORED),
            (1, OnPoison.BLOCK, ENTIRE, True, DeliveryAssurance.EXACTLY_ONCE, Acknowledge.STORED),
            (1, OnPoison.DEAD_LETTER, NO_DISCARD, False, DeliveryAssurance.EXACTLY_ONCE, Acknowledge.STORED),
            (2, OnPoison.BLOCK, NO_DISCARD, True, DeliveryAssurance.EXACTLY_ONCE, Acknowledge.DELIVERED),
            (1, OnPoison.DEAD_LETTER, NO_DISCARD, True, DeliveryAssurance.AT_LEAST_ONCE, Acknowledge.STORED),
            (0, OnPoison.DEAD_LETTER, NO_DISCARD, True, DeliveryAssurance.AT_MOST_ONCE, Acknowledge.STORED),
        ]
    )
}
TWO_WAY: Final = frozenset("026")
"""Partners that want replies."""
FATES: Final = (0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 9)
"""How often the service fails before it takes a message; 9: always."""
REPLY: Final = ServiceReply("200 OK", (("Content-Type", "text/xml"),), b"<reply/>")
ACTS: Final = (
    dead_letters.redrive,
    dead_letters.retry,
    dead_letters.discard,
    dead_letters.restore,
    dead_letters.confirm,
)


def policy_of(partner: str | None) -> QueuePolicy:
    return POLICIES[partner or "0"]


def kept(partner: str | None) -> Kept:
    policy = policy_of(partner)
    return Kept(policy.retain, policy.retain_ended, policy.retain_ledger)


class Place:
    """A store's file and connections, for one schedule after the other."""

    def __init__(self, home: Path) -> None:
        self.path = home / "store.db"
        self.path.write_bytes(empty_store())
        self.clock = ManualClock()
        self.files = [Files(self.path, self.clock) for _ in range(3)]
        self.operator = Files(self.path, self.clock)
        self.reader = connect_reader(self.path)
        db = self.operator.writer
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        keep = {"alembic_version", "identity", "epoch", "watermark", "sqlite_stat1", "sqlite_stat4"}
        self._tables = [name for name in names if name not in keep and not name.startswith("sqlite_stat")]
        self._watermarks = db.execute("SELECT * FROM watermark").fetchall() if "watermark" in names else []

    def empty(self) -> None:
        db = self.operator.writer
        db.execute("BEGIN IMMEDIATE")
        db.execute("PRAGMA defer_foreign_keys = ON")
        for name in self._tables:
            db.execute(f'DELETE FROM "{name}"')
        db.execute("COMMIT")
        self.operator.begin(0, "cli")
        self.clock.now = 1_700_000_000_000


class Partner:
    """An RM Source: what it has sent and what it was told."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.identifier: str | None = None
        self.sent: set[int] = set()
        self.acknowledged: set[int] = set()
        self.is_over = False

    def begin(self, identifier: str) -> None:
        self.identifier = identifier
        self.sent, self.acknowledged, self.is_over = set(), set(), False


class World:
    def __init__(self, place: Place, start: int) -> None:
        place.empty()
        draw = random.Random(start)
        self.place = place
        self.clock = place.clock
        self.oracle = Oracle(place.reader)
        self.fates = [draw.choice(FATES) for _ in range(16)]
        self.partners = [Partner(name) for name in draw.sample(sorted(POLICIES), draw.randint(1, 3))]
        self.fills_gaps = draw.random() < 0.5
        self.alive: set[str] = set()
        self.frozen: dict[Process, int] = {}
        """Processes that stand still, and for how many steps."""
        self.loses_words = draw.random() < 0.3
        self.slow_disk = draw.choice([0.3, 0.6, 0.9])
        """How often a process goes on before its commit."""
        self.heals = False
        """Nothing breaks any more; see ``heal``."""
        self._created = 0
        self._born = 0
        self.counts: Counter[str] = Counter()
        self.processes: list[Process | None] = [None] * draw.randint(1, 3)
        self.tell: Callable[[str], object] = lambda _line: None
        self._replaced = self._machine()

    # the machine

    @contextmanager
    def running(self) -> Iterator[None]:
        with self._replaced:
            for slot in range(len(self.processes)):
                self.start(slot)
            try:
                yield
            finally:
                for process in self.live():
                    self._drop(process)

    @contextmanager
    def _machine(self) -> Iterator[None]:
        seconds = lambda: self.clock() / 1000  # noqa: E731
        time = SimpleNamespace(monotonic=seconds, perf_counter=seconds)
        with (
            mock.patch.object(dispatcher, "Pool", Pool),
            mock.patch.object(dispatcher, "time", time),
            mock.patch.object(pipeline, "time", time),
            mock.patch.object(watch, "time", time),
            mock.patch.object(pipeline, "threading", SimpleNamespace(Lock=Lock, Condition=Condition)),
            mock.patch.object(instances, "holds_lock", lambda _path, name: name in self.alive),
            mock.patch.object(instances, "bury"),
            mock.patch.object(instances, "wake", lambda _path, names, word="look": self.wake(names, word)),
        ):
            yield

    def live(self) -> list[Process]:
        return [process for process in self.processes if process is not None]

    def wake(self, names: Any, word: str) -> None:
        for process in self.live():
            if names is None or process.name in names:
                process.words.add(word)

    def start(self, slot: int) -> None:
        self._born += 1
        name = f"process{self._born}"
        self.alive.add(name)
        self.processes[slot] = Process(
            self.place.files[slot], self.clock, name, self.call, policy_of, self.wake, self.oracle.commit_of
        )

    def kill(self, slot: int) -> None:
        process = self.processes[slot]
        assert process is not None
        self.processes[slot] = None
        self.alive.discard(process.name)
        self.oracle.killed(process.name)
        self._drop(process)

    def _drop(self, process: Process) -> None:
        process.store.is_dead = True
        self._check_told(process)
        process.tasks.kill()
        process.told.clear()

    def _check_told(self, process: Process) -> None:
        if process.told:
            raise Violation(f"{process.name} tells {process.told}")

    # the service

    def call(self, process: Process, delivery: Delivery) -> Outcome:
        self.oracle.called(process.name, delivery)
        process.tasks.pause()
        tries = len(self.oracle.truths[delivery.key.identifier].called[delivery.key.number])
        is_taken = tries > self.fates[delivery.key.number % len(self.fates)]
        if self.heals:
            is_taken = is_taken or delivery.source is not None
        self.oracle.returned(process.name, delivery, is_taken=is_taken)
        if not is_taken:
            return Outcome(error="the service failed")
        return Outcome(reply=REPLY if delivery.wants_reply else None)

    # steps

    def step(self, number: int) -> None:
        draw = random.Random(number)
        self.frozen = {process: left - 1 for process, left in self.frozen.items() if left}
        kind = draw.choices(_KINDS, _WEIGHTS)[0]
        if not STEPS[kind](self, draw):
            kind = "goes on"
            if not self._go_on(draw):
                kind = "sends"
                self._send(draw)
        self.counts[kind] += 1
        self.tell(f"  {kind}")

    def _some(self, draw: random.Random, has: Callable[[Process], object]) -> Process | None:
        fit = [process for process in self.live() if process not in self.frozen and has(process)]
        return draw.choice(fit) if fit else None

    def _go_on(self, draw: random.Random) -> bool:
        """A task runs until it waits, or what waits is committed."""
        process = self._some(draw, lambda one: one.tasks.ready or one.store.waiting)
        if process is None:
            return False
        if process.tasks.ready and (not process.store.waiting or draw.random() < self.slow_disk):
            process.step(draw.randrange(1_000))
        else:
            process.commit()
        return True

    def _commit(self, draw: random.Random) -> bool:
        process = self._some(draw, lambda one: one.store.waiting)
        if process is not None:
            process.commit()
        return process is not None

    def _send(self, draw: random.Random) -> bool:
        partner = draw.choice(self.partners)
        process = self._some(draw, lambda _one: True)
        if process is None:
            return False
        if partner.identifier is None or (partner.is_over and draw.random() < 0.3):
            return self._create(partner, process)
        highest = max(partner.sent, default=0)
        unacknowledged = sorted(partner.sent - partner.acknowledged)
        way = draw.random()
        if unacknowledged and way < 0.25:
            number = draw.choice(unacknowledged)
        elif partner.sent and way < 0.33:
            number = draw.choice(sorted(partner.sent))
        elif way < 0.5:
            number = highest + draw.randint(1, 3)
        elif way < 0.6:
            number = next(missing for missing in range(1, HIGHEST + 9) if missing not in partner.sent)
        else:
            number = highest + 1
        self.send(partner, process, min(number, HIGHEST))
        return True

    def send(self, partner: Partner, process: Process, number: int) -> None:
        identifier = partner.identifier
        assert identifier is not None
        partner.sent.add(number)
        two_way = partner.name in TWO_WAY
        policy = policy_of(partner.name)
        waits = two_way or policy.acknowledge is Acknowledge.DELIVERED
        arrival = Arrival(
            sender=self._sender(partner),
            header=SequenceHeader(identifier, number),
            message_id=f"urn:message:{number}",
            action="urn:put",
            environ="{}",
            connection=None,
            body=Body(b"<Envelope/>"),
            policy=policy,
            wants_reply=two_way,
            named=not waits,
            waits=waits,
        )

        def answered(receipt: MessageReceipt, settled: Settlement | None) -> None:
            said = receipt.acknowledgement if settled is None else settled.acknowledgement
            if receipt.fault is None and waits and settled is None and not receipt.settled:
                return  # an empty 202
            self._told(partner, identifier, said, is_over=receipt.fault is not None)

        def is_stored(receipt: MessageReceipt) -> None:
            if receipt.act is Act.ACCEPT:
                self.oracle.truths[identifier].accepted.add(number)

        process.message(arrival, answered, is_stored)

    def _told(self, partner: Partner, identifier: str, said: SequenceAcknowledgement | None, *, is_over: bool) -> None:
        if said is not None:
            numbers = {number for lower, upper in said.ranges for number in range(lower, upper + 1)}
            self.oracle.acknowledged(identifier, numbers)
            if partner.identifier == identifier:
                partner.acknowledged |= numbers
        if is_over and partner.identifier == identifier:
            partner.is_over = True

    def _sender(self, partner: Partner) -> Sender:
        return Sender("/orders", WSRM_1_1, SOAPVersion.SOAP_1_1, WSA_2005, peer="192.0.2.1", partner=partner.name)

    def _create(self, partner: Partner, process: Process) -> bool:
        if self._created >= MOST_SEQUENCES:
            return False
        self._created += 1
        policy = policy_of(partner.name)

        def answered(receipt: CreateReceipt) -> None:
            assert receipt.created is not None
            partner.begin(receipt.created.terms.identifier)

        def is_stored(receipt: CreateReceipt) -> None:
            assert receipt.created is not None, receipt.fault
            identifier = receipt.created.terms.identifier
            self.oracle.truths[identifier] = Truth(identifier, policy, partner.name in TWO_WAY)

        process.submit(
            lambda tx: create(tx, self._sender(partner), CreateSequence(None, None, None), None, policy),
            answered,
            is_stored,
        )
        return True

    def _end(self, draw: random.Random) -> bool:
        process = self._some(draw, lambda _one: True)
        open_ones = [one for one in self.partners if one.identifier is not None and not one.is_over and one.sent]
        if process is None or not open_ones:
            return False
        partner = draw.choice(open_ones)
        identifier = partner.identifier
        assert identifier is not None
        last = draw.choice([None, max(partner.sent), max(partner.sent) + 1])
        element = draw.choice([TerminateSequence, CloseSequence])(identifier, last)
        partner.is_over = partner.is_over or isinstance(element, TerminateSequence)

        def answered(receipt: EndReceipt) -> None:
            self._told(partner, identifier, receipt.acknowledgement, is_over=True)

        process.submit(lambda tx: lifecycle(tx, self._sender(partner), element, policy_of(partner.name)), answered)
        return True

    def _answer(self, draw: random.Random) -> bool:
        process = self._some(draw, lambda one: one.requests)
        if process is not None:
            process.answer_one(draw.randrange(1_000))
        return process is not None

    def _wakes(self, draw: random.Random) -> bool:
        process = self._some(draw, lambda one: one.words)
        if process is None:
            return False
        if self.loses_words and draw.random() < 0.3:
            process.words.clear()
        else:
            process.look()
        return True

    def _looks(self, draw: random.Random) -> bool:
        process = self._some(draw, lambda _one: True)
        if process is not None:
            process.look()
        return process is not None

    def _time(self, draw: random.Random) -> bool:
        self.clock.advance(draw.choices([1, 30, 1_000, 60_000, HOUR, 3 * HOUR], [4, 4, 8, 4, 1, 0.5])[0])
        for process in self.live():
            if process.alarm is not None and process.alarm <= self.clock():
                process.alarm = None
                process.words.add("look")
        return True

    def _crash(self, draw: random.Random) -> bool:
        slots = [slot for slot, process in enumerate(self.processes) if process is not None]
        if not slots:
            return False
        most = max(slots, key=lambda slot: len(self.processes[slot].store.waiting))  # type: ignore[union-attr]
        slot = draw.choice([*slots, most])
        process = self.processes[slot]
        assert process is not None
        if process.store.waiting:
            when = draw.choice(["before", "after", "between"])
            if when == "after":
                process.commit(is_told=False)
            elif when == "between":
                process.commit(most=draw.randint(1, len(process.store.waiting)))
            self.counts[f"crashes {when} a commit"] += 1
        self.kill(slot)
        return True

    def _is_taken_for_dead(self, draw: random.Random) -> bool:
        """Its lock file is gone and it stands still; when it goes on, only the fence keeps it from settling what others
        run by then."""
        fit = [one for one in self.live() if one.name in self.alive]
        if len(fit) < 2:
            return False
        process = draw.choice(fit)
        self.alive.discard(process.name)
        self.oracle.killed(process.name)
        self.frozen[process] = draw.randint(1, 30)
        self.wake(None, "look")
        return True

    def _restart(self, draw: random.Random) -> bool:
        slots = [slot for slot, process in enumerate(self.processes) if process is None]
        if slots:
            self.start(draw.choice(slots))
        return bool(slots)

    def _sweep(self, draw: random.Random) -> bool:
        process = self._some(draw, lambda _one: True)
        if process is None:
            return False
        process.sweep(kept, self.oracle.before_retention)
        return True

    # the operator

    def _operate(self, draw: random.Random) -> bool:
        if not self.oracle.truths:
            return False
        identifier = draw.choice(list(self.oracle.truths))
        if draw.random() < 0.5:
            rows = self.place.reader.execute(
                "SELECT id FROM entry WHERE outcome IS NULL OR outcome IN ('dead', 'discarded') ORDER BY id"
            ).fetchall()
            if not rows:
                return False
            (position,) = draw.choice(rows)
            act = draw.choice(ACTS)
            if act is dead_letters.restore:
                self.oracle.is_brought_back(position)
            return self._act(lambda tx: act(tx, position, actor="alice", reason="so"))
        way = draw.choice(["hold", "resume", "resume", "skip", "force", "close", "terminate", "drain"])
        who: dict[str, Any] = {"actor": "alice", "reason": "so"}
        if way == "skip":
            number = self.place.reader.execute(
                "SELECT e.number FROM lane s JOIN entry e ON e.id = s.blocked WHERE s.identifier = ?", (identifier,)
            ).fetchone()
            return number is not None and self._act(lambda tx: operate.skip(tx, identifier, number[0], **who))
        if way == "force":
            return self._force(identifier, draw.choice(list(Late)), who)
        if way in ("terminate", "drain"):
            return self._act(lambda tx: operate.terminate(tx, identifier, drain=way == "drain", **who))
        return self._act(lambda tx: getattr(operate, way)(tx, identifier, **who))

    def _force(self, identifier: str, late: Late, who: dict[str, Any]) -> bool:
        passed: list[int] = []

        def verb(tx: Any) -> None:
            forced = operate.force(tx, identifier, late=late, **who)
            passed.extend(number for lower, upper in forced.missing for number in range(lower, upper + 1))

        is_done = self._act(verb)
        if is_done:
            self.oracle.truths[identifier].passed |= set(passed)
        return is_done

    def _act(self, verb: Callable[..., object]) -> bool:
        """From the command line: a transaction of its own, then whoever lives is woken."""
        write: Write[object] = Write(verb, lambda _result, _error: None)
        error = self.place.operator.commit.run([write])
        if error is not None:
            if not isinstance(error, NotAllowed | NotFound):
                raise error
            return False
        self.wake(None, "look")
        return True

    # the end

    def run(self, steps: Sequence[int]) -> None:
        """Take the steps, let everything come to rest, and check that all is well. Raises ``Violation``."""
        with self.running():
            for number in steps:
                self.step(number)
            self.heal()
            for process in self.live():
                self._check_told(process)
            self.oracle.check_store()
            self.oracle.check_end()

    def heal(self) -> None:
        """Nothing breaks any more: what is down is started, sources repeat what is not acknowledged."""
        self.heals = True
        self.loses_words = False
        for slot, process in enumerate(self.processes):
            if process is not None and process.name not in self.alive:
                self.kill(slot)
            if self.processes[slot] is None:
                self.start(slot)
        for _ in range(3):
            self.drain(looks=True)
            for partner in self.partners:
                self._finish(partner)
            self.clock.advance(2_000)
        self.drain(looks=True)
        self._check_wake_ups()

    def _check_wake_ups(self) -> None:
        """What comes now is delivered without the net: by what was committed and who was woken."""
        for partner in self.partners:
            unsent = sorted(set(range(1, HIGHEST + 1)) - partner.sent)
            if partner.identifier is not None and not partner.is_over:
                for process, number in zip(self.live(), unsent, strict=False):
                    self.send(partner, process, number)
        self.drain(looks=False)
        self.oracle.check_nothing_is_left(self.clock())

    def _finish(self, partner: Partner) -> None:
        if partner.identifier is None:
            return
        wanted = partner.sent - partner.acknowledged
        if self.fills_gaps and not partner.is_over:
            wanted |= set(range(1, max(partner.sent, default=0) + 1)) - partner.acknowledged
        for number in sorted(wanted):
            self.send(partner, self.live()[0], number)

    def _alarm(self) -> bool:
        """Time passes until a process has set itself to look; answers whether one has."""
        waiting = [process for process in self.live() if process.alarm is not None]
        if waiting:
            first = min(waiting, key=lambda one: one.alarm or 0)
            assert first.alarm is not None
            self.clock.now = max(self.clock.now, first.alarm)
            first.alarm = None
            first.words.add("look")
        return bool(waiting)

    def drain(self, *, looks: bool) -> None:
        """Run all that can run. ``looks``: each process has a turn of its watch by itself."""
        if looks:
            for process in self.live():
                process.look()
        for _ in range(1_000):
            if all(process.is_idle for process in self.live()) and not self._alarm():
                return
            for process in self.live():
                while process.tasks.ready:
                    process.step(0)
                if process.store.waiting:
                    process.commit()
                elif process.requests:
                    process.answer_one(0)
                elif process.words:
                    process.look()
        raise Violation("the processes never come to rest")


STEPS: Final[dict[str, Callable[[World, random.Random], bool]]] = {
    "goes on": World._go_on,
    "commits": World._commit,
    "sends": World._send,
    "ends": World._end,
    "is answered": World._answer,
    "is woken": World._wakes,
    "looks": World._looks,
    "time passes": World._time,
    "crashes": World._crash,
    "is taken for dead": World._is_taken_for_dead,
    "restarts": World._restart,
    "is operated": World._operate,
    "sweeps": World._sweep,
}
_WEIGHTS_OF: Final = {
    "goes on": 30,
    "commits": 14,
    "sends": 24,
    "ends": 2,
    "is answered": 4,
    "is woken": 6,
    "looks": 4,
    "time passes": 5,
    "crashes": 4,
    "is taken for dead": 0.5,
    "restarts": 5,
    "is operated": 4,
    "sweeps": 1,
}
_KINDS: Final = list(_WEIGHTS_OF)
_WEIGHTS: Final = list(_WEIGHTS_OF.values())
