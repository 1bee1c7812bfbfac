"""The demo from beginning to end: its run, and how it is shown."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter, deque
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from wsrm_mq.demo import PAUSE
from wsrm_mq.demo.partner import Source
from wsrm_mq.demo.server import DemoFailed, Server
from wsrm_mq.testing import (
    Line,
    Traffic,
)

# The run: send on a bad line, kill -9 half-way, start again, count the effects.


@dataclass(frozen=True, slots=True)
class Sight:
    """One moment. Numbers are message numbers; the demo's orders have the same."""

    effects: tuple[int, ...] = ()
    """The orders that were done, in the order of commit."""
    newest_at: float = 0.0
    """The time of the last of them, in seconds since the epoch."""
    redelivered: int = 0
    """Calls that the inbox recognised."""
    accepted: tuple[tuple[int, int], ...] = ()
    """Ranges received, both ends included."""
    cursor: int = 1
    """The lowest number accepted and not settled."""
    limit: int = 1
    """Everything accepted below it is delivered or being delivered; above it is held."""

    @property
    def count(self) -> int:
        """Messages accepted."""
        return sum(upper + 1 - lower for lower, upper in self.accepted)

    @property
    def held(self) -> int:
        return sum(max(0, upper + 1 - max(lower, self.limit)) for lower, upper in self.accepted)

    def is_accepted(self, number: int) -> bool:
        return any(lower <= number <= upper for lower, upper in self.accepted)

    @property
    def has_unsettled_effect(self) -> bool:
        """The service has committed an order that our store does not know to be done."""
        return bool(self.effects) and self.effects[-1] >= self.cursor


class Observer:
    """Takes sights, and remembers the most messages that were held at a time.

    It only reads: a connection that could write would, as the last one, tidy up after a crash. And it stays connected:
    else the service's own would often be the last one, which locks the file as it closes, and may stand still then.
    """

    def __init__(self, service_db: Path, store: Path) -> None:
        self.held_max = 0
        self._service_db = service_db
        self._store = store
        self._open: dict[Path, sqlite3.Connection] = {}

    def look(self) -> Sight:
        """Take a sight. The service's database is read first: an order that is unsettled in our store afterwards was so
        when the service had done it."""
        sight = service_saw(self._connection(self._service_db))
        accepted, cursor, limit = _sequence(self._connection(self._store))
        sight = replace(sight, accepted=accepted, cursor=cursor, limit=limit)
        self.held_max = max(self.held_max, sight.held)
        return sight

    def close(self) -> None:
        """Let go of both files; the next look opens them again."""
        while self._open:
            self._open.popitem()[1].close()

    def _connection(self, database: Path) -> sqlite3.Connection:
        if database not in self._open:
            connection = sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True, timeout=10)
            connection.isolation_level = None
            self._open[database] = connection
        return self._open[database]


def service_saw(connection: sqlite3.Connection) -> Sight:
    """The part of a sight that the service's own database tells."""
    effects = connection.execute("SELECT n, at FROM effects ORDER BY rowid").fetchall()
    (redelivered,) = connection.execute("SELECT count(*) FROM calls WHERE redelivery = 1").fetchone()
    return Sight(tuple(n for n, _ in effects), effects[-1][1] if effects else 0.0, redelivered)


def _sequence(store: sqlite3.Connection) -> tuple[tuple[tuple[int, int], ...], int, int]:
    """Ranges, cursor and limit of the demo's sequence, of one moment."""
    store.execute("BEGIN")
    try:
        row = store.execute('SELECT id, cursor, "limit" FROM lane').fetchone()
        if row is None:
            return (), 1, 1
        ranges = store.execute("SELECT lower, upper FROM range WHERE lane = ? ORDER BY lower", row[:1]).fetchall()
        return tuple(ranges), row[1], row[2]
    finally:
        store.execute("COMMIT")


LONGEST: Final = 50.0
"""Seconds after which the demo gives up and tells its counts so far."""
START: Final = 30.0
POLL: Final = 0.004
CONNECTIONS: Final = 4
LOST: Final = 0.15
"""The share of transmissions that get lost, and of those that come twice."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of the demo: the deliveries by the service's own database, the held messages by our store."""

    sent: int
    """Distinct messages."""
    acknowledged: int
    delivered: int
    """Distinct orders that had their effect."""
    in_order: bool
    duplicates_delivered: int
    """Effects beyond the first of an order."""
    redelivered: int
    """Calls that the inbox recognised."""
    lost: int
    restarts: int
    held_max: int
    transmissions: int
    requests_lost: int
    answers_lost: int
    duplicates_sent: int
    seconds: float
    problem: str
    """Why it did not come to its end; empty where it did."""

    @property
    def is_good(self) -> bool:
        return self.lost == 0 and self.duplicates_delivered == 0 and self.in_order and not self.problem


def run(messages: int, seed: int, directory: Path, screen: PlainScreen) -> Result:
    """Run it with so many ``messages``, and both databases in ``directory``. Raises ``DemoFailed`` where it cannot be
    run to its end."""
    began = time.monotonic()
    demo = _Demo(messages, seed, directory, screen)
    problem = ""
    try:
        demo.begin()
        try:
            demo.go_on(began + LONGEST)
        except DemoFailed as error:
            problem = str(error)
        demo.end()
    finally:
        demo.give_up()
    return demo.result(time.monotonic() - began, problem)


class _Demo:
    TRIES: Final = 20
    """On a slow machine the worst moment for a crash is hard to hit; after so many tries a likely one will do."""
    REPLAY: Final = 5
    """A replay of so many messages is worth a line."""

    def __init__(self, messages: int, seed: int, directory: Path, screen: PlainScreen) -> None:
        self._messages, self._screen = messages, screen
        # A thread for each connection: none of them has to wait for another one's.
        self._server = Server(directory, threads=CONNECTIONS + 2)
        self._source = Source(self._server.port, messages, CONNECTIONS, Line(LOST, LOST, seed=seed))
        self._observer = Observer(self._server.service_db, self._server.store)
        self._tries = self.TRIES

    def begin(self) -> None:
        server, source = self._server, self._source
        server.start()
        server.wait(START)
        self._screen.say(f"The service runs under wsrm-mq serve, process {server.pid}, port {server.port}.")
        source.create()
        self._screen.say(f"Sequence {source.sender.identifier}: {self._messages} messages, {CONNECTIONS} connections.")
        source.start()

    def go_on(self, deadline: float) -> None:
        """Go on until every order is done. Raises ``DemoFailed`` at the ``deadline``."""
        server, source = self._server, self._source
        last, is_closed = Sight(), False
        while time.monotonic() < deadline:
            sight = self._observer.look()
            self._tell(last, sight)
            self._screen.show(sight, source.traffic, len(source.sender.acknowledged))
            if server.starts == 1 and self._is_bad_moment(sight):
                self._crash()
            server.check()
            if source.is_done and not is_closed:
                self._screen.say("All messages are acknowledged: the sequence is closed and terminated.")
                server.wait(START)
                source.close_and_terminate()
                is_closed = True
            if is_closed and len(set(sight.effects)) == self._messages:
                return
            last = sight
            time.sleep(POLL)
        raise DemoFailed(f"Given up after {LONGEST:.0f} s.")

    def end(self) -> None:
        self._source.stop()
        self._observer.close()  # before the server: the last one to close a database tidies it up
        self._server.stop()

    def give_up(self) -> None:
        """Stop source, server and observer, where they still run."""
        self._source.stop()
        self._server.kill()
        self._observer.close()

    def result(self, seconds: float, problem: str) -> Result:
        # Once more, as a last and only reader: the file is left tidy.
        with closing(sqlite3.connect(self._server.service_db, timeout=10)) as connection:
            seen = service_saw(connection)
        done, traffic = Counter(seen.effects), self._source.traffic
        return Result(
            sent=self._messages,
            acknowledged=len(self._source.sender.acknowledged),
            delivered=len(done),
            in_order=list(done) == sorted(done),  # in the order of their first effects
            duplicates_delivered=len(seen.effects) - len(done),
            redelivered=seen.redelivered,
            lost=self._messages - len(done),
            restarts=self._server.starts - 1,
            held_max=self._observer.held_max,
            transmissions=traffic.transmissions,
            requests_lost=traffic.requests_lost,
            answers_lost=traffic.answers_lost,
            duplicates_sent=traffic.duplicates,
            seconds=round(seconds, 2),
            problem=problem,
        )

    def _is_bad_moment(self, sight: Sight) -> bool:
        """Half of the messages are accepted, some are held, and an order is done whose message is not settled."""
        is_half_way = 2 * sight.count >= self._messages
        return is_half_way and sight.has_unsettled_effect and (sight.held > 0 or self._source.is_done)

    def _crash(self) -> None:
        """kill -9 and a new start, if the process stands still at the worst moment; else it runs on."""
        self._server.freeze()
        frozen_at = time.time()
        sight = self._observer.look()
        # So young an effect is of an operation that has not returned: no settlement can be on its way.
        is_worst = frozen_at - sight.newest_at < PAUSE
        self._tries -= 1
        if not (self._is_bad_moment(sight) and (is_worst or self._tries < 0)):
            self._server.thaw()
            return
        self._observer.close()
        pid = self._server.pid
        self._server.kill()
        done, held = len(sight.effects), sight.held
        self._screen.say(f"kill -9 {pid}, with {done} orders done and {held} messages held.")
        self._server.start()
        self._screen.say("Started again: same port, same store.")

    def _tell(self, last: Sight, sight: Sight) -> None:
        """Tell the changes between two looks."""
        if sight.limit - last.limit > self.REPLAY and last.held:
            self._screen.say(f"{last.limit} came: {last.limit + 1} to {sight.limit - 1} are replayed in order.")
        if sight.redelivered > last.redelivered:
            count = sight.redelivered - last.redelivered
            self._screen.say(f"{count} delivered again after the crash: the inbox knew, nothing was done twice.")


# Two ways to show it: live on a terminal, line by line anywhere else.


_STATES: Final = {
    "done": ("█", "green"),
    "accepted": ("▓", "blue"),
    "held": ("▒", "yellow"),
    "missing": ("·", "dim"),
}
"""A message is one character; the words are the legend."""


class PlainScreen:
    """Prints each message as a line."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        pass

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def show(self, sight: Sight, traffic: Traffic, acknowledged: int) -> None:
        pass


class LiveScreen(PlainScreen):
    """Every message as a character, figures below it, and the last things that were said."""

    def __init__(self, console: Console, messages: int) -> None:
        super().__init__(console)
        self._messages = messages
        self._said: deque[str] = deque(maxlen=10)
        self._sight, self._traffic, self._acknowledged = Sight(), Traffic(), 0
        self._live = Live(console=console, refresh_per_second=10, get_renderable=self._picture)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._live.__exit__(*error)

    def say(self, text: str) -> None:
        self._said.append(text)

    def show(self, sight: Sight, traffic: Traffic, acknowledged: int) -> None:
        self._sight, self._traffic, self._acknowledged = sight, traffic, acknowledged

    def _picture(self) -> Group:
        sight, traffic = self._sight, self._traffic
        done = set(sight.effects)
        strip = Text()
        for number in range(1, self._messages + 1):
            strip.append(*_STATES[_state(number, sight, done)])
        legend = Text("  ").join(Text(f"{mark} {word}", style) for word, (mark, style) in _STATES.items())
        figures = Table.grid(padding=(0, 3))
        figures.add_row(
            f"sent {traffic.transmissions}",
            f"lost requests {traffic.requests_lost}",
            f"lost answers {traffic.answers_lost}",
            f"repeated {traffic.duplicates}",
        )
        figures.add_row(
            f"acknowledged {self._acknowledged}",
            f"held {sight.held}",
            f"done {len(done)}",
            f"delivered again {sight.redelivered}",
        )
        return Group(Panel(Group(strip, legend), title="messages"), figures, Text("\n".join(self._said)))


def _state(number: int, sight: Sight, done: set[int]) -> str:
    if number in done:
        return "done"
    if not sight.is_accepted(number):
        return "missing"
    return "accepted" if number < sight.limit else "held"


def summary(result: Result) -> Table:
    """The figures at the end."""
    table = Table.grid(padding=(0, 2))
    for name, value in (
        ("messages sent", f"{result.sent}, in {result.transmissions} transmissions"),
        ("lost on the line", f"{result.requests_lost} requests, {result.answers_lost} answers"),
        ("repeated by the line", result.duplicates_sent),
        ("acknowledged", result.acknowledged),
        ("done by the service", result.delivered),
        ("in order", "yes" if result.in_order else "NO"),
        ("done twice", result.duplicates_delivered),
        ("lost", result.lost),
        ("delivered again after kill -9", f"{result.redelivered}, each recognised by the inbox"),
        ("held at most", result.held_max),
        ("seconds", result.seconds),
    ):
        table.add_row(name, str(value))
    return table
