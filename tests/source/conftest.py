from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.source.partner import Partner
from tests.support.source import OPPOSITES
from wsrm_mq.queue.policy import Resend
from wsrm_mq.source import RMSource
from wsrm_mq.store.invariants import all_findings
from wsrm_mq.testing import WSRM_1_1, EnvelopeFactory, ManualClock, RMVersion

Open = Callable[..., "Source"]


class Source(RMSource):
    """It says what it does in a few words."""

    partner: Partner
    clock: ManualClock
    path: Path

    def nudge(self) -> None:
        """Have the watch look now."""
        self._engine.watch.nudge()

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(round(seconds * 1000))
        self.nudge()

    def at_rest(self) -> bool:
        """Whether nothing is being sent now, or is about to be recorded."""
        return self.partner.within(lambda: not self.rows("SELECT 1 FROM lane WHERE owner IS NOT NULL"))

    def in_time(self, seconds: float = 5, *, step: float = 0.5) -> bool:
        """``flush`` while the time passes, step by step, and slowly: on a busy machine a try takes a while, and a
        sequence whose days had passed meanwhile would have expired."""

        def is_flushed() -> bool:
            if not self.flush(0):
                self.pass_time(step)
                time.sleep(0.02)
            return self.flush(0)

        return self.partner.within(is_flushed, seconds)

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._engine.store.reader() as db:
            return db.execute(query, values).fetchall()

    def ledger(self, *events: str) -> list[str]:
        return [
            reason for event, reason in self.rows("SELECT event, reason FROM ledger ORDER BY id") if event in events
        ]

    def states(self) -> list[tuple[str, int, str]]:
        """State, highest number and acknowledged numbers of each sequence."""
        return self.rows("SELECT state, given, acknowledged FROM outbound_sequence ORDER BY id")

    def run_sql(self, statement: str) -> None:
        """Write as another process does: what this one keeps in memory is read anew."""
        with closing(sqlite3.connect(self.path, timeout=30)) as db, db:
            db.execute(statement)


@pytest.fixture(
    params=[pytest.param(rm, marks=() if rm is WSRM_1_1 else pytest.mark.again) for rm, _soap, _wsa in OPPOSITES],
    ids=["rm1.0", "rm1.1"],
)
def rm(request: pytest.FixtureRequest) -> RMVersion:
    """Each version of WS-RM, with a version of SOAP and of WS-Addressing of its own."""
    version: RMVersion = request.param
    return version


@pytest.fixture
def speak(rm: RMVersion) -> EnvelopeFactory:
    return EnvelopeFactory(*next(each for each in OPPOSITES if each[0] is rm))


@pytest.fixture
def partner(speak: EnvelopeFactory) -> Partner:
    return Partner(speak)


@pytest.fixture
def open_source(tmp_path: Path, partner: Partner) -> Iterator[Open]:
    """Open the store again and again; what is in it is sound at the end."""
    clock = ManualClock()
    opened: list[Source] = []

    def open_it(**options: Any) -> Source:
        speak = partner.speak
        source = Source(
            tmp_path / "outbox.db",
            **{
                "rm": speak.rm.label,
                "addressing": speak.addressing.label,
                "post": partner.post,
                "clock": clock,
                "resend": Resend(),  # waits of a length that is known
                **options,
            },
        )
        source.partner, source.clock, source.path = partner, clock, tmp_path / "outbox.db"
        opened.append(source)
        return source

    yield open_it
    for source in opened:
        if source._engine.is_running:
            with source._engine.store.reader() as db:
                found = list(all_findings(db))
            source.close()
            assert found == []


@pytest.fixture
def source(open_source: Open) -> Source:
    return open_source()
