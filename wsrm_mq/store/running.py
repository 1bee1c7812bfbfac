"""The tables of ``sequence.running`` as SQL: the state of a lane's delivery, and of its entries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sqlalchemy import Case, ColumnElement, and_, case, func, not_, or_

from wsrm_mq.sequence.running import ANY, DELIVERY, ENTRY, DeliveryState, Row
from wsrm_mq.store.tables import entry, lane

HAS_UNSETTLED: Final = and_(
    lane.c.cursor < lane.c.limit, or_(lane.c.discard_from.is_(None), lane.c.cursor < lane.c.discard_from)
)
_ROWS: Final = dict(DELIVERY)
_leased_below: Final = func.coalesce(lane.c.leased_below, 0)


def is_paused(
    retry_from: ColumnElement[int], retry_at: ColumnElement[int], now: ColumnElement[int]
) -> ColumnElement[bool]:
    """``sequence.running.is_paused``; never NULL."""
    return and_(retry_at.is_not(None), retry_at > now, or_(retry_from.is_(None), retry_from <= now))


def _delivery_facts(now: ColumnElement[int]) -> tuple[ColumnElement[bool], ...]:
    return (
        lane.c.on_hold_since.is_not(None),
        lane.c.blocked.is_not(None),
        lane.c.owner.is_not(None),
        HAS_UNSETTLED,
        is_paused(lane.c.retry_from, lane.c.retry_at, now),
        lane.c.discarding == 1,
        lane.c.held > 0,
    )


def _entry_facts(now: ColumnElement[int]) -> tuple[ColumnElement[bool], ...]:
    return (
        and_(lane.c.discard_from.is_not(None), entry.c.number >= lane.c.discard_from),
        and_(lane.c.limit.is_not(None), entry.c.number >= lane.c.limit),  # of a loose entry nothing is NULL either
        lane.c.blocked.is_not(None),
        lane.c.on_hold_since.is_not(None),
        or_(
            is_paused(entry.c.retry_from, entry.c.retry_at, now),
            is_paused(lane.c.retry_from, lane.c.retry_at, now),
            and_(entry.c.hold.is_not(None), entry.c.retry_at.is_(None)),
        ),
        or_(
            entry.c.owner.is_not(None),
            and_(lane.c.owner.is_not(None), or_(entry.c.number == lane.c.cursor, entry.c.number < _leased_below)),
        ),
    )


def _fits(row: Iterable[bool | None], facts: Iterable[ColumnElement[bool]]) -> ColumnElement[bool]:
    return and_(*(fact if cell else not_(fact) for cell, fact in zip(row, facts, strict=True) if cell is not ANY))


def delivery_is(*states: DeliveryState, now: ColumnElement[int]) -> ColumnElement[bool]:
    """The delivery of ``lane`` is in one of ``states``, which differ in one fact."""
    cells = zip(*(_ROWS[state] for state in states), strict=True)
    shared: Row = tuple(first if all(one is first for one in rest) else ANY for first, *rest in cells)
    return _fits(shared, _delivery_facts(now))


def delivery_state(now: ColumnElement[int]) -> Case[str]:
    """The word of the state of ``lane``'s delivery."""
    facts = _delivery_facts(now)
    return case(*((_fits(row, facts), state.value) for state, row in DELIVERY))


def entry_state(now: ColumnElement[int]) -> Case[str]:
    """The word of the state of an ``entry`` without an outcome, joined to its ``lane`` if it has one."""
    facts = _entry_facts(now)
    rows = [(_fits(row, facts), state) for (state, _reason), row in ENTRY]
    return case(*rows[:-1], else_=rows[-1][1])


def entry_reason(now: ColumnElement[int]) -> Case[str | None]:
    """The reason of the state of ``entry_state``; NULL if the state says it."""
    facts = _entry_facts(now)
    return case(*((_fits(row, facts), _reason(word)) for (_state, word), row in ENTRY if word is not None))


def _reason(word: str) -> str | ColumnElement[str]:
    return func.coalesce(entry.c.hold, word) if word == "backoff" else word
