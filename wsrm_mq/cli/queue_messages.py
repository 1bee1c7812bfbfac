"""``wsrm-mq queue put``, ``get`` and ``tail``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeVar

import click

from wsrm_mq.cli.acts import actor_option, dry_run_option, login, will
from wsrm_mq.cli.hops import way_of
from wsrm_mq.cli.network import over_network
from wsrm_mq.cli.output import as_line, cell, result, say, write
from wsrm_mq.cli.place import BEHIND, Place, in_store, looking, together
from wsrm_mq.cli.queue_common import (
    consumed,
    filter_option,
    give_taken,
    given,
    name_argument,
    output_option,
    values_of,
)
from wsrm_mq.errors import NotFound
from wsrm_mq.views.words import moment

if TYPE_CHECKING:
    from wsrm_mq.node import Node
    from wsrm_mq.store.transaction import Transaction
    from wsrm_mq.views.rows import MessageView

R = TypeVar("R")


def connect_to(place: Place, name: str) -> Node:
    from wsrm_mq.node import connect

    return connect(place.path, name, auto_create=False)


message_options: Final = together(
    click.option("--type", metavar="TEXT", help="Its type, for filters."),
    click.option("--message-id", metavar="ID", help="One that was put lately under this id is the same message."),
    click.option(
        *("--property", "properties"), metavar="NAME=VALUE", multiple=True, callback=values_of, help="For filters."
    ),
    click.option("--content-type", metavar="TYPE", help="The type of its body."),
    click.option("--priority", type=click.IntRange(0, 9), help="What is higher comes first. Default: 4."),
    click.option("--ttl", metavar="SECONDS", type=click.FloatRange(0), help="Not taken by then it is a dead letter."),
    click.option("--delay", metavar="SECONDS", type=click.FloatRange(0), help="It is ready after so long."),
    click.option("--group", metavar="KEY", help="Messages of a group are delivered in their order."),
)
"""The options of a message that is put."""


def put_by_hand(
    place: Place,
    file: BinaryIO,
    actor: str | None,
    event: str,
    where: str,
    put: Callable[[Node, bytes, dict[str, Any]], tuple[R, int | None]],
    options: dict[str, Any],
) -> R:
    """Have a node put a file with the ``options`` that were given; the ledger says who did, and where. ``put`` answers
    what came of it, and the position."""
    who = actor or login()
    with looking(place):
        pass
    with connect_to(place, who) as node:
        done, position = put(node, file.read(), given(options))
        node.call(lambda tx: tx.add_ledger(event, None, position=position, actor=who, reason=where))
    return done


@click.command()
@over_network("put")
@in_store
@name_argument
@click.argument("file", type=click.File("rb"))
@message_options
@dry_run_option
@actor_option
def put(place: Place, name: str, file: BinaryIO, dry_run: bool, actor: str | None, **options: Any) -> None:
    """Put a file into a queue as one message.

    FILE may be - for standard input. A queue that is not here may be one that a route leads to.

    \b
    Example: wsrm-mq queue put orders order.xml --type place --priority 7
             wsrm-mq queue put orders - --property region=eu
    """
    with looking(place) as db:
        _is_here, way = way_of(db, name)
        if way is None:
            consumed(db, name)

    def stored(node: Node, body: bytes, wished: dict[str, Any]) -> tuple[int, int]:
        return (node.put(name, body, timeout=0, **wished),) * 2

    if dry_run:
        body = file.read()
        if way is None:
            _rehearse(place, name, body, options)
        will(f"put {len(body)} bytes into {name}", dry_run)
    position = None if dry_run else put_by_hand(place, file, actor, "put", name, stored, options)
    result(place.is_json, {"queue": name, "position": position, "dry_run": dry_run})
    if way is not None and not dry_run:
        say(place.told(f"It waits for {way.next_hop}: `wsrm-mq node show` says what does."))


def _rehearse(place: Place, name: str, body: bytes, options: dict[str, Any]) -> None:
    """Put a message, and take that back. Raises what would be raised."""
    from wsrm_mq.node.payload import stored
    from wsrm_mq.queue import declaring
    from wsrm_mq.queue.put import put_many

    def verb(tx: Transaction) -> None:
        put_many(tx, declaring.declared(tx, name), [stored(body, given(options), now=tx.now, client=None)])

    place.run(verb, dry_run=True)


@click.command()
@over_network("get")
@in_store
@name_argument
@click.option("--wait", metavar="SECONDS", type=click.FloatRange(0), default=0.0, help="So long, where none is ready.")
@click.option("--no-ack", is_flag=True, help="Give it back after it was written.")
@filter_option
@output_option
@actor_option
def get(
    place: Place, name: str, wait: float, no_ack: bool, wanted: str | None, output: Path | None, actor: str | None
) -> None:
    """Take the next message of a queue and write its body.

    It goes to standard output, or a file. The message is acknowledged when it was written; what could not be written
    is given back.

    \b
    Example: wsrm-mq queue get orders --output order.xml
             wsrm-mq queue get orders --no-ack --wait 10
    """
    with looking(place) as db:
        consumed(db, name)
    with connect_to(place, "wsrm-mq queue") as node:
        found = node.receive(name, 1, wait=wait, filter=wanted)
        if not found:
            steps = f"`wsrm-mq queue stats {quote(name)}` counts what is held and leased."
            raise NotFound(f"Nothing is ready in {name}: {steps}")
        position = found[0].position
        give_taken(place.is_json, found[0], no_ack, output)
        if not no_ack:
            who = actor or login()
            node.call(lambda tx: tx.add_ledger("taken_by_hand", None, position=position, actor=who, reason=name))


@click.command()
@in_store
@name_argument
@click.option("--after", metavar="POSITION", type=BEHIND, help="Begin behind this position. Default: with the newest.")
@click.option("--interval", type=click.FloatRange(min=0.1), default=1.0, show_default=True, help="Seconds.")
def tail(place: Place, name: str, after: int | None, interval: float) -> None:
    """Show what comes into a queue, as it comes.

    Until Ctrl-C. Also what a consumer takes at once, and nothing changes by it.

    \b
    Example: wsrm-mq queue tail orders
             wsrm-mq queue tail orders --after 0 --json
    """
    from wsrm_mq.queue.browsing import check_peek

    with looking(place) as db:
        check_peek(consumed(db, name))
    for one in _coming(place, name, after, interval):
        if place.is_json:
            as_line(one._asdict())
        else:
            told = (one.position, moment(one.received_at), one.state, one.message_id, one.action, one.body_size)
            write("\t".join(cell(value) for value in told), keep="\t")


def _coming(place: Place, name: str, after: int | None, interval: float) -> Iterator[MessageView]:
    """The messages that come into a queue behind a position. Each look is of its own: a slow reader holds up no
    checkpoint."""
    from wsrm_mq.views.reading import messages

    asked = place.query("").having(queue=name)
    while True:
        with looking(place) as db:
            if after is None:
                after = next((one.position for one in messages(db, asked, newest=True, limit=1)), 0)
            found = list(messages(db, asked, after=after))
        yield from found
        after = found[-1].position if found else after
        time.sleep(interval)
