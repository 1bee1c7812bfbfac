"""The demo from beginning to end: send on a bad line, kill -9 half-way, start again, count the effects."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from wsrm_mq.demo import PAUSE
from wsrm_mq.demo.server import DemoFailed, Server
from wsrm_mq.demo.sight import Observer, Sight, service_saw
from wsrm_mq.demo.source import Source
from wsrm_mq.testing import Line

if TYPE_CHECKING:
    from wsrm_mq.demo.screen import PlainScreen

LONGEST: Final = 50.0
"""Seconds after which the demo gives up and tells its counts so far."""
START: Final = 30.0
POLL: Final = 0.004


@dataclass(frozen=True, slots=True)
class Setup:
    messages: int
    connections: int
    line: Line


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


def run(setup: Setup, directory: Path, screen: PlainScreen) -> Result:
    """Run it with both databases in ``directory``. Raises ``DemoFailed`` where it cannot be run to its end."""
    began = time.monotonic()
    # A thread for each connection: none of them has to wait for another one's.
    server = Server(directory, threads=setup.connections + 2)
    source = Source(server.port, setup.messages, setup.connections, setup.line)
    observer = Observer(server.service_db, server.store)
    problem = ""
    try:
        server.start()
        server.wait(START)
        screen.say(f"The service runs under wsrm-mq serve, process {server.pid}, port {server.port}.")
        source.create()
        screen.say(f"Sequence {source.identifier}: {setup.messages} messages, {setup.connections} connections.")
        source.start()
        try:
            _until_done(setup, server, source, observer, screen, began + LONGEST)
        except DemoFailed as error:
            problem = str(error)
        source.stop()
        observer.close()  # before the server: the last one to close a database tidies it up
        server.stop()
    finally:
        source.stop()
        server.kill()
        observer.close()
    # Once more, as a last and only reader: the file is left tidy.
    with closing(sqlite3.connect(server.service_db, timeout=10)) as connection:
        seen = service_saw(connection)
    seconds = time.monotonic() - began
    return _result(setup, source, observer, seen, server.starts - 1, seconds, problem)


def _until_done(
    setup: Setup, server: Server, source: Source, observer: Observer, screen: PlainScreen, deadline: float
) -> None:
    tell = _Teller(screen)
    crash = _Crash(setup, server, source, observer, screen)
    is_closed = False
    while time.monotonic() < deadline:
        sight = observer.look()
        tell(sight)
        screen.show(sight, source.traffic, len(source.acknowledged))
        if server.starts == 1:
            crash.unless_too_early(sight)
        server.check()
        if source.is_done and not is_closed:
            screen.say("All messages are acknowledged: the sequence is closed and terminated.")
            server.wait(START)
            source.close_and_terminate()
            is_closed = True
        if is_closed and len(set(sight.effects)) == setup.messages:
            return
        time.sleep(POLL)
    raise DemoFailed(f"Given up after {LONGEST:.0f} s.")


@dataclass
class _Crash:
    """kill -9 and a new start, at the worst moment: half of the messages are accepted, some are held, and an
    order is done whose message is not settled."""

    setup: Setup
    server: Server
    source: Source
    observer: Observer
    screen: PlainScreen
    tries: int = 20
    """On a slow machine that moment is hard to hit; after so many tries a likely one will do."""

    def unless_too_early(self, sight: Sight) -> None:
        if not self._is_bad(sight):
            return
        self.server.freeze()
        frozen_at = time.time()
        sight = self.observer.look()
        # So young an effect is of an operation that has not returned: no settlement can be on its way.
        is_worst = frozen_at - sight.newest_at < PAUSE
        self.tries -= 1
        if not (self._is_bad(sight) and (is_worst or self.tries < 0)):
            self.server.thaw()
            return
        self.observer.close()
        pid = self.server.pid
        self.server.kill()
        done, held = len(sight.effects), sight.held
        self.screen.say(f"kill -9 {pid}, with {done} orders done and {held} messages held.")
        self.server.start()
        self.screen.say("Started again: same port, same store.")

    def _is_bad(self, sight: Sight) -> bool:
        is_half_way = 2 * sight.count >= self.setup.messages
        return is_half_way and sight.has_unsettled_effect and (sight.held > 0 or self.source.is_done)


class _Teller:
    """Prints the changes between two looks."""

    RUN: Final = 5
    """A replay of so many messages is worth a line."""

    def __init__(self, screen: PlainScreen) -> None:
        self._screen = screen
        self._last = Sight()

    def __call__(self, sight: Sight) -> None:
        last, self._last = self._last, sight
        if sight.limit - last.limit > self.RUN and last.held:
            self._screen.say(f"{last.limit} came: {last.limit + 1} to {sight.limit - 1} are replayed in order.")
        if sight.redelivered > last.redelivered:
            count = sight.redelivered - last.redelivered
            self._screen.say(f"{count} delivered again after the crash: the inbox knew, nothing was done twice.")


def _result(
    setup: Setup,
    source: Source,
    observer: Observer,
    seen: Sight,
    restarts: int,
    seconds: float,
    problem: str,
) -> Result:
    done = Counter(seen.effects)
    first_effects = list(dict.fromkeys(seen.effects))
    return Result(
        sent=setup.messages,
        acknowledged=len(source.acknowledged),
        delivered=len(done),
        in_order=first_effects == sorted(first_effects),
        duplicates_delivered=sum(times - 1 for times in done.values()),
        redelivered=seen.redelivered,
        lost=setup.messages - len(done),
        restarts=restarts,
        held_max=observer.held_max,
        transmissions=source.traffic.transmissions,
        requests_lost=source.traffic.requests_lost,
        answers_lost=source.traffic.answers_lost,
        duplicates_sent=source.traffic.duplicates,
        seconds=round(seconds, 2),
        problem=problem,
    )
