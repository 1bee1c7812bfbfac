"""``wsrm-mq journal``: what came into queues that have one, and what became of it."""

from __future__ import annotations

from shlex import quote

import click

from wsrm_mq.cli.output import end_of, key, listing, when, word
from wsrm_mq.cli.place import Place, in_store, now_ms, one_look, paged
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
    columns = (end_of("queue"), end_of("journal"), "messages", "bytes", when("last", "last_at", rank=1))
    listing(place.is_json, "journals", found, columns)


@journal.command()
@in_store
@name_argument
@paged
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
            **{"position": one.position, "message_id": one.message_id, "type": one.type, "of": of.position},
            **{"outcome": of.outcome, "reason": of.reason},
            **{"received_at": one.received_at, "settled_at": of.settled_at},
        }
        for one, of in ((one.seen, recorded[one.seen.position]) for one in seen)
    ]
    columns = (key("position"), "message_id", end_of("type"), key("of"), word("outcome"), "reason")
    times = (when("received", "received_at", rank=2), when("settled", "settled_at", rank=1))
    listing(place.is_json, "records", rows, (*columns, *times), limit=limit)
