"""All that was seen of a store, and what is told of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from wsrm_mq.acts import Step
from wsrm_mq.store.port import Obstacle
from wsrm_mq.views.overview import Overview, Verdicts
from wsrm_mq.views.plans import PlanView
from wsrm_mq.views.rows import SequenceView

LITTLE_SPACE: Final = 100_000_000
"""Bytes on the disk: with less, what would make room is looked for."""
_WITHOUT_ROOM: Final = ("max_store", "disk_full")


class Room(NamedTuple):
    """The room that pruning would make in the store."""

    older_than: str = ""
    """The age to name; empty: nothing may be pruned."""
    messages: int = 0
    """At least so many go."""
    size: int = 0
    """Bytes of their bodies."""


class Sight(NamedTuple):
    """All that was seen of a store, in one state of it."""

    now: int
    at: Overview
    verdicts: Verdicts
    obstacle: Obstacle | None = None
    """Why it cannot be written."""
    doubt: str | None = None
    """Why it is not served before an operator adopts it."""
    plans: Sequence[PlanView] = ()
    """Of replays."""
    max_store: int | None = None
    """The option, as it is configured where the question is asked."""
    archive_within: int | None = None
    """The shortest ``retain``, in ms, of what is kept until it is archived, as it is configured there."""

    room: Room | None = None
    """Looked for where it ``lacks_room``."""

    @property
    def lacks_room(self) -> bool:
        """Nothing is taken for want of room, or that is near."""
        refused = any(one.reason in _WITHOUT_ROOM for one in self.at.takes_nothing(self.now))
        return refused or self.is_over or self.at.is_reserve_spent or self.at.disk_free < LITTLE_SPACE

    @property
    def is_locked(self) -> bool:
        return self.obstacle is not None and not self.obstacle.is_of_asker

    @property
    def overdue(self) -> int:
        """ms that a settled message is kept beyond its ``retain``, because no archive holds it."""
        if self.archive_within is None or self.at.unarchived is None:
            return 0
        return max(0, self.now - self.at.unarchived - self.archive_within)

    @property
    def is_over(self) -> bool:
        return self.at.is_over(self.max_store)


class Fact(NamedTuple):
    """``view`` and ``verdict``: the sequence that it is about, and the word; ``queue``: where it is about none."""

    sentence: str
    steps: tuple[Step, ...] = ()
    messages: int = 1
    """How many it is about."""
    since: int | None = None
    view: SequenceView | None = None
    verdict: str | None = None
    queue: str | None = None
    target: str | None = None
    """Where a sequence is replayed to that is not for the service."""
