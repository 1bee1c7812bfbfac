"""Five nodes in a line and in a ring, each a queue server with a clock of its own: they are killed at random while
messages are put, and one that only hands on is restored from an old backup at the end. Each message is in its queue
once and in order, and nothing waits anywhere.

In the ring what is put while the node ahead is away goes the other way, and may be there before what is on its way
ahead: what came over the same nodes is in order.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from tests.soak.checker import Evidence
from tests.soak.queues import within
from tests.soak.run import Soak
from tests.support.programs import ROOT
from wsrm_mq.node import Node
from wsrm_mq.queue.routing import settle_name
from wsrm_mq.server import tokens
from wsrm_mq.server.rights import Grant
from wsrm_mq.store.clock import wall_clock
from wsrm_mq.store.invariants import all_findings

NAMES: Final = "abcde"
RESTORED: Final = "c"
"""It has no queue: what was in one would be gone with the state that is restored."""
LINE: Final = "line"
PER_SECOND: Final = 10_000 / 300
HOUR: Final = 3600.0
AWAY_SECONDS: Final = (0.0, 0.0, 1.0, 8.0)
"""How long one that was killed stays away, one of these: the last is long enough for what waits to go another way."""
DRAIN_SECONDS: Final = 120.0
SECRET: Final = "wsrm-mq-secret-of-the-soak"
WAITING: Final = (
    "SELECT count(*) FROM entry e JOIN queue q ON q.id = e.queue WHERE e.outcome IS NULL AND (q.name LIKE 'send/hop/%' "
    "AND e.message IN (SELECT message FROM routed) OR q.name = 'route/in' AND e.priority IS NOT NULL)"
)
DEAD: Final = "SELECT reason, last_error FROM entry WHERE outcome = 'dead'"
WAYS: Final = "SELECT entry.id, via FROM entry JOIN routed ON routed.message = entry.message"
LETTERS: Final = "SELECT DISTINCT name FROM queue JOIN entry ON queue = queue.id WHERE outcome = 'dead'"
UNKNOWN: Final = "SELECT count(*) FROM route LEFT JOIN hop ON address = next_hop WHERE node IS NULL"


def overtaken(lane: str, came: Sequence[tuple[int, str]]) -> list[str]:
    """The numbers of a lane that came behind a greater one which was at the same nodes; ``came`` has numbers and
    nodes."""
    by_way: dict[str, list[int]] = defaultdict(list)
    for number, way in came:
        by_way[way].append(number)
    return [
        f"{lane}: disordered: {later} came behind {earlier} by {way}"
        for way, numbers in by_way.items()
        for earlier, later in pairwise(numbers)
        if later < earlier
    ]


def free_port() -> int:
    """A port that no connection is given while the server that has it is down."""
    while True:
        with socket.socket() as one, suppress(OSError):
            one.bind(("127.0.0.1", random.randrange(12_000, 32_000)))
            return int(one.getsockname()[1])


class Place:
    """A node: its store, the program here that puts into it, and its queue server."""

    def __init__(self, directory: Path, name: str, ahead: float) -> None:
        self.directory = directory / name
        self.directory.mkdir()
        self.name = name
        self.ahead = ahead
        self.store = self.directory / "wsrm.db"
        self.port = free_port()
        self.put: dict[str, list[int]] = defaultdict(list)
        """Lane → the numbers that were put."""
        self._server: subprocess.Popen[bytes] | None = None
        self.open()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def open(self) -> None:
        self.node = Node(self.store, clock=lambda: wall_clock() + round(self.ahead * 1000))

    def found(self, ahead: Place, behind: Place, next_in_line: Place | None) -> None:
        """Say where it leads to, and which queues it has."""
        self.node.call(partial(settle_name, configured=self.name))
        self.node.call(partial(tokens.add, name="others", grants=[Grant("route", "*")], secret=SECRET))
        self.node.route("at-*", f"{ahead.url}/rm", cost=1)
        self.node.route("at-*", f"{behind.url}/rm", cost=5)
        if next_in_line is not None:
            self.node.route(LINE, f"{next_in_line.url}/rm")
        if self.name != RESTORED:
            self.node.declare(f"at-{self.name}")
        if self.name == NAMES[-1]:
            self.node.declare(LINE)
        sections = (f'[node.{one.name}]\nurl = "{one.url}"\ntoken_env = "TOKEN"\n' for one in {ahead, behind})
        (self.directory / "wsrm-mq.toml").write_text("".join(sections))

    def send(self, queue: str) -> None:
        lane = f"{self.name} to {queue}"
        number = self.put[lane][-1] + 1 if self.put[lane] else 1
        self.node.put(queue, f"{lane}/{number}")
        self.put[lane].append(number)

    def run(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.soak.clocked", str(self.ahead), *words, "--store", str(self.store)]
        with (self.directory / "log").open("ab") as log:
            environment = {**os.environ, "TOKEN": SECRET, "PYTHONPATH": str(ROOT)}
            return subprocess.Popen(command, cwd=self.directory, env=environment, stdout=log, stderr=log)

    def serve(self) -> None:
        self._server = self.run("queue-server", "--port", str(self.port))

    def kill(self) -> bool:
        """SIGKILL; whether it lived. It may be down already."""
        if self._server is None:
            return True
        lived = self._server.poll() is None
        self._server.kill()
        self._server.wait()
        self._server = None
        return lived

    def count(self, query: str) -> int:
        return int(self.rows(query)[0][0])

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self.node.reader() as db:
            return list(db.execute(query).fetchall())

    def bodies(self, queue: str) -> Iterator[tuple[str, int, str]]:
        """The lanes and numbers in a queue, in order, and the nodes that each was at."""
        ways = dict(self.rows(WAYS))
        for one in self.node.peek(queue, limit=1_000_000):
            lane, _, number = one.body.decode().rpartition("/")
            yield lane, int(number), ways[one.position]


class Ring:
    """The five, and what is done to them; the choices depend on ``seed`` alone."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._chance = random.Random(f"{seed} routes")
        clocks = (0.0, HOUR, -HOUR, 0.0, HOUR)
        self.places = {name: Place(directory, name, ahead) for name, ahead in zip(NAMES, clocks, strict=True)}
        self._backup = directory / "backup.db"
        self._back_at: dict[str, float] = {}
        self.kills = 0
        self.trouble: list[str] = []
        self._owed = 0.0
        self.again = 0
        """Messages that the restored node has sent anew."""
        self.ways = 0
        """The ways on which messages have come through the ring, of all pairs of nodes."""

    def begin(self) -> None:
        around = list(self.places.values())
        for at, one in enumerate(around):
            in_line = around[at + 1] if at + 1 < len(around) else None
            one.found(around[(at + 1) % len(around)], around[at - 1], in_line)
        for one in around:
            one.serve()
        if not within(DRAIN_SECONDS, lambda: not any(one.count(UNKNOWN) for one in around)):
            self.trouble.append("the nodes have not got to know each other")

    def put(self, seconds: float) -> None:
        """What is due after so many seconds: a third of it for the line."""
        self._owed += seconds * PER_SECOND
        while self._owed >= 1:
            self._owed -= 1
            if self._chance.random() < 1 / 3:
                self.places[NAMES[0]].send(LINE)
            else:
                origin = self._chance.choice(NAMES)
                self.places[origin].send(f"at-{self._chance.choice([n for n in NAMES if n not in (origin, RESTORED)])}")

    def disturb(self, seconds: float) -> None:
        """Put and kill for a time; half of it is over when the backup is made."""
        began = last = time.monotonic()
        next_kill, backup = began + 1, None
        while (now := time.monotonic()) - began < seconds:
            self.put(now - last)
            last = now
            if now >= next_kill:
                self._kill_one(now)
                next_kill = now + self._chance.uniform(0.5, 3.0)
            self._bring_back(now)
            if backup is None and now - began > seconds / 2:
                backup = self.places[RESTORED].run("store", "backup", str(self._backup))
            time.sleep(0.05)
        self._bring_back(float("inf"))
        if backup is None or backup.wait() != 0:
            self.trouble.append("there is no backup")

    def _kill_one(self, now: float) -> None:
        name = self._chance.choice(NAMES)
        if name not in self._back_at:
            if not self.places[name].kill():
                self.trouble.append(f"the server of {name} ended by itself")
            self.kills += 1
            self._back_at[name] = now + self._chance.choice(AWAY_SECONDS)

    def _bring_back(self, now: float) -> None:
        for name in [name for name, at in self._back_at.items() if at <= now]:
            del self._back_at[name]
            self.places[name].serve()

    def drain(self) -> bool:
        """Whether nothing waits any more. It is waited for as long as anything moves: a machine may have much else to
        do."""
        while any(left := self._waiting()):
            if not within(DRAIN_SECONDS, partial(self._has_moved, left)):
                self.trouble += [f"{count} wait at {name} yet" for name, count in zip(self.places, left, strict=True)]
                return False
        return True

    def _has_moved(self, since: list[int]) -> bool:
        return self._waiting() != since

    def _waiting(self) -> list[int]:
        return [one.count(WAITING) for one in self.places.values()]

    def restore(self) -> None:
        """Put the backup in the place of the store of a node, which has handed on all that it had. It sends anew what
        it had by then."""
        one = self.places[RESTORED]
        one.kill()
        one.node.close()
        for end in ("", "-wal", "-shm"):
            Path(f"{one.store}{end}").unlink(missing_ok=True)
        self._backup.rename(one.store)
        if one.run("store", "adopt", "--yes", "--actor=soak", "--reason=restored").wait() != 0:
            self.trouble.append("the backup was not adopted")
        one.open()
        one.serve()
        self.drain()  # what it had is dead letters by then
        for queue, *_ in one.rows(LETTERS):
            self.again += one.node.dead(queue.removesuffix("#dead")).redrive()

    def evidence(self) -> list[Evidence]:
        found: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for one in self.places.values():
            for queue in one.node.keys():  # noqa: SIM118 - a node is no dict
                for lane, number, way in one.bodies(queue):
                    found[lane].append((number, way))
        made = []
        for one in self.places.values():
            for lane, numbers in one.put.items():
                came = found.pop(lane, [])
                effects = [number for number, _way in came]
                if not lane.endswith(LINE):
                    self.trouble += overtaken(lane, came)
                    self.ways += len({way for _number, way in came})
                    effects.sort()
                calls = [(number, False) for number in dict.fromkeys(effects)]
                made.append(Evidence(lane, frozenset(numbers), effects, calls))
        self.trouble += [f"{lane}: none has put it" for lane in found]
        return made

    def look(self) -> None:
        for name, one in self.places.items():
            self.trouble += [f"{name}: dead letter: {reason}: {why}" for reason, why in one.rows(DEAD)]
            with one.node.reader() as db:
                self.trouble += [f"{name}: {finding}" for finding in all_findings(db)]

    def figures(self) -> dict[str, int]:
        puts = [(lane, numbers) for one in self.places.values() for lane, numbers in one.put.items()]
        in_line = sum(len(numbers) for lane, numbers in puts if lane.endswith(LINE))
        rerouted = "SELECT count(*) FROM ledger WHERE event = 'rerouted'"
        repeated = "SELECT count(*) FROM ledger WHERE event = 'repeated'"
        return {
            "put_to_line": in_line,
            "put_to_ring": sum(len(numbers) for _lane, numbers in puts) - in_line,
            "killed": self.kills,
            "sent_anew": self.again,
            "ways": self.ways,
            "rerouted": sum(one.count(rerouted) for one in self.places.values()),
            "came_again": sum(one.count(repeated) for one in self.places.values()),
        }


@contextmanager
def ring(directory: Path, seed: int) -> Iterator[Ring]:
    made = Ring(directory, seed)
    try:
        yield made
    finally:
        for one in made.places.values():
            one.kill()
            one.node.close()


def soak_routes(directory: Path, seconds: float, seed: int) -> Soak:
    with ring(directory, seed) as nodes:
        nodes.begin()
        nodes.disturb(seconds)
        if nodes.drain():  # else what waits at the one that is restored would be gone with its state
            nodes.restore()
            nodes.put(seconds / 10)
            nodes.drain()
        evidence = nodes.evidence()
        nodes.look()
        return Soak(nodes.places[RESTORED].store, evidence, nodes.kills, nodes.figures(), nodes.trouble)
