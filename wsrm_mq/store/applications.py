"""Several applications may use one store: each queue knows the application that it was filled for, and no other
application is given the messages that wait there.

The option `application` names an application. A process without that option is an application without a name, and its
queues have none; a process with a name takes such queues over. A process runs and accepts only messages on its own
paths.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final, NamedTuple

from wsrm_mq.errors import OtherApplication
from wsrm_mq.store.driver import file_of, instances_of
from wsrm_mq.store.port import Database
from wsrm_mq.store.sql import listed, written
from wsrm_mq.store.tables import lane

_WITH_BACKLOG: Final = written("""
SELECT queue FROM entry by_index(entry_live) WHERE lane IS NOT NULL AND outcome IS NULL
UNION SELECT queue FROM entry by_index(entry_loose) WHERE priority IS NULL AND lane IS NULL AND outcome IS NULL
""")
_LIVE: Final = "SELECT name, pid, application, paths FROM instance WHERE ended_at IS NULL"
_HAND_OVER: Final = written(
    "UPDATE queue SET application = ? WHERE kind = 'app' AND policy IS NULL AND application IS NOT DISTINCT FROM ?"
)
_OF_OTHERS: Final = written(
    "SELECT id, name, application FROM queue WHERE kind = 'app' AND policy IS NULL AND application IS DISTINCT FROM ?"
)
_TAKE: Final = "UPDATE queue SET application = ? WHERE id = ?"
_ALL: Final = "SELECT id, name, application FROM queue WHERE kind IN ('app', 'outgoing')"
_PERHAPS_FOREIGN: Final = written("""
SELECT id, name, application FROM queue
WHERE kind = 'outgoing' OR name LIKE 'route/%'
OR (kind = 'app' AND application IS NOT NULL AND application IS DISTINCT FROM ?)
""")


FOREIGN: Final = listed("foreign")
"""``:foreign`` is a JSON list of the keys of queues whose messages are for others."""
IS_OURS: Final = lane.c.queue.not_in(FOREIGN)


def queue_name(path: str) -> str:
    """The name of the queue of a path: ``#`` is for the names of dead-letter queues."""
    return path.replace("#", "%23")


OUTGOING: Final = "replay/"
"""No path begins so: an outgoing queue has what a plan replays to a target of its own, and only its run serves it."""


CONSUMES: Final = "consume/"
"""Nor so: a process that puts and consumes messages serves no path."""


def outgoing_queue(plan: str) -> str:
    """The beginning of the names of this plan's outgoing queues; the run of the plan serves it as a path."""
    return f"{OUTGOING}{plan}"


SENT: Final = "send/"
FETCHED: Final = "fetch/"
"""No path begins so either: what this side says of its own accord about the sequences of a path. The one is sent, the
other waits to be fetched (WS-MakeConnection)."""
SOURCE: Final = "source/"
"""Nor so: the requests of an RM Source; the address that they are sent to follows."""
ROUTES: Final = "route/"
INTAKE: Final = f"{ROUTES}in"
"""Nor so: what other nodes have handed over waits there for its place."""
SIGNED: Final = "signed"
"""The application of a queue of requests that leave signed: for a process that has this queue among its paths."""
HOP: Final = "hop/"
"""Nor so: messages for queues of other nodes, a transmission queue for each next node; its address follows."""
OWN: Final = (OUTGOING, CONSUMES, SENT, FETCHED, SOURCE, ROUTES, HOP)
"""Beginnings of names that are no path's and no program's."""


def sent_queue(queue: str) -> str:
    """The queue of what is sent about sequences of ``queue``."""
    return SENT + queue.removeprefix("/")


def source_queue(address: str) -> str:
    """The queue of the requests to ``address``."""
    return f"{SOURCE}{queue_name(address)}"


def hop_queue(address: str, run: str | None = None) -> str:
    """The transmission queue of the next node at ``address``; of express messages, which a run of the store has, that
    of this ``run``."""
    name = f"{HOP}{queue_name(address)}"
    return name if run is None else f"{name}#{run}"


def fetched_queue(queue: str) -> str:
    """The queue of what is fetched about sequences of ``queue``: nothing but a fetch takes it from there."""
    return FETCHED + queue.removeprefix("/")


class Serving(NamedTuple):
    """The queues that a process serves: those of these ``paths``, or of the one name that a service has given its
    queue; without them all but the outgoing ones. ``sends``: it also sends the
    messages that leave in requests of this side's own."""

    application: str | None = None
    paths: tuple[str, ...] | None = None
    sends: bool = False

    @classmethod
    def load(cls, application: str | None, paths: str | None) -> Serving:
        return cls(application, None if paths is None else tuple(json.loads(paths)))

    @property
    def stored_paths(self) -> str | None:
        return json.dumps(self.paths) if self.paths else None

    def covers(self, queue: str) -> bool:
        return not self.paths or any(_is_below(queue, queue_name(path)) for path in self.paths)

    @property
    def is_source(self) -> bool:
        """It sends requests, or messages to other nodes, and serves nothing else."""
        return self.paths is not None and (SOURCE in self.paths or HOP in self.paths)

    @property
    def is_intake(self) -> bool:
        """It takes what other nodes hand over, and serves nothing else."""
        return self.paths == (INTAKE,)

    @property
    def is_of_node(self) -> bool:
        """It sends to other nodes, or takes what they hand over: how long messages are kept others say."""
        return self.is_intake or HOP in (self.paths or ())

    @property
    def is_run(self) -> bool:
        """It runs a plan, or consumes, and serves nothing else."""
        return self.paths is not None and any(path.startswith((OUTGOING, CONSUMES)) for path in self.paths)

    def overlaps(self, other: Serving) -> bool:
        """Whether there is a path that both cover."""
        if any(one.is_run or one.is_source or one.is_intake for one in (self, other)):
            return False
        if not (self.paths and other.paths):
            return True
        return any(other.covers(queue_name(path)) for path in self.paths) or any(map(self.covers, other.paths))

    def may_run(self, queue: str, application: str | None) -> bool:
        """Whether what waits in the queue of this name is for this process."""
        if queue.startswith(FETCHED):
            return False
        if any(queue.removeprefix(SENT).startswith(own) != (own in (self.paths or ())) for own in (SOURCE, HOP)):
            return False
        if queue.startswith(ROUTES) != self.is_intake:
            return False
        if application == SIGNED:
            return self.sends and queue.removeprefix(SENT) in (self.paths or ())
        if queue.startswith(SENT):
            name = queue.removeprefix(SENT)
            return self.sends and (self.covers(name) or self.covers(f"/{name}"))
        if queue.startswith(OUTGOING) != self.is_run:
            return False
        return (application is None or application == self.application) and self.covers(queue)


NAMELESS: Final = Serving()
SENDING: Final = Serving(paths=(SOURCE,), sends=True)
"""The serving of an RM Source."""
FORWARDING: Final = Serving(paths=(HOP,), sends=True)
"""The serving of what sends to other nodes."""
CONSUMING: Final = Serving(paths=(CONSUMES,))
"""The serving of a process that puts and consumes messages: it serves nothing."""


def _is_below(name: str, path: str) -> bool:
    return name == path or name.startswith(path.rstrip("/") + "/")


def _live(db: Database) -> list[tuple[int, Serving]]:
    """The process id of each process that lives, with its serving."""
    lives = instances_of(file_of(db)).lives
    rows = db.execute(_LIVE).fetchall()
    return [(pid, Serving.load(application, paths)) for name, pid, application, paths in rows if lives(name)]


def served(db: Database) -> list[Serving]:
    """The servings of the processes that live."""
    return [serving for _pid, serving in _live(db)]


def admit(db: Database, serving: Serving) -> None:
    """Raises ``OtherApplication`` where a process lives that serves another application on one of these paths."""
    for pid, other in _live(db):
        if other.application != serving.application and other.overlaps(serving):
            raise OtherApplication(
                f"{file_of(db)}: process {pid} serves {_named(other.application)} on the same paths, this one would "
                f"serve {_named(serving.application)}; each would be given the other's messages."
            )


def hand_over(db: Database, old: str | None, new: str | None) -> int:
    """The queues of the application ``old`` are those of ``new``; answers how many that are."""
    return db.execute(_HAND_OVER, (new, old)).rowcount


def take_queues(db: Database, serving: Serving) -> list[tuple[str, str]]:
    """Make the queues on its paths its own where they have no application, or nothing of another's waits there.
    Answers the others, each with its application."""
    rows = db.execute(_OF_OTHERS, (serving.application,)).fetchall()
    others = [row for row in rows if serving.covers(row[1])]
    waiting = {key for (key,) in db.execute(_WITH_BACKLOG)} if any(row[2] is not None for row in others) else set()
    left = [(name, application) for key, name, application in others if application is not None and key in waiting]
    for key, name, _application in others:
        if name not in dict(left):
            db.execute(_TAKE, (serving.application, key))
    return left


def foreign(db: Database, serving: Serving, *, sends: bool = True) -> list[int]:
    """The keys of the queues that this process may not run, or not now, where it ``sends`` nothing more."""
    serving = serving if sends else serving._replace(sends=False)
    if serving.paths:
        rows: Iterable[tuple[int, str, str | None]] = db.execute(_ALL)
    else:
        rows = db.execute(_PERHAPS_FOREIGN, (serving.application,))
    return [key for key, name, application in rows if not serving.may_run(name, application)]


def _named(application: str | None) -> str:
    return "an application without a name" if application is None else f"the application {application}"
