"""Parts that the commands of queues have in common: the queue by its name, and a body that is written out."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

import click

from wsrm_mq.cli import completing
from wsrm_mq.cli.output import as_json, encoded, into_file, is_terminal, say, write
from wsrm_mq.errors import NotAllowed, NotFound, UnknownQueue

if TYPE_CHECKING:
    from wsrm_mq.node.message import Message
    from wsrm_mq.queue.declaring import Declared
    from wsrm_mq.store.port import Database

name_argument: Final = click.argument("name", metavar="QUEUE", shell_complete=completing.values("queue"))
output_option: Final = click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="The body into this file, which is made."
)
filter_option: Final = click.option("--filter", "wanted", metavar="TEXT", help='Only what fits: "priority > 5".')


def consumed(db: Database, name: str) -> Declared:
    """The queue. Raises ``NotFound``, and ``NotAllowed`` for one that a service is called from, with what to do."""
    from wsrm_mq.queue import declaring

    try:
        return declaring.read(db, name)
    except UnknownQueue:
        steps = f"`wsrm-mq queue list` has those that there are; `wsrm-mq queue declare {quote(name)}` makes it."
        raise NotFound(f"There is no queue {name}{_elsewhere(db, name)}: {steps}") from None
    except NotAllowed as error:
        term = quote(f"queue:{name}")
        raise NotAllowed(f"{error} See what is there with `wsrm-mq message list {term}`.") from None


def _elsewhere(db: Database, name: str) -> str:
    from wsrm_mq.queue.routing import choose, routes

    among = routes(db)
    if (way := choose(among, name)) is not None:
        return f" here, and what is put there goes to {way.next_hop}"
    return " here, and no route of `wsrm-mq route list` is for it" if among else ""


def give(is_json: bool, body: bytes, facts: dict[str, Any], output: Path | None) -> None:
    """Write a body out; when this is left it is written."""
    if output is not None:
        into_file(body, output)
    if is_json:
        as_json(message=facts, **({} if output is not None else encoded(body)))
    elif output is None and is_terminal():
        write(body.decode("utf-8", "backslashreplace"), keep="\n\t")
    elif output is None:
        sys.stdout.buffer.write(body)
    sys.stdout.flush()


def give_taken(is_json: bool, one: Message, no_ack: bool, output: Path | None) -> None:
    """Write out a message that was leased, and settle it."""
    facts = {name: getattr(one, name) for name in ("position", "message_id", "type", "topic", "content_type")}
    facts |= {name: getattr(one, name) for name in ("properties", "priority", "deliveries")}
    give(is_json, one.body, {**facts, "acknowledged": not no_ack}, output)
    if no_ack:
        one.release()
    else:
        one.ack()
    say(f"{one.message_id} at position {one.position} is {'given back' if no_ack else 'acknowledged'}.")


def given(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a message that were given; an empty mapping is none."""
    return {option: value for option, value in options.items() if value not in (None, {})}


def values_of(_context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, Any]:
    """Words ``NAME=VALUE``, each value read as JSON where it is that."""
    values: dict[str, Any] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{one!r}: write NAME=VALUE.")
        values[name] = _read(value)
    return values


def _read(value: str) -> Any:
    """The value that JSON reads, else a text."""
    try:
        return json.loads(value)
    except ValueError:
        return value
