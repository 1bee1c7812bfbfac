"""The janitor of a node: where no service has messages in the store, programs that put and consume keep house there."""

from __future__ import annotations

from typing import Final

from wsrm_mq.delivery.janitor import Janitor
from wsrm_mq.events.telling import Events
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.queue.retention import Pruned
from wsrm_mq.store import queues
from wsrm_mq.store.store import Store

KEPT: Final = QueuePolicy(retain=3_600_000)
"""A settled message is on record for an hour, and where its queue says so for longer."""


class Upkeep(Janitor):
    """A janitor that leaves a store to its service, which says how long messages are kept there."""

    def __init__(self, store: Store, events: Events) -> None:
        super().__init__(store, lambda _partner: KEPT, events)

    def sweep(self) -> Pruned:
        with self._store.reader() as db:
            (is_served,) = db.execute(queues.IS_SERVED).fetchone()
        return Pruned() if is_served else super().sweep()
