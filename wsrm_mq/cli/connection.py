"""``wsrm-mq connection``: who sends, on which connection, and what of it waits."""

from __future__ import annotations

import click

from wsrm_mq.cli import completing
from wsrm_mq.cli.output import Column, end_of, facts, key, known, listing, say, when, word, write
from wsrm_mq.cli.place import Place, in_store, limit_option, one_look, paged, shorter_names


@click.group()
def connection() -> None:
    """See what came on which connection. NAME is that of a connection, or a beginning that no other has."""


@connection.command("list")
@in_store
@limit_option
def list_(place: Place, limit: int) -> None:
    """List connections, those that sent something last first.

    \b
    Example: wsrm-mq connection list --limit 10
    """
    from wsrm_mq.views.rows import connections

    with one_look(place) as db:
        found = connections(db, limit=limit)
    columns = (Column("name", 20), Column("peer", rank=1), "principal", "messages", "unsettled")
    seen = (when("first seen", "first_seen", rank=2), when("last seen", "last_seen"))
    listing(place.is_json, "connections", found, (*columns, *seen))
    if len(found) == limit and not place.is_json:
        say(f"There may be more: --limit {limit * 2}")


@connection.command()
@in_store
@click.argument("name", shell_complete=completing.values("connection"))
@paged
def show(place: Place, name: str, after: int, limit: int) -> None:
    """Show a connection and its messages in the order of receipt.

    \b
    Example: wsrm-mq connection show 192.0.2.7:50312
    """
    from wsrm_mq.views import reading, rows
    from wsrm_mq.views.query import parse

    with one_look(place) as db:
        found = rows.connection(db, rows.find_connection(db, name))
        messages = list(reading.messages(db, parse("", connection=found.name), after=after, limit=limit))
        shorter = shorter_names(db, (one.sequence for one in messages))
    if not place.is_json:
        facts(found._asdict())
        write("")
    columns = (
        *(key("position"), Column("queue", rank=1), known("sequence", shorter), "number", end_of("action")),
        *(word("state"), "reason", when("received", "received_at"), Column("bytes", of="body_size", rank=2)),
    )
    listing(place.is_json, "messages", messages, columns, limit=limit, connection=found._asdict())
