"""``wsrm-mq queue``: the queues of a store, what is in them, and what is put there and taken."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from wsrm_mq.cli import node
from wsrm_mq.cli.acts import Care, named, tried, will
from wsrm_mq.cli.node import way_of
from wsrm_mq.cli.output import Column, as_json, as_line, cell, end_of, fields, key, listing, say, when, word, write
from wsrm_mq.cli.place import (
    BEHIND,
    POSITION,
    Asking,
    Place,
    in_store,
    now_ms,
    over_network,
    paged,
    query_argument,
    together,
)
from wsrm_mq.cli.queue_acts import (
    bind,
    consumed,
    declare,
    delete,
    filter_option,
    give,
    given,
    name_argument,
    output_option,
    purge,
    take,
    unbind,
    values_of,
)
from wsrm_mq.errors import NotFound
from wsrm_mq.views.words import moment, span

if TYPE_CHECKING:
    from wsrm_mq.node import Node, neighbours
    from wsrm_mq.queue import browsing, declaring
    from wsrm_mq.store import filtering, port, transaction
    from wsrm_mq.views import query, rows


def connect_to(place: Place, name: str) -> Node:
    from wsrm_mq import node as nodes

    return nodes.connect(place.path, name, auto_create=False)


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


def note(node: Node, event: str, position: int | None, who: str, where: str) -> None:
    """Write to the ledger who has put or taken a message by hand, and where."""
    node.call(lambda tx: tx.add_ledger(event, None, position=position, actor=who, reason=where))


@click.command()
@over_network("put")
@in_store
@name_argument
@click.argument("file", type=click.File("rb"))
@message_options
@tried
def put(place: Place, name: str, file: BinaryIO, care: Care, **options: Any) -> None:
    """Put a file into a queue as one message.

    FILE may be - for standard input. A queue that is not here may be one that a route leads to.

    \b
    Example: wsrm-mq queue put orders order.xml --type place --priority 7
             wsrm-mq queue put orders - --property region=eu
    """
    with place.looking() as db:
        _is_here, way = way_of(db, name)
        if way is None:
            consumed(db, name)

    body, position = file.read(), None
    if care.dry_run:
        if way is None:
            _rehearse(place, name, body, options)
        will(f"put {len(body)} bytes into {name}", care.dry_run)
    else:
        with connect_to(place, care.actor) as node:
            position = node.put(name, body, timeout=0, **given(options))
            note(node, "put", position, care.actor, name)
    place.result({"queue": name, "position": position, "dry_run": care.dry_run})
    if way is not None and not care.dry_run:
        say(place.told(f"It waits for {way.next_hop}: `wsrm-mq node show` says what does."))


def _rehearse(place: Place, name: str, body: bytes, options: dict[str, Any]) -> None:
    """Put a message, and take that back. Raises what would be raised."""
    from wsrm_mq.node import payload
    from wsrm_mq.queue import declaring
    from wsrm_mq.queue import put as putting

    def verb(tx: transaction.Transaction) -> None:
        putting.put_many(
            tx, declaring.declared(tx, name), [payload.stored(body, given(options), now=tx.now, client=None)]
        )

    place.run(verb, dry_run=True)


@click.command()
@over_network("get")
@in_store
@name_argument
@click.option("--wait", metavar="SECONDS", type=click.FloatRange(0), default=0.0, help="So long, where none is ready.")
@click.option("--no-ack", is_flag=True, help="Give it back after it was written.")
@filter_option
@output_option
@named
def get(
    place: Place, name: str, wait: float, no_ack: bool, wanted: str | None, output: Path | None, care: Care
) -> None:
    """Take the next message of a queue and write its body.

    It goes to standard output, or a file. The message is acknowledged when it was written; what could not be written
    is given back.

    \b
    Example: wsrm-mq queue get orders --output order.xml
             wsrm-mq queue get orders --no-ack --wait 10
    """
    with place.looking() as db:
        consumed(db, name)
    with connect_to(place, "wsrm-mq queue") as node:
        position = take(node, place.is_json, name, wait, no_ack, wanted, output)
        if not no_ack:
            note(node, "taken_by_hand", position, care.actor, name)


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
    from wsrm_mq.queue import browsing

    with place.looking() as db:
        browsing.check_peek(consumed(db, name))
    for one in _coming(place, name, after, interval):
        if place.is_json:
            as_line(one)
        else:
            told = (one.position, moment(one.received_at), one.state, one.message_id, one.action, one.body_size)
            write("\t".join(cell(value) for value in told), keep="\t")


def _coming(place: Place, name: str, after: int | None, interval: float) -> Iterator[rows.MessageView]:
    """The messages that come into a queue behind a position. Each look is of its own: a slow reader holds up no
    checkpoint."""
    from wsrm_mq.views import reading

    asked = place.query("").having(queue=name)
    while True:
        with place.looking() as db:
            if after is None:
                after = next((one.position for one in reading.messages(db, asked, newest=True, limit=1)), 0)
            found = list(reading.messages(db, asked, after=after))
        yield from found
        after = found[-1].position if found else after
        time.sleep(interval)


PIECE: Final = 500
"""Messages that are looked at together where a query is asked of them."""


@click.group()
def queue() -> None:
    """See the queues that programs consume, put messages there and take them."""


for _command in (declare, bind, unbind, put, get, tail, purge, delete):
    queue.add_command(_command)


@queue.command("list")
@over_network("list_queues")
@in_store
@click.option(
    "--scope", type=click.Choice(["site", "enterprise"]), help="What the nodes offer to one another, this one included."
)
def list_(place: Place, scope: neighbours.Reach | None) -> None:
    """List every queue of the store, those of wrapped services too.

    With --scope: the queues that this node and others offer to one another.

    \b
    Example: wsrm-mq queue list
             wsrm-mq queue list --scope site
    """
    from wsrm_mq.queue import browsing, express
    from wsrm_mq.views import overview

    if scope is not None:
        node.list_offers(place, scope)
        return

    with place.one_look() as db:
        for name, keeper in express.keepers(db).items():
            say(_elsewhere(name, keeper.pid))
        served, now = overview.waiting(db), now_ms()
        rows = []
        for one in browsing.every(db):
            had = browsing.stats(db, one, now)
            row = {"queue": one.name, "kind": one.kind, "declared": one.is_declared, **in_short(had)}
            if not one.is_consumed and one.name in served:
                held, ready, oldest = served[one.name]
                row |= {"ready": ready, "held": held, "bytes": None, "oldest_at": oldest}
            rows.append(row)
    tell_queues(place.is_json, rows)


def tell_queues(is_json: bool, rows: list[dict[str, Any]]) -> None:
    columns = (end_of("queue"), Column("kind", rank=2), "ready", "held", "leased", "dead", Column("bytes", rank=1))
    listing(is_json, "queues", rows, (*columns, when("oldest", "oldest_at", rank=1)))


def in_short(had: browsing.Stats) -> dict[str, Any]:
    counts = {"ready": had.ready, "held": sum(had.held.values()), "leased": had.leased, "dead": had.dead}
    return {**counts, "bytes": had.bytes, "oldest_at": _ms(had.oldest_at)}


def _elsewhere(queue: str, pid: int) -> str:
    count = f"`wsrm-mq queue stats {quote(queue)}` counts them"
    return f"{queue}: express messages are in the memory of process {pid}, and none of those shown; {count}."


@queue.command()
@over_network("show")
@in_store
@name_argument
def show(place: Place, name: str) -> None:
    """Show the policy of a queue, what it has, and who consumes it.

    \b
    Example: wsrm-mq queue show orders
    """
    from wsrm_mq.queue import browsing, policies
    from wsrm_mq.views import queues

    with place.one_look() as db:
        found = consumed(db, name)
        had = browsing.stats(db, found, now_ms())
        pace = next((one.pace for one in queues.consumed(db) if one.queue == name), "")
        consumers = [one for one in queues.subscriptions(db) if one.queue == name]
        topics = [one for one in queues.bindings(db) if one.queue == name]
    policy = policies.as_values(found.policy)
    if place.is_json:
        its = {
            "consumers": [{"client": one.client, "pid": one.pid, "state": one.state} for one in consumers],
            "topics": [{"pattern": one.pattern, "filter": one.filter} for one in topics],
        }
        head = {"queue": found.name, "kind": found.kind, "declared": found.is_declared}
        as_json(**head, policy=policy, **in_short(had), pace=pace, **its)
        return
    who = [f"{one.client or 'without a name'} (process {one.pid}), {one.state}" for one in consumers]
    tell_policy(
        {
            **{"queue": found.name, "kind": found.kind, **in_short(had), "oldest_at": _time(had.oldest_at)},
            **{"pace": pace or "nothing came or went within the last minute"},
            **{"subscribed": who or "no program", "topics": [one.pattern for one in topics] or "none"},
        },
        policy,
    )


def tell_policy(facts: dict[str, Any], policy: dict[str, Any]) -> None:
    fields(facts.items())
    write("")
    fields((option, json.dumps(value)) for option, value in policy.items())


@queue.command()
@over_network("stats")
@in_store
@name_argument
def stats(place: Place, name: str) -> None:
    """Count what a queue has, by state, and what is held by the reason.

    \b
    Example: wsrm-mq queue stats orders
    """
    from wsrm_mq.queue import browsing, express

    with place.one_look() as db:
        found = consumed(db, name)
        had = browsing.stats(db, found, now_ms())
        has_express = name in express.keepers(db)
    if has_express:  # they are in the memory of a process
        with connect_to(place, "wsrm-mq queue stats") as node:
            had = node.stats(name)
    tell_stats(place.is_json, name, had)


def tell_stats(is_json: bool, queue: str, had: browsing.Stats) -> None:
    keeper = had.keeper
    if is_json:
        times = {name: _ms(getattr(had, name)) for name in ("oldest_at", "oldest_age", "last_put_at")}
        as_json(queue=queue, **{**had._asdict(), **times})
        return
    reasons = {f"held: {reason}": count for reason, count in had.held.items()}
    told = {"oldest_at": _time(had.oldest_at), "last_put_at": _time(had.last_put_at)}
    told["oldest_age"] = None if had.oldest_age is None else span(round(had.oldest_age * 1000))
    told |= {name: f"{getattr(had, name):.2f} a second" for name in ("put_rate", "gone_rate")}
    told["keeper"] = None if keeper is None else f"process {keeper.pid}" + ("" if keeper.lives else ", which is gone")
    fields({"queue": queue, **had._asdict(), "held": sum(had.held.values()), **told, **reasons}.items())


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def _time(at: float | None) -> str | None:
    return None if at is None else moment(round(at * 1000))


@queue.command(cls=Asking)
@over_network("peek")
@in_store
@name_argument
@paged
@filter_option
@output_option
@query_argument
def peek(place: Place, name: str, query: str, after: int, limit: int, wanted: str | None, output: Path | None) -> None:
    """Look at the messages of a queue, or at the body of one.

    QUERY is words as state:ready and age:>1h, or the position of the one whose body it is. Nothing changes by it.

    \b
    Example: wsrm-mq queue peek orders --filter "priority > 5"
             wsrm-mq queue peek orders state:held since:2h
             wsrm-mq queue peek orders 42 --output order.xml
    """
    from wsrm_mq.queue import browsing, express, filters

    position = POSITION(query) if query.isdecimal() else None
    if output is not None and position is None:
        raise click.UsageError("--output is for the body of one message: name its position.")
    with place.one_look() as db:
        found = consumed(db, name)
        if (keeper := express.keepers(db).get(name)) is not None:
            say(_elsewhere(name, keeper.pid))
        if position is not None:
            one = browsing.get(db, found, now_ms(), position)
        else:
            fits = None if wanted is None else filters.parse(wanted)
            seen = _fitting(db, found, place.query(query).having(queue=name), after, limit, fits)
    if position is not None:
        if one is None:
            steps = f"`wsrm-mq message show {position}` says what became of it."
            raise NotFound(f"{name} has no message at position {position} now: {steps}")
        give(place.is_json, one.seen.body or b"", _facts(one), output)
        return
    tell_peeked(place.is_json, [_facts(one) for one in seen], limit)


def tell_peeked(is_json: bool, rows: list[dict[str, Any]], limit: int) -> None:
    head = (key("position"), "message_id", end_of("type"), word("state"), "reason", "priority", "deliveries")
    columns = (*head, when("received", "received_at", rank=1), Column("bytes", of="size", rank=2))
    listing(is_json, "messages", rows, columns, limit=limit)


def _fitting(
    db: port.Database,
    queue: declaring.Declared,
    asked: query.Query,
    after: int,
    limit: int,
    wanted: filtering.Filter | None,
) -> list[browsing.Peeked]:
    """Up to ``limit`` messages of a queue behind a position that fit a query and a filter."""
    from wsrm_mq.queue import browsing
    from wsrm_mq.views import reading

    seen: list[browsing.Peeked] = []
    count = max(limit, PIECE) if asked.text else limit
    while page := browsing.peek(db, queue, now_ms(), after, count, wanted):
        first, after = page[0].seen.position, page[-1].seen.position
        if asked.text:
            fitting = {one.position for one in reading.messages(db, asked.having(pos=f"{first}-{after}"))}
            page = [one for one in page if one.seen.position in fitting]
        seen += page
        if not asked.text or len(seen) >= limit:
            break
    return seen[:limit]


def _facts(one: browsing.Peeked) -> dict[str, Any]:
    seen = one.seen
    told = {"position": seen.position, "message_id": seen.message_id or f"#{seen.message}", "type": seen.type}
    told |= {"state": one.state, "reason": one.reason or None, "priority": seen.priority}
    return {**told, "deliveries": seen.deliveries, "received_at": seen.received_at, "size": len(seen.body or b"")}
