"""Loose entries: entries in no lane. Each is run by itself, like a lane that has no other entry. Owner, fence and wait
are columns of the entry; facts about its request are in a row of ``loose``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from sqlalchemy import and_, case, func, literal, not_, null, select

from wsrm_mq.sequence.states import State
from wsrm_mq.sequence.terms import DeliveryAssurance
from wsrm_mq.store.applications import FOREIGN
from wsrm_mq.store.entries import IS_LIVE, LOOSE_NUMBER, TO_RUN
from wsrm_mq.store.records import Lane
from wsrm_mq.store.running import is_paused
from wsrm_mq.store.sql import absent, adding, compiled, given, p
from wsrm_mq.store.tables import entry, loose, message
from wsrm_mq.versions import ADDRESSING_OF_LABEL, SOAP_OF_LABEL, UNSEQUENCED

LOOSE_COLUMNS: Final = ("owner", "fence", "running_since", "retry_from", "retry_at")
"""Columns that change while a loose entry is run."""
_saved: Final[Callable[[Lane], tuple[Any, ...]]] = attrgetter(*LOOSE_COLUMNS)
_OF_ITS_OWN: Final[dict[str, str | None]] = {
    "identifier": "",
    **dict.fromkeys(("peer", "partner")),
    "soap": "1.2",
    "addressing": "1.0",
    "assurance": DeliveryAssurance.EXACTLY_ONCE.value,
}
"""And what one has that came with no request."""

ADD_LOOSE: Final = compiled(adding(loose))
LOOSE_ENTRY: Final = compiled(
    select(
        func.coalesce(entry.c.origin, entry.c.queue),
        *(entry.c.outcome, entry.c.priority, message.c.principal, message.c.received_at),
        *(entry.c[name] for name in LOOSE_COLUMNS),
        *(func.coalesce(loose.c[name], instead) for name, instead in _OF_ITS_OWN.items()),
    )
    .outerjoin(loose, loose.c.entry == entry.c.id)
    .join(message, message.c.id == entry.c.message)
    .where(entry.c.id == p("key"), entry.c.lane.is_(None))
)
_IS_DISPATCHED: Final = absent(entry, "priority, lane, outcome")
_IS_FREE: Final = and_(_IS_DISPATCHED, entry.c.owner.is_(None))
_RUNS: Final = and_(entry.c.owner.is_not(None), entry.c.leased_until.is_(None))
_OURS: Final = entry.c.queue.not_in(FOREIGN)
RUNNABLE_LOOSE: Final = compiled(
    select(entry.c.id)
    .where(_IS_FREE, not_(is_paused(entry.c.retry_from, entry.c.retry_at, p("now"))), _OURS)
    .order_by(entry.c.retry_at, entry.c.id)
    .limit(p("count"))
)
"""Loose entries that may be taken now: first those that wait for no retry, the oldest first."""
NEXT_LOOSE_RETRY: Final = compiled(
    select(func.min(entry.c.retry_at)).where(_IS_FREE, entry.c.retry_at.is_not(None), _OURS)
)
LOOSE_CLAIMS_OF: Final = compiled(select(entry.c.id, entry.c.fence).where(_RUNS, given(entry, "owner")))
OWNED_LOOSE: Final = compiled(select(entry.c.id).where(_RUNS))
UNSETTLED_LOOSE: Final = compiled(select(entry.c.id).where(_IS_DISPATCHED))
LOOSE_PARTNERS: Final = compiled(select(loose.c.partner).where(loose.c.partner.is_not(None)).distinct())
LOOSE_BOUNDS: Final = compiled(
    select(
        *(literal(LOOSE_NUMBER), literal(LOOSE_NUMBER + 1), null()),
        case((entry.c.fence > 1, LOOSE_NUMBER + 1), else_=0),  # it was taken before, and may have been called
        *(loose.c.identifier, loose.c.partner, literal(1), loose.c.assurance),
        *(literal(UNSEQUENCED.label), loose.c.soap, loose.c.addressing, literal("loose"), literal("")),
        *(null(), null(), null(), null(), null()),
    )
    .join(entry, entry.c.id == loose.c.entry)
    .where(loose.c.entry == p("key"))
)
"""``RUN_BOUNDS`` of a loose entry."""
RUN_LOOSE: Final = compiled(
    TO_RUN.with_only_columns(
        *(literal(LOOSE_NUMBER) if column is entry.c.number else column for column in TO_RUN.selected_columns),
        maintain_column_froms=True,
    ).where(entry.c.id == p("key"), IS_LIVE)
)


@dataclass(eq=False, slots=True, kw_only=True)
class LooseEntry(Lane):
    """An entry in no lane, as the lane that it would be alone in. No row of ``lane`` has it."""

    position: int = 0
    priority: int | None = None
    """The priority of an entry that is consumed; ``None``: an application is called with it."""

    @classmethod
    def load(cls, position: int, row: tuple[Any, ...]) -> LooseEntry:
        """Make an entry from what ``LOOSE_ENTRY`` answers."""
        queue, outcome, priority, principal, received_at, *rest = row
        run = dict(zip(LOOSE_COLUMNS, rest, strict=False))
        own = dict(zip(_OF_ITS_OWN, rest[len(LOOSE_COLUMNS) :], strict=True))
        one = cls(
            position=position,
            priority=priority,
            is_consumed=priority is not None,
            queue=queue,
            kind="loose",
            principal=principal,
            created_at=received_at,
            active_at=received_at,
            ended=State.TERMINATED.value,
            ended_at=received_at,
            cursor=LOOSE_NUMBER if outcome is None else LOOSE_NUMBER + 1,
            limit=LOOSE_NUMBER + 1,
            **run,
            **{
                **own,
                "soap": SOAP_OF_LABEL[own["soap"]],
                "addressing": ADDRESSING_OF_LABEL[own["addressing"]],
                "assurance": DeliveryAssurance(own["assurance"]),
            },
        )
        one.mark_written()
        return one

    @property
    def own_row(self) -> dict[str, object]:
        """Its row of ``loose``."""
        return {
            **{name: getattr(self, name) for name in ("identifier", "peer", "partner")},
            "entry": self.position,
            "soap": self.soap.label,
            "addressing": self.addressing.label,
            "assurance": self.assurance.value,
        }

    @property
    def saved(self) -> tuple[Any, ...]:
        """The values of ``LOOSE_COLUMNS``."""
        return _saved(self)
