"""``wsrm-mq queue put`` and ``get``."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from wsrm_mq.cli.output import result, say
from wsrm_mq.cli.place import Place, in_store, looking
from wsrm_mq.cli.queue_common import consumed, filter_option, give, name_argument, output_option, values_of
from wsrm_mq.errors import NotFound

if TYPE_CHECKING:
    from wsrm_mq.node import Node


def _node(place: Place, name: str) -> Node:
    """A node on a store that is there, as one that looks finds it, and has the queue."""
    from wsrm_mq.node import connect

    with looking(place) as db:
        consumed(place, db, name)
    return connect(place.path, "wsrm-mq queue", auto_create=False)


@click.command()
@in_store
@name_argument
@click.argument("file", type=click.File("rb"))
@click.option("--type", metavar="TEXT", help="Its type, for filters.")
@click.option("--message-id", metavar="ID", help="One that was put lately under this id is the same message.")
@click.option("--property", "properties", metavar="NAME=VALUE", multiple=True, callback=values_of, help="For filters.")
@click.option("--content-type", metavar="TYPE", help="The type of its body.")
@click.option("--priority", type=click.IntRange(0, 9), help="What is higher comes first. Default: 4.")
@click.option("--ttl", metavar="SECONDS", type=click.FloatRange(0), help="Not taken by then it is a dead letter.")
@click.option("--delay", metavar="SECONDS", type=click.FloatRange(0), help="It is ready after so long.")
@click.option("--group", metavar="KEY", help="Messages of a group are delivered in their order.")
def put(place: Place, name: str, file: BinaryIO, **options: Any) -> None:
    """Put a file into a queue as one message.

    FILE may be - for standard input.

    \b
    Example: wsrm-mq queue put orders order.xml --type place --priority 7
             wsrm-mq queue put orders - --property region=eu
    """
    given = {option: value for option, value in options.items() if value is not None}
    with _node(place, name) as node:
        position = node.put(name, file.read(), timeout=0, **given)
    result(place.is_json, {"queue": name, "position": position})


@click.command()
@in_store
@name_argument
@click.option("--wait", metavar="SECONDS", type=click.FloatRange(0), default=0.0, help="So long, where none is ready.")
@click.option("--no-ack", is_flag=True, help="Give it back after it was written.")
@filter_option
@output_option
def get(place: Place, name: str, wait: float, no_ack: bool, wanted: str | None, output: Path | None) -> None:
    """Take the next message of a queue and write its body.

    It goes to standard output, or a file. The message is acknowledged when it was written; what could not be written
    is given back.

    \b
    Example: wsrm-mq queue get orders --output order.xml
             wsrm-mq queue get orders --no-ack --wait 10
    """
    with _node(place, name) as node:
        found = node.receive(name, 1, wait=wait, filter=wanted)
        if not found:
            steps = place.told(f"`wsrm-mq queue stats {quote(name)}` counts what is held and leased.")
            raise NotFound(f"Nothing is ready in {name}: {steps}")
        (one,) = found
        facts = {name: getattr(one, name) for name in ("position", "message_id", "type", "topic", "content_type")}
        facts |= {name: getattr(one, name) for name in ("properties", "priority", "deliveries")}
        give(place, one.body, {**facts, "acknowledged": not no_ack}, output)
        if no_ack:
            one.release()
        else:
            one.ack()
    say(f"{one.message_id} at position {one.position} is {'given back' if no_ack else 'acknowledged'}.")
