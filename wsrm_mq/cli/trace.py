"""``wsrm-mq message trace``: the way of a message over the nodes, as far as they tell."""

from __future__ import annotations

from contextlib import closing
from shlex import quote
from typing import TYPE_CHECKING

import click

from wsrm_mq.cli import completing
from wsrm_mq.cli.hops import address_of
from wsrm_mq.cli.output import Column, as_json, end_of, key, rows_of, say, when, word, write
from wsrm_mq.cli.place import Place, in_store, one_look
from wsrm_mq.errors import NotAllowed, NotFound, WSRMError

if TYPE_CHECKING:
    from wsrm_mq.queue.tracing import Stop
    from wsrm_mq.store.port import Database


@click.command("trace")
@in_store
@click.argument("which", metavar="MESSAGE", shell_complete=completing.values("a position"))
def message_trace(place: Place, which: str) -> None:
    """Show the way of a message over the nodes.

    MESSAGE is a position, the id that its sender gave it, or its origin: NODE/INCARNATION/POSITION, as this command
    shows it. All nodes of the configuration are asked at once, and have ten seconds; each tells what this one's token
    may peek there.

    \b
    Example: wsrm-mq message trace 42
             wsrm-mq message trace shop/5f1c09aa4be2d310/42
    """
    from wsrm_mq.client.neighbours import Neighbours
    from wsrm_mq.queue.routing import node_name
    from wsrm_mq.queue.tracing import in_order

    with one_look(place) as db:
        here, (origin, own) = node_name(db).name, _found(db, which)
    with closing(Neighbours(place.settings, "wsrm-mq")) as others:
        told = {} if origin is None else others.trace(origin)
    away = [{"node": name, "why": str(one)} for name, one in told.items() if isinstance(one, WSRMError)]
    answers = {here: own, **{name: one for name, one in told.items() if not isinstance(one, WSRMError)}}
    nothing = [name for name, stops in answers.items() if not stops]
    if len(nothing) == len(answers) and not away:
        nodes = ", ".join(nothing)
        raise NotFound(f"{origin} is not known at {nodes}: retention has deleted it, or this token may not peek it.")
    way = sorted(((node, one) for node, stops in answers.items() for one in stops), key=lambda two: in_order(two[1]))
    rows = [{"node": node, **vars(one), "since": round(one.since * 1000)} for node, one in way]
    if place.is_json:
        as_json(origin=origin, stops=rows, nothing=nothing, away=away)
        return
    write(origin or "It was put here, and goes to no other node.")
    columns = ("hop", end_of("node"), end_of("queue"), word("state"), "reason", when("since"), end_of("next_hop"))
    rows_of((*columns, key("position"), Column("holder", rank=1)), rows)
    for row in rows:
        if row["error"]:
            say(f"{row['node']}: {row['error']}")
    ask = f"ask there yourself: `wsrm-mq message trace {quote(origin or which)}`."
    for one in away:
        say(f"{one['node']} does not answer as it should: {one['why']} It may have the message; {ask}")
    if rows and (next_hop := rows[-1]["next_hop"]) and rows[-1]["state"] == "delivered":
        addresses = [address_of(place.settings, name) for name, one in place.settings.nodes.items() if one.url]
        why = "no section [node.NAME] here has its address: add one, with a token that may peek there, or"
        if next_hop in addresses:
            why = "does not tell this one what became of it:"
        say(f"The node at {next_hop} has taken it, and {why} {ask}")


def _found(db: Database, which: str) -> tuple[str | None, list[Stop]]:
    """The origin of a message, and its places in this store. Raises ``NotFound``, and ``NotAllowed`` for an id that
    several have."""
    from wsrm_mq.queue import tracing
    from wsrm_mq.views.message_sentences import positions_of

    origin = tracing.parsed(which)
    try:
        found = [tracing.at(db, position) for position in positions_of(db, which)]
    except NotFound as error:
        if origin is None:
            asks = "ask at the node where it was put, or name its origin: NODE/INCARNATION/POSITION."
            raise NotFound(f"{error} Has another node had it, {asks}") from None
        return which, tracing.stops(db, origin)
    origins = {trace or one.position: trace for trace, one in found}
    if len(origins) > 1:
        named = ", ".join(str(one.position) for _trace, one in found)
        raise NotAllowed(f"{which} is the id of several messages: name one by its position: {named}.")
    (trace,) = origins.values()
    known = None if trace is None else tracing.parsed(trace)
    return trace, [found[0][1]] if known is None else tracing.stops(db, known)
