"""Programs that put, publish and consume over the store of a wrapped service, while all of them are killed at random:
each message is taken, in order where it has one, and nothing stays with the dead."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

import wsrm_mq
from tests.soak.checker import Evidence
from tests.soak.faults import Faults
from tests.soak.programs import CLIENT, EXPRESS, PACES, QUEUE, ROLES, TABLES, TICKS, TOPIC, notes
from tests.soak.run import FRONTS, PULLED, Soak, soak
from tests.support.programs import ROOT
from wsrm_mq.node import Node

DRAIN_SECONDS: Final = 150.0
RUNNING: Final = (
    "producer",
    "producer",
    "publisher",
    *(role for role in ROLES if role not in ("producer", "publisher")),
)
PRODUCERS: Final = ("producer", "publisher", "ticker")
LEASED: Final = (
    "SELECT 'message', id, owner FROM entry WHERE leased_until IS NOT NULL AND owner IS NOT NULL "
    "UNION ALL SELECT 'group', id, owner FROM lane WHERE leased_until IS NOT NULL"
)

EFFECTS: Final = "SELECT number FROM effect WHERE at = ? AND who = ? ORDER BY rowid"
CALLS: Final = "SELECT number, redelivered FROM call WHERE at = ? AND who = ? ORDER BY rowid"


class Programs:
    """The programs of one soak; its choices depend on ``seed`` alone."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._chance = random.Random(f"{seed} queues")
        self._store = directory / "store.db"
        self._home = directory
        self._notes = directory / "notes.db"
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []
        self.kills = 0
        self.trouble: list[str] = []
        with closing(notes(self._notes)) as db:
            db.executescript(TABLES)

    def __enter__(self) -> Self:
        return self

    def start(self) -> None:
        with wsrm_mq.connect(self._store) as node:
            for queue in (QUEUE, PULLED):
                node.declare(queue, max_failures=None, retry=[0])
            for name in PACES:
                node.declare(node.subscribe_durable("soak/#", name, client=CLIENT), max_failures=None, retry=[0])
        self._running = [(role, self._start(role)) for role in RUNNING]

    def __exit__(self, *_: object) -> None:
        for _role, one in self._running:
            one.kill()
            one.wait()

    def _start(self, role: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.soak.programs", role, str(self._home)]
        return subprocess.Popen(command, cwd=ROOT)

    def kill_any(self) -> None:
        """Kill a program, and start it again."""
        at = self._chance.randrange(len(self._running))
        role, one = self._running[at]
        if one.poll() is not None:
            self.trouble.append(f"the {role} ended by itself with {one.returncode}")
        one.kill()
        one.wait()
        self.kills += 1
        self._running[at] = role, self._start(role)

    def put_no_more(self) -> None:
        for role, one in self._running:
            if role in PRODUCERS:
                one.kill()
                one.wait()

    def drain(self) -> None:
        """Wait until all is taken; then kill who consumes, and see that nothing stays with the dead."""
        with wsrm_mq.connect(self._store) as node:
            queues = [QUEUE, PULLED, TICKS, *(f"{CLIENT}/{name}" for name in PACES)]
            if not within(DRAIN_SECONDS, lambda: not any(node.stats(one).messages for one in queues)):
                self.trouble += [f"{one} is not empty: {node.stats(one)}" for one in queues if node.stats(one).messages]
            self.trouble += [f"{one} has dead letters" for one in queues if node.stats(one).dead]
            self.__exit__()
            if not within(20, lambda: not leased(node)):
                self.trouble += [f"the dead instance {owner} has the {what} {key}" for what, key, owner in leased(node)]

    def evidence(self) -> list[Evidence]:
        """What each producer was told, and what each consumer of it has seen."""
        found = []
        with closing(notes(self._notes)) as db:
            for topic, who in db.execute("SELECT DISTINCT topic, who FROM put").fetchall():
                numbers = {one for (one,) in db.execute("SELECT number FROM put WHERE who = ?", (who,))}
                if topic == EXPRESS:
                    continue
                for at in PACES if topic == TOPIC else (topic,):
                    effects = [one for (one,) in db.execute(EFFECTS, (at, who))]
                    calls = db.execute(CALLS, (at, who)).fetchall()
                    in_order = effects if who.endswith("in order") else sorted(effects)
                    found.append(Evidence(f"{who} at {at}", frozenset(numbers), in_order, calls))
        return found

    def figures(self) -> dict[str, int]:
        """What was put and published, and taken of it where."""
        with closing(notes(self._notes)) as db:
            told = db.execute("SELECT 'put_to_' || topic, count(*) FROM put GROUP BY topic").fetchall()
            return dict([*told, *db.execute("SELECT 'taken_by_' || at, count(*) FROM effect GROUP BY at")])


def within(seconds: float, happened: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True


def leased(node: Node) -> list[tuple[str, int, int]]:
    with node.store.reader() as db:
        return db.execute(LEASED).fetchall()


def soak_queues(directory: Path, seconds: float, seed: int) -> Soak:
    """Four workers of a wrapped service with its bad clients, of which every second one sends what is pulled, and the
    programs beside them, on one store."""
    programs = Programs(directory, seed)

    def disturb(faults: Faults, end: float) -> None:
        programs.start()
        while time.monotonic() < end:
            programs.kill_any()
            time.sleep(0.5)
            faults.something()
            faults.repair_blocked()  # two faults take their time, and a client waits for no more than its patience
            time.sleep(0.5)
        programs.put_no_more()

    with programs:
        done = soak(directory, seconds, seed, disturb=disturb, quiet=programs.drain, is_pulled=True, front=FRONTS[0])
    return replace(
        done,
        evidence=[*done.evidence, *programs.evidence()],
        kills=done.kills + programs.kills,
        faults={**done.faults, "killed_programs": programs.kills, **programs.figures()},
        trouble=[*done.trouble, *programs.trouble],
    )
