"""``wsrm-mq audit``: which operator did what, when and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from wsrm_mq.cli.asking import Asking, query_argument
from wsrm_mq.cli.output import Column, as_json, known, say, table, when, write
from wsrm_mq.cli.place import POSITION, Place, in_store, one_look
from wsrm_mq.views.words import first_line

if TYPE_CHECKING:
    from wsrm_mq.views.rows import LedgerView

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
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
@query_argument
def list_(place: Place, query: str, actor: str | None, since: str | None, before: int | None, limit: int) -> None:
    """List the acts of operators, the newest last.

    And what was published and no queue has taken: unrouted.

    \b
    Example: wsrm-mq audit list seq:242f14a4
             wsrm-mq audit list --actor ada --since 1d
             wsrm-mq audit list -event:unrouted
    """
    from wsrm_mq.views.naming import shortened
    from wsrm_mq.views.reading import acts

    asked = place.query(query).having(actor=actor, since=since)
    with one_look(place) as db:
        found = acts(db, asked, before=before, limit=limit)
        shorter = shortened(db, (one.sequence for one in found))
    is_full = len(found) == limit
    if place.is_json:
        as_json(acts=[one._asdict() for one in found], next=found[0].key if is_full else None)
        return
    table(
        (
            *(when("at"), Column("actor"), Column("event", 16), known("sequence", shorter), "number"),
            *(Column("position", None, rank=1), Column("queue", rank=2), Column("reason", 16)),
        ),
        [
            (
                *(one.at, one.actor, one.event, one.sequence, one.number, one.position, one.queue),
                one.reason and first_line(one.reason, REASON),
            )
            for one in found
        ],
    )
    if is_full:
        say(f"There may be more: --before {found[0].key}")


EXCERPT = 100
"""The longest reason, which may be a traceback, that fits a line below something else."""


def show_ledger(events: Sequence[LedgerView]) -> None:
    """Show the events that there are, a line an event."""
    if not events:
        return
    write("")
    table(
        (
            *(when("at"), Column("event", 16), "number", Column("attempt", rank=1), Column("reason", 20)),
            *(Column("actor", rank=0), Column("instance", rank=2)),
        ),
        [
            (e.at, e.event, e.number, e.attempt, e.reason and first_line(e.reason, EXCERPT), e.actor, e.instance)
            for e in events
        ],
    )
