"""Failures in groups: attempts that failed alike, messages that the service answered with a fault, and what was refused
before it was stored.

Only reads the published views. Times are ms since the epoch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Select, Text, case, cast, distinct, func, select

from wsrm_mq.acts import Command, Step, others
from wsrm_mq.acts import messages as on_messages
from wsrm_mq.errors import NotFound
from wsrm_mq.store import published as views
from wsrm_mq.store.counting import Refusal
from wsrm_mq.store.port import Database
from wsrm_mq.store.sql import bound
from wsrm_mq.store.words import ANSWERED_WITH_FAULT
from wsrm_mq.views.conditions import failed_like
from wsrm_mq.views.query import Query, Term, asked_for, parse
from wsrm_mq.views.reading import what_fits
from wsrm_mq.views.rows import REFUSED, key_of, option_named, refusals
from wsrm_mq.views.words import ELLIPSIS, the_one

LOOKED_AT: Final = 20_000
"""The most attempts, the newest that fit, that are grouped."""
MOST: Final = 1_000
"""At most so many groups of attempts are told apart: the ones with the newest attempts."""
NAMED: Final = 20
"""Queues and partners of a group that are named."""
NEWEST: Final = 10
DIGITS: Final = 18
"""A number of no more is one for SQLite."""


class Failure(NamedTuple):
    """Things that failed alike: event, fault, exception, place and operation are the same for all of them."""

    key: str
    """The key of its newest attempt in the view ``attempts``, any other of its attempts means the same; of what was
    refused the reason, and the partner behind ``@``."""
    event: str
    """``failed``, ``answered_with_fault``, ``holder_died``, ``broke_off``; or ``REFUSED``."""
    fault: str | None
    """The fault's code or a word; of what was refused its reason."""
    exception: str | None
    place: str | None
    operation: str | None
    """The messages' action."""
    times: int
    first_at: int | None
    """``None``: only the last time is known."""
    last_at: int
    queues: tuple[str, ...] = ()
    partners: tuple[str, ...] = ()
    messages: int = 0
    live: int = 0
    """The number of its messages without an outcome; ``dead``: dead letters, ``taken``: settled as delivered."""
    dead: int = 0
    taken: int = 0
    position: int | None = None
    """The position of the newest message."""
    said: str | None = None
    """The answer that the last refused one was given."""
    option: str | None = None
    """The option of the configuration that would allow it."""


class Failures(NamedTuple):
    """Attempts that did not go well, grouped by what went wrong."""

    groups: list[Failure]
    """The group of the newest attempt first."""
    is_whole: bool
    """Otherwise only the newest ``LOOKED_AT`` attempts were grouped."""


class Attempt(NamedTuple):
    """One that did not go well."""

    at: int
    event: str
    attempt: int | None
    fault: str | None
    exception: str | None
    place: str | None
    reason: str | None
    """The whole text: what was answered or raised, with the end of the traceback."""
    instance: str | None
    sequence: str | None
    number: int | None
    position: int | None


_a: Final = views.attempts.c
_m: Final = views.messages.c
_s: Final = views.sequences.c


def failures(db: Database, query: Query) -> Failures:
    """Read the failures that fit a query; to be called in a ``snapshot``."""
    text, values = bound(_grouped(_NEWEST.where(*what_fits(db, query, views.attempts))))
    rows = db.execute(text, values).fetchall()
    groups = [_group(row) for row in rows]
    groups += _refused(db, query)
    groups.sort(key=lambda one: one.last_at, reverse=True)
    is_whole = len(rows) < MOST and sum(one.times for one in groups if one.event != REFUSED) < LOOKED_AT
    return Failures(groups, is_whole)


def find_failures(db: Database, text: str) -> list[Failure]:
    """The groups that ``text`` means, the newest first: that with this key, or those that fit it as a query. Raises
    ``NotFound`` where there is none."""
    if ":" not in text:
        return [_named(db, text)]
    found = failures(db, parse(text)).groups
    if not found:
        raise NotFound(f"No failure fits {text}; `wsrm-mq failure list` shows those there are.")
    return found


def _named(db: Database, text: str) -> Failure:
    """The failure with a key; of what was refused, the only one whose key begins so."""
    key = text.removesuffix(ELLIPSIS)
    if key.isascii() and key.isdecimal() and len(key) <= DIGITS:
        statement, values = bound(_grouped(_NEWEST.where(failed_like(int(key)))))
        there = [_group(row) for row in db.execute(statement, values)]
    else:
        there = [one for one in _refused(db, parse("")) if key and one.key.startswith(key)]
    found = {one.key: one for one in there}
    nothing = f"There is no failure {text}; `wsrm-mq failure list` shows those there are."
    return found.get(key) or found[the_one([*found], text, "failures", nothing)]


def attempts(
    db: Database, *, of: Failure | None = None, query: str = "", position: int | None = None, limit: int = NEWEST
) -> list[Attempt]:
    """Attempts of a group that fit ``query``, or attempts at the message at a position, the newest first."""
    listed = select(*(_a[name] for name in Attempt._fields))
    if position is not None:
        listed = listed.where(_a.position == position)
    if of is not None:
        listed = listed.where(failed_like(int(of.key)), *what_fits(db, parse(query), views.attempts))
    text, values = bound(listed.order_by(_a.at.desc(), _a.key.desc()).limit(limit))
    return [Attempt._make(row) for row in db.execute(text, values)]


# groups


_SAME: Final = ("event", "fault", "exception", "place")
_NEWEST: Final = (
    select(*(_a[name] for name in (*_SAME, "at", "key", "queue", "sequence", "position")))
    .order_by(_a.at.desc())
    .limit(LOOKED_AT)
)


def _grouped(newest: Select[Any]) -> Select[Any]:
    """The columns of ``Failure``, in its order."""
    found = newest.subquery("each")
    each = found.c
    same = (*(each[name] for name in _SAME), _m.action)

    def messages(*where: ColumnElement[bool]) -> ColumnElement[int]:
        return func.count(distinct(case((where[0], each.position)) if where else each.position))

    return (
        select(
            cast(func.max(each.key), Text),
            *same,
            *(func.count(), func.min(each.at), func.max(each.at).label("last_at")),
            *(func.json_group_array(distinct(name)) for name in (each.queue, func.coalesce(_s.partner, _m.partner))),
            *(messages(), messages(_m.outcome.is_(None)), messages(_m.outcome == "dead")),
            *(messages(_m.outcome == "delivered"), func.max(each.position)),
        )
        .select_from(found)
        .outerjoin(views.messages, _m.position == each.position)
        .outerjoin(views.sequences, _s.sequence == each.sequence)
        .group_by(*same)
        .order_by(func.max(each.at).desc())
        .limit(MOST)
    )


def _group(row: tuple[Any, ...]) -> Failure:
    found = Failure(*row)
    return found._replace(queues=_names(found.queues), partners=_names(found.partners))


def _names(listed: Any) -> tuple[str, ...]:
    return tuple(sorted(name for name in json.loads(listed) if name))[:NAMED]


# what was refused

_WITHIN: Final = ("age", "since", "until")
_OF_REFUSALS: Final[dict[str, Callable[[Refusal, Any], bool]]] = {
    "partner": lambda one, name: one.partner == name,
    "fault": lambda one, word: one.reason == word,
    "reason": lambda one, word: one.reason == word,
    "event": lambda one, word: word == REFUSED,
    **dict.fromkeys(
        _WITHIN,
        lambda one, b: (b.least is None or one.last_at >= b.least) and (b.most is None or one.last_at <= b.most),
    ),
}
"""The words of a query that can be asked of a count; what another one is asked of, is stored."""


def _refused(db: Database, query: Query) -> Iterator[Failure]:
    if any(term.key not in _OF_REFUSALS for term in query.terms):
        return
    for one in refusals(db):
        if all(_fits(one, term) for term in query.terms):
            partners = (one.partner,) if one.partner else ()
            found = Failure(key_of(one), REFUSED, one.reason, None, None, None, one.times, None, one.last_at)
            yield found._replace(partners=partners, said=one.said or None, option=option_named(one.said))


def _fits(one: Refusal, term: Term) -> bool:
    return any(_OF_REFUSALS[term.key](one, value) for value in term.alternatives) is not term.is_negated


# Proposals to an operator about a failure.


class _Choice(NamedTuple):
    """A proposal about any failure that it ``applies`` to."""

    command: Command
    effect: str
    applies: Callable[[Failure], bool]
    words: tuple[str, ...] | None = ()
    """More words of the query for its messages; ``None``: it is not about them."""
    arguments: Mapping[str, Any] = {}


def _is_taken(one: Failure) -> bool:
    return one.event == ANSWERED_WITH_FAULT and one.taken > 0


_ALARMING: Final = ("outcome:delivered", "confirmed:no")
_CHOICES: Final = (
    _Choice(others.MESSAGES, "its messages", lambda one: one.messages > 0),
    _Choice(others.BODY, "the newest of them", lambda one: one.messages > 0),
    _Choice(
        on_messages.RETRY,
        "when the cause is repaired: try again what waits",
        lambda one: one.live > 0,
        ("outcome:live",),
    ),
    _Choice(
        on_messages.REDRIVE,
        "when the cause is repaired: deliver the dead letters again",
        lambda one: one.dead > 0,
    ),
    _Choice(
        others.MAKE_PLAN,
        "when the cause is repaired: deliver again what was answered with a fault",
        _is_taken,
        _ALARMING,
        {"o": "plan.json"},
    ),
    _Choice(on_messages.CONFIRM, "you know of it: it stays as it is, and alarms no more", _is_taken, _ALARMING),
    _Choice(
        others.CONFIGURATION,
        "what {option} is now: another value allows it",
        lambda one: one.option is not None,
        None,
    ),
    _Choice(others.STATUS, "what is refused now, and what to do", lambda one: one.event == REFUSED, None),
)


def failure_steps(failure: Failure, query: str = "") -> tuple[Step, ...]:
    """Propose what may be done about a failure: with its messages, of those that ``query`` asks for."""
    steps = []
    for one in filter(lambda one: one.applies(failure), _CHOICES):
        which = () if one.words is None else asked_for(f"failure:{failure.key} {query}", *one.words)
        which = (str(failure.position),) if one.command is others.BODY else which
        steps.append(one.command.step(one.effect.format(option=failure.option), *which, **one.arguments))
    return tuple(steps)
