"""One run: clients and faults for a time, then quiet, then what both sides have seen."""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tests.crash.witness import in_background
from tests.soak.checker import Evidence
from tests.soak.clients import Client
from tests.soak.faults import Faults
from tests.support.fleet import Fleet, gunicorn
from wsrm_mq.cli.invariants import all_findings

__all__ = ["Soak", "soak"]

CLIENTS = 6
WORKERS = 4


@dataclass(frozen=True)
class Soak:
    evidence: list[Evidence]
    kills: int
    faults: dict[str, int]
    trouble: list[str]
    """What went wrong besides: an answer no client should get, a command that failed, a store that is not sound."""


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
    preload: bool | None = None,
) -> Soak:
    """``preload``: whether the workers are forked from a process that has the application; by default the seed says."""
    preload = random.Random(seed).random() < 0.5 if preload is None else preload
    over = threading.Event()
    options = {"retry": [0.05, 0.2], "on_poison": "block", "hold_wait": 2.0}
    with Fleet(directory, gunicorn(WORKERS, preload=preload), work=0.001, **options) as fleet:
        fleet.start(WORKERS)
        clients = [Client(fleet, f"{seed} {number}", over) for number in range(CLIENTS)]
        threads = [in_background(client.run) for client in clients]
        faults = Faults(fleet, f"{seed} faults")
        disturb(faults, time.monotonic() + seconds)
        fleet.set_clock(0)
        over.set()
        faults.until_quiet(lambda: not any(thread.is_alive() for thread in threads))
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
                frozenset(faults.given_up[source.identifier]),
            )
            for client in clients
            for source in client.sources
        ]
    return Soak(evidence, faults.kills, dict(faults.done), trouble)
