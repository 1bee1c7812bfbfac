"""A store with something in it, and the command line in a directory of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.queue.build import Instance
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.sequence.inbound import InboundSequence
from wsrm_mq.store.sqlite import schema
from wsrm_mq.store.sqlite.presence import Presence
from wsrm_mq.testing import ManualClock

MINUTE = 60_000
HOUR = 60 * MINUTE
PLAIN = QueuePolicy()

Shell = Callable[..., "subprocess.CompletedProcess[bytes]"]


class Service:
    """A process that uses a store: its lock is held, and what it received and ran is told verb by verb."""

    def __init__(self, path: Path, now: int) -> None:
        self.path = path
        self.clock = ManualClock(now)
        self.presence = Presence(path)
        self.instance = Instance(path, self.clock, self.presence.name)

    def sequence(
        self, *numbers: int, policy: QueuePolicy = PLAIN, partner: str | None = None, **changes: Any
    ) -> InboundSequence:
        """A sequence that got ``numbers`` in that order; the service has it if any of them is deliverable."""
        made = self.instance.create(policy, partner=partner)
        for number in numbers:
            self.instance.take(made.terms.identifier, number, policy=policy, **changes)
        return made

    def key(self, sequence: InboundSequence) -> int:
        return self.instance.record(sequence.terms.identifier).id

    def claim(self, sequence: InboundSequence) -> Any:
        from wsrm_mq.queue.ownership import Claim

        record = self.instance.record(sequence.terms.identifier)
        return Claim(record.id, record.fence)

    def deliver(self, sequence: InboundSequence, *numbers: int) -> None:
        for number in numbers:
            self.instance.settle(self.claim(sequence), number, release=True)

    def fail(self, sequence: InboundSequence, number: int, error: str, *, retry: tuple[int, ...] = ()) -> None:
        self.instance.fail(self.claim(sequence), number, QueuePolicy(retry=retry), error)

    def close(self) -> None:
        """The process goes: its lock is free, its row is as it was."""
        self.presence.close()
        self.instance.close()


@pytest.fixture(autouse=True)
def _elsewhere(somewhere: Path) -> None:
    """Every test works there."""


@pytest.fixture
def path(somewhere: Path) -> Path:
    """The store that commands find without being told."""
    schema.ensure(somewhere / "wsrm.db")
    return somewhere / "wsrm.db"


@pytest.fixture
def service(path: Path) -> Iterator[Service]:
    """A service that lives; its clock begins an hour ago."""
    service = Service(path, time.time_ns() // 1_000_000 - HOUR)
    yield service
    service.close()


@pytest.fixture
def shell(somewhere: Path) -> Shell:
    """Run a command as a process of its own."""

    def run(*arguments: object, **options: Any) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "wsrm_mq", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, timeout=60, check=False, **options)

    return run
