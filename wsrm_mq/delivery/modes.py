"""At a start, what waits in the queues of this process goes where its modes say; see ``queue.modes``."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

from wsrm_mq.errors import OtherApplication
from wsrm_mq.events.telling import Events
from wsrm_mq.queue.modes import change_modes
from wsrm_mq.queue.policy import PolicyOf
from wsrm_mq.queue.pulling import claim
from wsrm_mq.store.store import Store

_SECONDS: Final = 1.0


class HasStore(Protocol):
    """An engine, as far as it is asked here."""

    events: Events
    store: Store


def claim_queue(store: Store, name: str) -> None:
    """Have the queue of this name for a service that is called. Raises ``OtherApplication`` where programs have it."""
    if not store.call(lambda tx: claim(tx, name)):
        raise OtherApplication(
            f"{store.path}: programs have declared the queue {name}, and could not consume what is in it once a "
            "service is called with what arrives there.",
            'Give the service\'s `queue` another name, or leave what arrives to the programs by `mode = "pull"`.',
        )


class Modes:
    """A chore of the watch, until nothing is left that another process runs, or a consumer has leased."""

    def __init__(self, engine: Callable[[], HasStore], policy_of: PolicyOf, *, pulls: bool) -> None:
        self._engine = engine
        self._policy_of = policy_of
        self._pulls = pulls
        self._is_through = False
        self._due = 0.0

    def look(self) -> None:
        if self._is_through or time.monotonic() < self._due:
            return
        engine = self._engine()
        changed = engine.store.call(lambda tx: change_modes(tx, self._policy_of, pulls=self._pulls))
        for one in changed:
            if one.moved or not self._due:
                engine.events.tell("queue.mode_changed", **one._asdict())
        self._is_through = not any(one.left for one in changed)
        self._due = time.monotonic() + _SECONDS
