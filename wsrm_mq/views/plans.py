"""The plans of a store, and how far they have come."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import select

from wsrm_mq.errors import NotFound
from wsrm_mq.store import plans as sql
from wsrm_mq.store import published as views
from wsrm_mq.store.compiling import compiled
from wsrm_mq.store.driver import file_of, instances_of
from wsrm_mq.store.port import Database


class PlanView(NamedTuple):
    """A plan; times in ms since the epoch."""

    id: str
    digest: str
    file: str
    """Where it was written."""
    made_at: int
    actor: str | None
    reason: str | None
    query: str
    target: str
    as_new: bool
    messages: int
    state: str
    """``planned``, ``running``, ``stopped`` (it can be run again), ``done`` or ``cancelled``."""
    runner: str | None
    """Name of the instance that runs it."""
    pid: int | None
    line: int
    """How many of its lines were read."""
    skipped: int
    """How many of these lines were left alone: something became of their messages since the plan was made."""
    missing: int
    """How many of these lines have messages without a body by now."""
    begun_at: int | None
    ended_at: int | None


_c: Final = views.plans.c
_PLANS: Final = compiled(
    select(*(_c["plan" if field == "id" else field] for field in PlanView._fields)).order_by(_c.made_at.desc(), _c.plan)
)


def plans(db: Database) -> list[PlanView]:
    """Newest first."""
    return [_viewed(db, row) for row in db.execute(_PLANS).fetchall()]


def find_plan(db: Database, text: str) -> PlanView:
    """The plan whose id ``text`` is, or is the beginning of, or ``NotFound``."""
    found = [one for one in plans(db) if one.id.startswith(text)]
    exact = [one for one in found if one.id == text]
    if len(exact or found) != 1:
        several = f"; {', '.join(one.id for one in found[:3])} begin so" if found else ""
        raise NotFound(f"There is no plan {text}{several}.")
    return (exact or found)[0]


def outcomes(db: Database, plan: str) -> dict[str, int]:
    """The number of messages that a plan has entered by what became of them: ``waiting``, ``known`` (the service had
    done it before) or an outcome."""
    counted: dict[str, int] = {}
    for outcome, reason, messages in db.execute(sql.OUTCOMES, {"plan": plan}):
        word = reason if outcome == "delivered" and reason is not None else outcome or "waiting"
        counted[word] = counted.get(word, 0) + messages
    return counted


def _viewed(db: Database, row: tuple[object, ...]) -> PlanView:
    view = PlanView(*row)  # type: ignore[arg-type]
    lives = view.runner is not None and instances_of(file_of(db)).lives(view.runner) is not False
    state = "stopped" if view.state == "running" and not lives else view.state
    return view._replace(as_new=bool(view.as_new), state=state, runner=view.runner if lives else None)
