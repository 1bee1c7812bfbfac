"""A service with a store, and what it was called with."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.in_process import InProcess, taken, until
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.replay import Header, Line, PlanFile, Progress, Wishes, make_plan, run_plan, to_application
from wsrm_mq.store.sqlite.connection import connect_reader
from wsrm_mq.views.rows import outcomes


class Call(NamedTuple):
    identifier: str
    number: int
    redelivery: bool
    replay_id: str


class Recorder:
    """An application that takes all but ``refused`` numbers, and knows its calls."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.refused: set[int] = set()
        self.seconds = 0.0
        """How long an operation takes."""
        self.goes_on = threading.Event()
        self.goes_on.set()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        call = Call(*(environ[f"wsrm.{key}"] for key in ("sequence_id", "message_number", "redelivery", "replay_id")))
        self.calls.append(call)
        assert self.goes_on.wait(10)
        time.sleep(self.seconds)
        if call.number in self.refused:
            raise OSError(f"number {call.number} is refused")
        return taken(start_response)

    @property
    def numbers(self) -> list[int]:
        return [call.number for call in self.calls]


def once_only(_partner: str | None) -> QueuePolicy:
    """The policy without a second try."""
    return QueuePolicy(retry=())


class House:
    """A service that runs, its store, and a second application, ``other``, for replays that are delivered here."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.directory = directory
        self.service, self.other = Recorder(), Recorder()
        self.rm = InProcess(directory, self.service, **{"retry": (), **options})
        self.path = self.rm.path
        self._plans = 0

    def sequence(self, *numbers: int) -> str:
        """A sequence that got ``numbers``, in that order; those that can be are delivered."""
        identifier = self.rm.create()
        for number in numbers:
            self.rm.put(identifier, number)
        self.settled()
        return identifier

    def settled(self) -> None:
        """Wait until nothing runs."""
        busy = """
            SELECT 1 FROM lane
            WHERE owner IS NOT NULL OR (cursor < "limit" AND blocked IS NULL AND on_hold_since IS NULL)
        """
        assert until(lambda: not self.rm.rows(busy))

    def plan(self, query: str, **wishes: Any) -> Path:
        self._plans += 1
        file = self.directory / f"plan{self._plans}.json"
        made = Wishes(query, **{"target": "other", "actor": "ann", "reason": "a test", **wishes})
        make_plan(self.path, made, file)
        return file

    def run(self, file: Path, **options: Any) -> Progress:
        """Into ``other``."""
        options = {"target": "other", "call": to_application(self.other, once_only), "policy_of": once_only, **options}
        return run_plan(self.path, file, actor="bob", **options)

    def run_to_service(self, file: Path, **options: Any) -> Progress:
        return run_plan(self.path, file, actor="bob", **options)

    def state_of(self, file: Path) -> str:
        with PlanFile(file) as plan:
            [(state,)] = self.rm.rows("SELECT state FROM plan WHERE id = ?", plan.header.id)
        return str(state)

    def close(self) -> None:
        self.rm.middleware.close(5)


def read(file: Path) -> tuple[Header, list[Line]]:
    with PlanFile(file) as plan:
        return plan.header, [line for _number, line in plan.lines()]


def numbers(file: Path) -> list[int | None]:
    return [line.number for line in read(file)[1]]


def counted(house: House, file: Path) -> dict[str, int]:
    """What became of the messages that the plan has entered."""
    return outcomes(connect_reader(house.path), read(file)[0].id)
