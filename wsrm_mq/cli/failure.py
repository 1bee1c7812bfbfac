"""``wsrm-mq failure``: what went wrong, in groups of what failed alike."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

import click

from wsrm_mq.cli.asking import Asking, query_argument
from wsrm_mq.cli.explain import show_steps
from wsrm_mq.cli.output import Column, as_json, facts, key, known, listing, rows_of, say, when, word, write
from wsrm_mq.cli.place import Place, in_store, one_look, shorter_names, tell_unseen

if TYPE_CHECKING:
    from wsrm_mq.views.failures import Attempt, Failure

SHOWN: Final = 6
"""Keys that are named; characters of a key that are shown, at least."""
PLACE: Final = 14
"""Characters of a place that are shown, at least."""


@click.group()
def failure() -> None:
    """See what went wrong: by fault, exception, place and operation."""


@failure.command("list", cls=Asking)
@in_store
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, show_default=True, help="At most so many groups.")
@query_argument
def list_(place: Place, query: str, limit: int) -> None:
    """List what failed, in groups, the newest first.

    A group has one fault, exception, place and operation.

    Messages that the service took and answered with a fault are in it, and what was refused before it was stored, as
    far as QUERY can be asked of a count.

    \b
    Example: wsrm-mq failure list since:2h exception:OperationalError
    """
    from wsrm_mq.views.failures import LOOKED_AT, failures

    with one_look(place) as db:
        asked = place.query(query)
        found = failures(db, asked)
        if not found.groups:
            tell_unseen(db, asked)
    groups = found.groups[:limit]
    columns = (
        *(known("key", _short_keys(groups)), Column("times", None, rank=1), when("last", "last_at")),
        *(Column("now", 5, of=_became), Column("fault", 10, of=lambda one: one.fault or one.event)),
        Column("exception", 9, short=_last_part),
        Column("operation", 9, short=_last_part, of=lambda one: one.operation or _refused(one)),
        *(Column("place", PLACE, keeps_end=True, short=shown_place), Column("messages", rank=1)),
        *(Column("partners", rank=2, whole=" ".join), when("first", "first_at", rank=3), word("event", rank=3)),
    )
    listing(place.is_json, "failures", groups, columns, all_looked_at=found.is_whole)
    if place.is_json:
        return
    if len(found.groups) > limit:
        say(f"There are {len(found.groups)}: --limit {len(found.groups)}")
    if not found.is_whole:
        say(f"Only the newest {LOOKED_AT} attempts that fit were looked at.")


@failure.command(cls=Asking)
@in_store
@click.argument("words", metavar="KEY|QUERY...", nargs=-1, required=True)
def show(place: Place, words: tuple[str, ...]) -> None:
    """Show a failure, and what can be done about it.

    Its last attempts, and what became of the messages.

    KEY is that of `failure list`. Of what fits a QUERY the newest failure is shown.

    \b
    Examples: wsrm-mq failure show 1723
              wsrm-mq failure show queue:/orders since:2h
    """
    from wsrm_mq.views.failures import LOOKED_AT, attempts, failure_steps, find_failures

    text = " ".join(words)
    query = text if ":" in text else ""
    with one_look(place) as db:
        found, *others = find_failures(db, text)
        newest = attempts(db, of=found, query=query) if found.messages else []
        shorter = shorter_names(db, (one.sequence for one in newest))
    steps = failure_steps(found, query)
    if place.is_json:
        as_json(
            failure=found._asdict(),
            attempts=[one._asdict() for one in newest],
            next_steps=[step._asdict() for step in place.offered(steps)],
        )
        return
    lists = {"queues": [*found.queues], "partners": [*found.partners]}
    facts({name: value for name, value in {**found._asdict(), **lists}.items() if value is not None})
    if newest:
        write("")
        columns = (key("position"), known("sequence", shorter), "number", when("at"), word("event"))
        rows_of((*columns, "attempt", "instance"), newest)
        write("")
        attempt_lines(newest[0])
    write("")
    show_steps(place, steps, {})
    if found.messages and found.times >= LOOKED_AT:
        say(f"Only its newest {LOOKED_AT} attempts were looked at.")
    if others:
        say(f"{len(others)} more fit: {', '.join(one.key for one in others[:SHOWN])}{', …' * (len(others) > SHOWN)}")


def attempt_lines(attempt: Attempt) -> None:
    """The whole text of an attempt."""
    for line in (attempt.reason or "").rstrip("\n").split("\n"):
        write(line)


def shown_place(place: str) -> str:
    """``orders.py:41`` of ``/srv/shop/orders.py:41 Orders.put``."""
    return PurePath(place.rpartition(" ")[0] or place).name


def _short_keys(groups: Sequence[Failure]) -> dict[str, str]:
    """For each key the shortest beginning of ``SHOWN`` characters or more that no other key has; else the whole key."""
    from wsrm_mq.views.words import ELLIPSIS

    names = [one.key for one in groups]
    shorter = {}
    for name in names:
        others = [other for other in names if other != name]
        beginnings = (name[:length] for length in range(SHOWN, len(name) - 1))
        unique = next((one for one in beginnings if not any(other.startswith(one) for other in others)), None)
        shorter[name] = f"{unique}{ELLIPSIS}" if unique is not None else name
    return shorter


def _became(one: Failure) -> str | None:
    """The state of its messages in words: ``dead``; ``2 wait, 1 taken``."""
    fates = {"wait": one.live, "dead": one.dead, "taken": one.taken}
    there = {word: count for word, count in fates.items() if count}
    return ", ".join(f"{count} {word}" if len(there) > 1 else word for word, count in there.items()) or None


def _refused(one: Failure) -> str | None:
    from wsrm_mq.views.rows import REFUSED

    return "(refused)" if one.event == REFUSED else None


def _last_part(name: str) -> str:
    """The last part of the name of an exception or an action: what people call it."""
    return re.split(r"[./:#]", name.rstrip("./:#"))[-1]
