"""How far a divided plan has come, as its journals have it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from wsrm_mq.replay.divided import DividedPlan
from wsrm_mq.replay.journal import Record, state_of


class Stopped(NamedTuple):
    """A sequence that stands still, at the message that was not delivered."""

    store: str
    sequence: str | None
    number: int | None
    position: int
    error: str


class Standing(NamedTuple):
    """How far a plan in parts has come, in messages, as its journals say."""

    messages: int
    delivered: int
    stopped: tuple[Stopped, ...]

    @property
    def is_done(self) -> bool:
        return self.delivered == self.messages


def standing(plan: DividedPlan) -> Standing:
    """Reads all journals, and each part with a sequence that stands still. Raises ``NotAllowed`` for a changed one."""
    delivered = 0
    stopped: list[Stopped] = []
    for part in range(len(plan.manifest.parts)):
        state = state_of(plan.journals(part))
        delivered += state.delivered
        if state.stopped:
            stopped += _stopped(plan, part, {record.line: record for record in state.stopped.values()})
    return Standing(plan.manifest.messages, delivered, tuple(stopped))


def _stopped(plan: DividedPlan, part: int, records: dict[int, Record]) -> Iterator[Stopped]:
    for number, line in plan.lines(part):
        if number in records:
            yield Stopped(line.store, line.sequence, line.number, line.position, records[number].error or "")
