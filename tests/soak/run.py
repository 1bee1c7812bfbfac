"""One run: clients and faults for a time, then quiet, then what both sides have seen."""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.crash.witness import in_background
from tests.soak.checker import Evidence
from tests.soak.clients import Client
from tests.soak.faults import Faults
from tests.support.fleet import Command, Fleet, gunicorn, served
from tests.support.orders import Orders
from wsrm_mq.store.invariants import all_findings

LOOK_SECONDS = 0.5
OWNED = (
    "select s.identifier, s.owner, s.fence, s.cursor, s.running_since from lane s join instance i on i.id = s.owner"
    ' where i.ended_at is null and s.cursor < s."limit" and s.blocked is null and s.leased_until is null'
)
CLIENTS = 6
PULLED = "/pulled"
"""The endpoint whose messages programs consume."""
WORKERS = 4
RETRY = (0.05, 0.2)
FRONTS = ("gunicorn", "serve")
"""Several processes with threads; ``wsrm-mq serve``, one with an event loop."""


@dataclass(frozen=True)
class Soak:
    store: Path
    evidence: list[Evidence]
    kills: int
    faults: dict[str, int]
    trouble: list[str]
    """What went wrong besides: an answer no client should get, a command that failed, a store that is not sound."""


class Owned:
    """Looks into the store, from outside, at the sequences that a service owns and has something to deliver of. What a
    program has leased is its own for as long as the lease lasts, however long it does nothing."""

    def __init__(self, fleet: Fleet) -> None:
        self._stored = fleet.stored
        self._since: dict[str, tuple[object, float]] = {}
        self.idle: dict[str, float] = defaultdict(float)
        """Sequence → seconds, the most that it was so and nothing of it changed."""

    def keep_looking(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            with suppress(sqlite3.Error):  # there is no store yet, or it is just being made
                self.look(time.monotonic())
            time.sleep(LOOK_SECONDS)

    def look(self, now: float) -> None:
        since = {}
        for identifier, *state in self._stored.rows(OWNED):
            before, begun = self._since.get(identifier, (None, now))
            since[identifier] = (state, begun if before == state else now)
            self.idle[identifier] = max(self.idle[identifier], now - since[identifier][1])
        self._since = since


def every_so_often(faults: Faults, end: float) -> None:
    """Something every second or so."""
    while time.monotonic() < end:
        faults.something()
        time.sleep(0.7)


def soak(
    directory: Path,
    seconds: float,
    seed: int,
    *,
    disturb: Callable[[Faults, float], None] = every_so_often,
    quiet: Callable[[], None] = lambda: None,
    is_pulled: bool = False,
    front: str = FRONTS[0],
    preload: bool | None = None,
    retry: Sequence[float] = RETRY,
) -> Soak:
    """``quiet`` is called when nothing is sent any more, and nothing is left to be delivered. ``is_pulled``: every
    second client sends to an endpoint whose messages programs consume. ``preload``: whether the workers are forked from
    a process that has the application; by default the seed says."""
    preload = random.Random(seed).random() < 0.5 if preload is None else preload
    over = threading.Event()
    options: dict[str, Any] = {"retry": list(retry), "on_poison": "block", "hold_wait": 2.0}
    if is_pulled:
        options["partners"] = {"pulled": {"path": PULLED, "mode": "pull"}}
    command, workers = _server(front, preload)
    with Fleet(directory, command, work=0.001, **options) as fleet:
        fleet.start(workers)
        clients = [
            Client(fleet, f"{seed} {number}", over, Orders(path=PULLED), may_fail=False)
            if is_pulled and number % 2
            else Client(fleet, f"{seed} {number}", over)
            for number in range(CLIENTS)
        ]
        threads = [in_background(client.run) for client in clients]

        def is_made_to_fail(identifier: str, number: int) -> bool:
            return any((identifier, number) in client.made_to_fail for client in clients)

        faults = Faults(fleet, f"{seed} faults", is_made_to_fail, len(RETRY))
        owned, is_quiet = Owned(fleet), threading.Event()
        looking = in_background(lambda: owned.keep_looking(is_quiet.is_set))
        try:
            disturb(faults, time.monotonic() + seconds)
        finally:
            over.set()
        fleet.set_clock(0)
        faults.until_quiet(lambda: not any(thread.is_alive() for thread in threads))
        is_quiet.set()
        looking.join()
        quiet()
        fleet.stop()
        trouble = [*faults.trouble, *(word for client in clients for word in client.trouble)]
        with closing(sqlite3.connect(f"file:{fleet.store}?mode=ro", uri=True)) as db:
            trouble += [f"store: {finding}" for finding in all_findings(db)]
        evidence = [
            Evidence(
                source.identifier,
                frozenset(source.acknowledged),
                fleet.effects(source.identifier),
                fleet.calls(source.identifier),
                frozenset(n for n in faults.given_up[source.identifier] if is_made_to_fail(source.identifier, n)),
                owned.idle[source.identifier],
            )
            for client in clients
            for source in client.sources
        ]
    return Soak(fleet.store, evidence, faults.kills, dict(faults.done), trouble)


def _server(front: str, preload: bool) -> tuple[Command, int]:
    """How it is started, and how many processes it has."""
    if front == "serve":
        return served(), 1
    return gunicorn(WORKERS, preload=preload), WORKERS
