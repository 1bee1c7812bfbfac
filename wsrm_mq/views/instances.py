"""The processes of services that use a store. Whether one lives, its lock beside the store tells."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import and_, bindparam, exists, not_, or_, select

from wsrm_mq.store import published as views
from wsrm_mq.store.applications import CONSUMES, OUTGOING, ROUTES, SOURCE, served
from wsrm_mq.store.compiling import compiled
from wsrm_mq.store.driver import file_of, instances_of
from wsrm_mq.store.port import Database


class Instance(NamedTuple):
    """A process that uses the store, or did; ``started_at``: ms since the epoch."""

    key: int
    name: str
    host: str
    pid: int
    started_at: int


_c: Final = views.instances.c
_INSTANCES: Final = select(_c.key, _c.instance, _c.host, _c.pid, _c.started_at)
_CONSUMES: Final = or_(*(_c.paths.startswith(f'["{name}') for name in (CONSUMES, ROUTES)))
_SERVES: Final = or_(_c.paths.is_(None), and_(not_(_c.paths.startswith(f'["{OUTGOING}')), not_(_CONSUMES)))
"""It neither runs a plan nor consumes queues: that is no service."""
_NOT_ENDED: Final = compiled(_INSTANCES.where(_c.ended_at.is_(None), _SERVES).order_by(_c.key))
_SENDS: Final = _c.paths.startswith(f'["{SOURCE}')
_IS_SERVED: Final = compiled(
    select(
        or_(
            exists().where(_SERVES, or_(_c.paths.is_(None), not_(_SENDS))), not_(exists().where(or_(_CONSUMES, _SENDS)))
        )
    )
)
_NAMED: Final = compiled(_INSTANCES.where(_c.instance == bindparam("name")))


def instance(db: Database, name: str) -> Instance | None:
    """The instance of this name, alive or not; ``None`` where retention has deleted its row."""
    row = db.execute(_NAMED, {"name": name}).fetchone()
    return Instance._make(row) if row is not None else None


def lives(db: Database, one: Instance) -> bool:
    """Whether a process lives, whatever it does."""
    return instances_of(file_of(db)).lives(one.name) is not False


def is_served(db: Database) -> bool:
    """Whether the store is a service's. Of one that programs alone have opened, which put, consume or send requests, it
    is not."""
    return bool(db.execute(_IS_SERVED).fetchone()[0])


def live_instances(db: Database) -> list[Instance]:
    """The processes that use the store now: those with a row that hold their lock."""
    return [one for one, has_lock in known_instances(db) if has_lock]


def known_instances(db: Database) -> list[tuple[Instance, bool | None]]:
    """The processes that are not known to have ended, and whether each holds its lock. ``None``: its file is missing,
    so it lives elsewhere, as that of a copied store, or will be found out by one that lives here."""
    store = file_of(db)
    return [(one, instances_of(store).lives(one.name)) for one in map(Instance._make, db.execute(_NOT_ENDED))]


# Messages that wait for an application which no process serves.


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
    """The queues that no live process serves, of those in which something is ``waiting``; none where no process lives
    at all."""
    live = served(db)
    return [
        Unserved(name, application)
        for name, application in (db.execute(_QUEUES) if live else ())
        if name in waiting and not any(one.may_run(name, application) for one in live)
    ]
