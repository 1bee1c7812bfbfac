"""``wsrm-mq audit``: which operator did what, when and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from wsrm_mq.cli.asking import Asking, query_argument
from wsrm_mq.cli.output import Column, known, listing, rows_of, when, write
from wsrm_mq.cli.place import POSITION, Place, in_store, limit_option, one_look, shorter_names
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
@limit_option
@query_argument
def list_(place: Place, query: str, actor: str | None, since: str | None, before: int | None, limit: int) -> None:
    """List the acts of operators, the newest last.

    And what was published and no queue has taken: unrouted.

    \b
    Example: wsrm-mq audit list seq:242f14a4
             wsrm-mq audit list --actor ada --since 1d
             wsrm-mq audit list -event:unrouted
    """
    from wsrm_mq.views.reading import acts

    asked = place.query(query).having(actor=actor, since=since)
    with one_look(place) as db:
        found = acts(db, asked, before=before, limit=limit)
        shorter = shorter_names(db, (one.sequence for one in found))
    columns = (
        *(when("at"), "actor", Column("event", 16), known("sequence", shorter), "number"),
        *(Column("position", None, rank=1), Column("queue", rank=2), _reason(16, REASON)),
    )
    listing(place.is_json, "acts", found, columns, limit=limit, option="--before", of="key")


EXCERPT = 100
"""The longest reason, which may be a traceback, that fits a line below something else."""


def _reason(least: int, most: int) -> Column:
    return Column("reason", least, whole=lambda reason: first_line(reason, most))


def show_ledger(events: Sequence[LedgerView]) -> None:
    """Show the events that there are, a line an event."""
    if not events:
        return
    write("")
    columns = (when("at"), Column("event", 16), "number", Column("attempt", rank=1), _reason(20, EXCERPT))
    rows_of((*columns, "actor", Column("instance", rank=2)), events)
