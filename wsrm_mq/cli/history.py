"""``wsrm-mq audit``, ``connection`` and ``failure``: what operators did, what came on which connection, and what went
wrong, in groups of what failed alike."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

import click

from wsrm_mq.cli import completing
from wsrm_mq.cli.output import Column, as_json, end_of, facts, key, known, say, table, when, word, write
from wsrm_mq.cli.place import (
    POSITION,
    Asking,
    Place,
    in_store,
    limit_option,
    paged,
    query_argument,
    shorter_names,
    tell_unseen,
)
from wsrm_mq.views import words
from wsrm_mq.views.words import first_line

if TYPE_CHECKING:
    from wsrm_mq.views import failures, rows

REASON = 200
"""The most characters of a reason on a line."""


@click.group()
def audit() -> None:
    """See what operators did to the store."""


@audit.command("list", cls=Asking)
@in_store
@click.option("--actor", metavar="NAME", help="Only what this operator did.")
@click.option("--since", metavar="TIME", help="Only what was done since then: 2026-11-01T10:00 (UTC), or 2h ago.")
@click.option("--before", metavar="KEY", type=POSITION, help="Only what was done before the act with this key.")
@limit_option
@query_argument
def list_acts(place: Place, query: str, actor: str | None, since: str | None, before: int | None, limit: int) -> None:
    """List the acts of operators, the newest last.

    And what was published and no queue has taken: unrouted.

    \b
    Example: wsrm-mq audit list seq:242f14a4
             wsrm-mq audit list --actor ada --since 1d
             wsrm-mq audit list -event:unrouted
    """
    from wsrm_mq.views import reading

    asked = place.query(query).having(actor=actor, since=since)
    with place.one_look() as db:
        found = reading.acts(db, asked, before=before, limit=limit)
        shorter = shorter_names(db, (one.sequence for one in found))
    columns = (
        *(when("at"), "actor", Column("event", 16), known("sequence", shorter), "number"),
        *(Column("position", None, rank=1), Column("queue", rank=2), _reason(16, REASON)),
    )
    place.listing("acts", found, columns, limit=limit, option="--before", of="key")


EXCERPT = 100
"""The longest reason, which may be a traceback, that fits a line below something else."""


def _reason(least: int, most: int) -> Column:
    return Column("reason", least, whole=lambda reason: first_line(reason, most))


def show_ledger(events: Sequence[rows.LedgerView]) -> None:
    """Show the events that there are, a line an event."""
    if not events:
        return
    write("")
    columns = (when("at"), Column("event", 16), "number", Column("attempt", rank=1), _reason(20, EXCERPT))
    table((*columns, "actor", Column("instance", rank=2)), events)


@click.group()
def connection() -> None:
    """See what came on which connection. NAME is that of a connection, or a beginning that no other has."""


@connection.command("list")
@in_store
@limit_option
def list_connections(place: Place, limit: int) -> None:
    """List connections, those that sent something last first.

    \b
    Example: wsrm-mq connection list --limit 10
    """
    from wsrm_mq.views import rows

    with place.one_look() as db:
        found = rows.connections(db, limit=limit)
    columns = (Column("name", 20), Column("peer", rank=1), "principal", "messages", "unsettled")
    seen = (when("first seen", "first_seen", rank=2), when("last seen", "last_seen"))
    place.listing("connections", found, (*columns, *seen))
    if len(found) == limit and not place.is_json:
        say(f"There may be more: --limit {limit * 2}")


@connection.command("show")
@in_store
@click.argument("name", shell_complete=completing.values("connection"))
@paged
def show_connection(place: Place, name: str, after: int, limit: int) -> None:
    """Show a connection and its messages in the order of receipt.

    \b
    Example: wsrm-mq connection show 192.0.2.7:50312
    """
    from wsrm_mq.views import query, reading, rows

    with place.one_look() as db:
        found = rows.connection(db, rows.find_connection(db, name))
        messages = list(reading.messages(db, query.parse("", connection=found.name), after=after, limit=limit))
        shorter = shorter_names(db, (one.sequence for one in messages))
    if not place.is_json:
        facts(found._asdict())
        write("")
    columns = (
        *(key("position"), Column("queue", rank=1), known("sequence", shorter), "number", end_of("action")),
        *(word("state"), "reason", when("received", "received_at"), Column("bytes", of="body_size", rank=2)),
    )
    place.listing("messages", messages, columns, limit=limit, connection=found)


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
def list_failures(place: Place, query: str, limit: int) -> None:
    """List what failed, in groups, the newest first.

    A group has one fault, exception, place and operation.

    Messages that the service took and answered with a fault are in it, and what was refused before it was stored, as
    far as QUERY can be asked of a count.

    \b
    Example: wsrm-mq failure list since:2h exception:OperationalError
    """
    from wsrm_mq.views import failures

    with place.one_look() as db:
        asked = place.query(query)
        found = failures.failures(db, asked)
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
    place.listing("failures", groups, columns, all_looked_at=found.is_whole)
    if place.is_json:
        return
    if len(found.groups) > limit:
        say(f"There are {len(found.groups)}: --limit {len(found.groups)}")
    if not found.is_whole:
        say(f"Only the newest {failures.LOOKED_AT} attempts that fit were looked at.")


@failure.command("show", cls=Asking)
@in_store
@click.argument("words", metavar="KEY|QUERY...", nargs=-1, required=True)
def show_failure(place: Place, words: tuple[str, ...]) -> None:
    """Show a failure, and what can be done about it.

    Its last attempts, and what became of the messages.

    KEY is that of `failure list`. Of what fits a QUERY the newest failure is shown.

    \b
    Examples: wsrm-mq failure show 1723
              wsrm-mq failure show queue:/orders since:2h
    """
    from wsrm_mq.views import failures

    text = " ".join(words)
    query = text if ":" in text else ""
    with place.one_look() as db:
        found, *others = failures.find_failures(db, text)
        newest = failures.attempts(db, of=found, query=query) if found.messages else []
        shorter = shorter_names(db, (one.sequence for one in newest))
    steps = failures.failure_steps(found, query)
    if place.is_json:
        as_json(failure=found, attempts=newest, next_steps=place.offered(steps))
        return
    lists = {"queues": [*found.queues], "partners": [*found.partners]}
    facts({name: value for name, value in {**found._asdict(), **lists}.items() if value is not None})
    if newest:
        write("")
        columns = (key("position"), known("sequence", shorter), "number", when("at"), word("event"))
        table((*columns, "attempt", "instance"), newest)
        write("")
        attempt_lines(newest[0])
    write("")
    place.show_steps(steps)
    if found.messages and found.times >= failures.LOOKED_AT:
        say(f"Only its newest {failures.LOOKED_AT} attempts were looked at.")
    if others:
        say(f"{len(others)} more fit: {', '.join(one.key for one in others[:SHOWN])}{', …' * (len(others) > SHOWN)}")


def attempt_lines(attempt: failures.Attempt) -> None:
    """The whole text of an attempt."""
    write((attempt.reason or "").rstrip("\n"), keep="\n")


def shown_place(place: str) -> str:
    """``orders.py:41`` of ``/srv/shop/orders.py:41 Orders.put``."""
    return PurePath(place.rpartition(" ")[0] or place).name


def _short_keys(groups: Sequence[failures.Failure]) -> dict[str, str]:
    """For each key the shortest beginning of ``SHOWN`` characters or more that no other key has; else the whole key."""
    names = [one.key for one in groups]
    shorter = {}
    for name in names:
        others = [other for other in names if other != name]
        beginnings = (name[:length] for length in range(SHOWN, len(name) - 1))
        unique = next((one for one in beginnings if not any(other.startswith(one) for other in others)), None)
        shorter[name] = f"{unique}{words.ELLIPSIS}" if unique is not None else name
    return shorter


def _became(one: failures.Failure) -> str | None:
    """The state of its messages in words: ``dead``; ``2 wait, 1 taken``."""
    fates = {"wait": one.live, "dead": one.dead, "taken": one.taken}
    there = {word: count for word, count in fates.items() if count}
    return ", ".join(f"{count} {word}" if len(there) > 1 else word for word, count in there.items()) or None


def _refused(one: failures.Failure) -> str | None:
    from wsrm_mq.views import rows

    return "(refused)" if one.event == rows.REFUSED else None


def _last_part(name: str) -> str:
    """The last part of the name of an exception or an action: what people call it."""
    return re.split(r"[./:#]", name.rstrip("./:#"))[-1]
