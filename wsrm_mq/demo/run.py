"""The demo from beginning to end: send on a bad line, kill -9 half-way, start again, count what was done."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from wsrm_mq.demo.server import DemoFailed, Server
from wsrm_mq.demo.sight import Sight, Watch, service_saw
from wsrm_mq.demo.source import Line, Source, Traffic

__all__ = ["Plan", "Result", "Screen", "run"]

LONGEST: Final = 50.0
"""Seconds after which the demo gives up and tells what it has seen."""
START: Final = 30.0
POLL: Final = 0.004


@dataclass(frozen=True, slots=True)
class Plan:
    messages: int
    connections: int
    line: Line


@dataclass(frozen=True, slots=True)
class Result:
    """What the service saw and did, from its own database; what was held, from our store."""

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


class Screen(Protocol):
    """Where the demo is shown."""

    def say(self, text: str) -> None: ...
    def show(self, sight: Sight, traffic: Traffic, acknowledged: int) -> None: ...


def run(plan: Plan, directory: Path, screen: Screen) -> Result:
    """Run it with both databases in ``directory``. Raises ``DemoFailed`` where it cannot be run to its end."""
    began = time.monotonic()
    # A thread for each connection: none of them has to wait for another one's.
    server = Server(directory, threads=plan.connections + 2)
    source = Source(server.port, plan.messages, plan.connections, plan.line)
    watch = Watch(server.service_db, server.store)
    problem = ""
    try:
        server.start()
        server.wait(START)
        screen.say(f"The service runs under wsrm-mq serve, process {server.pid}, port {server.port}.")
        source.create()
        screen.say(f"Sequence {source.identifier}: {plan.messages} messages, {plan.connections} connections.")
        source.start()
        try:
            _until_done(plan, server, source, watch, screen, began + LONGEST)
        except DemoFailed as error:
            problem = str(error)
        source.stop()
        server.stop()
    finally:
        source.stop()
        server.kill()
        watch.close()
    effects, redelivered = service_saw(server.service_db)
    seconds = time.monotonic() - began
    return _result(plan, source, watch, effects, redelivered, server.starts - 1, seconds, problem)


def _until_done(plan: Plan, server: Server, source: Source, watch: Watch, screen: Screen, deadline: float) -> None:
    tell = _Teller(screen)
    is_closed = False
    while time.monotonic() < deadline:
        sight = watch.look()
        tell(sight)
        screen.show(sight, source.traffic, len(source.acknowledged))
        if server.starts == 1 and _is_the_worst_moment(plan, source, sight):
            _crash(plan, server, source, watch, screen)
        server.check()
        if source.is_done and not is_closed:
            screen.say("All messages are acknowledged: the sequence is closed and terminated.")
            server.wait(START)
            source.close_and_terminate()
            is_closed = True
        if is_closed and len(set(sight.effects)) == plan.messages:
            return
        time.sleep(POLL)
    raise DemoFailed(f"Given up after {LONGEST:.0f} s.")


def _crash(plan: Plan, server: Server, source: Source, watch: Watch, screen: Screen) -> None:
    """kill -9 and start again, unless the moment is gone when the server stands still to be looked at."""
    server.freeze()
    sight = watch.look()
    if not _is_the_worst_moment(plan, source, sight):
        server.thaw()
        return
    pid = server.pid
    watch.close()
    server.kill()
    screen.say(f"kill -9 {pid}, with {len(sight.effects)} orders done and {sight.held} messages held.")
    server.start()
    screen.say("Started again: same port, same store.")


def _is_the_worst_moment(plan: Plan, source: Source, sight: Sight) -> bool:
    """Half is accepted, an order is done and not settled, and others are held, if any will ever be again."""
    is_half_way = 2 * sight.count >= plan.messages
    return is_half_way and sight.has_unsettled_effect and (sight.held > 0 or source.is_done)


class _Teller:
    """Says what changed between two looks."""

    RUN: Final = 5
    """A replay of so many messages is worth a line."""

    def __init__(self, screen: Screen) -> None:
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
    plan: Plan,
    source: Source,
    watch: Watch,
    effects: tuple[int, ...],
    redelivered: int,
    restarts: int,
    seconds: float,
    problem: str,
) -> Result:
    done = Counter(effects)
    first_effects = list(dict.fromkeys(effects))
    return Result(
        sent=plan.messages,
        acknowledged=len(source.acknowledged),
        delivered=len(done),
        in_order=first_effects == sorted(first_effects),
        duplicates_delivered=sum(times - 1 for times in done.values()),
        redelivered=redelivered,
        lost=plan.messages - len(done),
        restarts=restarts,
        held_max=watch.held_max,
        transmissions=source.traffic.transmissions,
        requests_lost=source.traffic.requests_lost,
        answers_lost=source.traffic.answers_lost,
        duplicates_sent=source.traffic.duplicates,
        seconds=round(seconds, 2),
        problem=problem,
    )
