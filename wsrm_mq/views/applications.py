"""Messages that wait for an application which no process serves."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import select

from wsrm_mq.store import published as views
from wsrm_mq.store.applications import served
from wsrm_mq.store.compiling import compiled
from wsrm_mq.store.port import Database


class Unserved(NamedTuple):
    """A queue in which something waits that no live process may run."""

    queue: str
    application: str | None


_QUEUES: Final = compiled(
    select(views.queues.c.queue, views.queues.c.application)
    .where(views.queues.c.kind == "app")
    .order_by(views.queues.c.queue)
)


def unserved(db: Database, waiting: set[str]) -> list[Unserved]:
    """Of the queues in which something is ``waiting``; none where no process lives at all."""
    live = served(db)
    return [
        Unserved(name, application)
        for name, application in (db.execute(_QUEUES) if live else ())
        if name in waiting and not any(one.may_run(name, application) for one in live)
    ]
