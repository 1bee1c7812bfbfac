"""``wsrm-mq journal``: what came into queues that have one, and what became of it."""

from __future__ import annotations

from shlex import quote

import click

from wsrm_mq.cli.output import Column, as_json, end_of, key, say, table, when, word
from wsrm_mq.cli.place import BEHIND, Place, in_store, now_ms, one_look
from wsrm_mq.cli.queue_common import filter_option, name_argument
from wsrm_mq.errors import NotFound, UnknownQueue


@click.group()
def journal() -> None:
    """See what came into queues, and what became of it. `queue declare QUEUE journal=true` has that recorded."""


@journal.command("list")
@in_store
def list_(place: Place) -> None:
    """List the journals of the store.

    \b
    Example: wsrm-mq journal list
    """
    from wsrm_mq.views.queues import journals

    with one_look(place) as db:
        found = journals(db)
    if place.is_json:
        as_json(journals=[one._asdict() for one in found])
        return
    table((end_of("queue"), end_of("journal"), "messages", "bytes", when("last", rank=1)), found)


@journal.command()
@in_store
@name_argument
@click.option("--after", metavar="POSITION", type=BEHIND, default=0, help="Begin behind this position.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
@filter_option
def show(place: Place, name: str, after: int, limit: int, wanted: str | None) -> None:
    """Show what came into a queue, with its outcome.

    Each message that its journal has; what it records is at OF.

    \b
    Example: wsrm-mq journal show orders
             wsrm-mq journal show orders --filter "outcome = 'dead'"
    """
    from wsrm_mq.queue import browsing, declaring, filters, journaling

    with one_look(place) as db:
        try:
            found = declaring.read(db, f"{name}#journal")
        except UnknownQueue:
            makes = f"`wsrm-mq queue declare {quote(name)} journal=true` makes it."
            raise NotFound(f"There is no journal of {name}: {makes}") from None
        seen = browsing.peek(db, found, now_ms(), after, limit, None if wanted is None else filters.parse(wanted))
        recorded = journaling.recorded(db, [one.seen.position for one in seen])
    rows = [
        {
            "position": one.seen.position,
            "message_id": one.seen.message_id,
            "type": one.seen.type,
            "of": of.position,
            "outcome": of.outcome,
            "reason": of.reason,
            "received_at": one.seen.received_at,
            "settled_at": of.settled_at,
        }
        for one in seen
        if (of := recorded[one.seen.position])
    ]
    is_full = len(seen) == limit
    if place.is_json:
        as_json(records=rows, next=rows[-1]["position"] if is_full else None)
        return
    columns = (key("position"), Column("message_id"), end_of("type"), key("of"), word("outcome"), "reason")
    table((*columns, when("received", rank=2), when("settled", rank=1)), [tuple(row.values()) for row in rows])
    if is_full:
        say(f"There may be more: --after {rows[-1]['position']}")
