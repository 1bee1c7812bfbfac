"""``wsrm-mq connection``: who sends, on which connection, and what of it waits."""

from __future__ import annotations

import click

from wsrm_mq.cli import completing
from wsrm_mq.cli.output import Column, as_json, end_of, fields, key, known, say, table, when, word, write
from wsrm_mq.cli.place import BEHIND, Place, in_store, one_look
from wsrm_mq.views.words import moment


@click.group()
def connection() -> None:
    """See what came on which connection. NAME is that of a connection, or a beginning that no other has."""


@connection.command("list")
@in_store
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
def list_(place: Place, limit: int) -> None:
    """List connections, those that sent something last first.

    \b
    Example: wsrm-mq connection list --limit 10
    """
    from wsrm_mq.views.connections import connections

    with one_look(place) as db:
        found = connections(db, limit=limit)
    if place.is_json:
        as_json(connections=[one._asdict() for one in found])
        return
    table(
        (
            *(Column("name", 20), Column("peer", rank=1), "principal", "messages", "unsettled"),
            *(when("first seen", rank=2), when("last seen")),
        ),
        [(*one[:5], one.first_seen, one.last_seen) for one in found],
    )
    if len(found) == limit:
        say(f"There may be more: --limit {limit * 2}")


@connection.command()
@in_store
@click.argument("name", shell_complete=completing.connections)
@click.option("--after", metavar="POSITION", type=BEHIND, default=0, help="Begin behind this position.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
def show(place: Place, name: str, after: int, limit: int) -> None:
    """Show a connection and its messages in the order of receipt.

    \b
    Example: wsrm-mq connection show 192.0.2.7:50312
    """
    from wsrm_mq.views import connections, reading
    from wsrm_mq.views.naming import shortened
    from wsrm_mq.views.query import parse

    with one_look(place) as db:
        found = connections.connection(db, connections.find_connection(db, name))
        messages = list(reading.messages(db, parse("", connection=found.name), after=after, limit=limit))
        shorter = shortened(db, (one.sequence for one in messages))
    is_full = len(messages) == limit
    if place.is_json:
        as_json(
            connection=found._asdict(),
            messages=[one._asdict() for one in messages],
            next=messages[-1].position if is_full else None,
        )
        return
    times = {"first_seen", "last_seen"}
    fields((key, moment(value) if key in times else value) for key, value in found._asdict().items())
    write("")
    table(
        (
            *(key("position"), Column("queue", rank=1), known("sequence", shorter), "number", end_of("action")),
            *(word("state"), "reason", when("received"), Column("bytes", rank=2)),
        ),
        [
            (
                one.position,
                one.queue,
                one.sequence,
                one.number,
                one.action,
                one.state,
                one.reason,
                one.received_at,
                one.body_size,
            )
            for one in messages
        ],
    )
    if is_full:
        say(f"There may be more: --after {messages[-1].position}")
