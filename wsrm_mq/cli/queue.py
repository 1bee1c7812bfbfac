"""``wsrm-mq queue``: the queues of a store, what is in them, and what is put there and taken."""

from __future__ import annotations

import json
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

import click

from wsrm_mq.cli.asking import Asking, query_argument
from wsrm_mq.cli.network import over_network
from wsrm_mq.cli.output import Column, as_json, end_of, fields, key, listing, say, when, word, write
from wsrm_mq.cli.place import POSITION, Place, in_store, now_ms, one_look, paged
from wsrm_mq.cli.queue_acts import bind, declare, delete, purge, unbind
from wsrm_mq.cli.queue_common import consumed, filter_option, give, name_argument, output_option
from wsrm_mq.cli.queue_messages import connect_to, get, put, tail
from wsrm_mq.errors import NotFound
from wsrm_mq.views.words import moment, span

if TYPE_CHECKING:
    from wsrm_mq.node.neighbours import Reach
    from wsrm_mq.queue.browsing import Peeked, Stats
    from wsrm_mq.queue.declaring import Declared
    from wsrm_mq.store.filtering import Filter
    from wsrm_mq.store.port import Database
    from wsrm_mq.views.query import Query

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
def list_(place: Place, scope: Reach | None) -> None:
    """List every queue of the store, those of wrapped services too.

    With --scope: the queues that this node and others offer to one another.

    \b
    Example: wsrm-mq queue list
             wsrm-mq queue list --scope site
    """
    if scope is not None:
        from wsrm_mq.cli.node import list_offers

        list_offers(place, scope)
        return
    from wsrm_mq.queue import browsing, express
    from wsrm_mq.views.overview import waiting

    with one_look(place) as db:
        for name, keeper in express.keepers(db).items():
            say(_elsewhere(name, keeper.pid))
        served, now = waiting(db), now_ms()
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


def in_short(had: Stats) -> dict[str, Any]:
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
    from wsrm_mq.queue import browsing
    from wsrm_mq.queue.policies import as_values
    from wsrm_mq.views import queues

    with one_look(place) as db:
        found = consumed(db, name)
        had = browsing.stats(db, found, now_ms())
        pace = next((one.pace for one in queues.consumed(db) if one.queue == name), "")
        consumers = [one for one in queues.subscriptions(db) if one.queue == name]
        topics = [one for one in queues.bindings(db) if one.queue == name]
    policy = as_values(found.policy)
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

    with one_look(place) as db:
        found = consumed(db, name)
        had = browsing.stats(db, found, now_ms())
        has_express = name in express.keepers(db)
    if has_express:  # they are in the memory of a process
        with connect_to(place, "wsrm-mq queue stats") as node:
            had = node.stats(name)
    tell_stats(place.is_json, name, had)


def tell_stats(is_json: bool, queue: str, had: Stats) -> None:
    keeper = had.keeper
    if is_json:
        times = {name: _ms(getattr(had, name)) for name in ("oldest_at", "oldest_age", "last_put_at")}
        kept = {"keeper": None if keeper is None else keeper._asdict()}
        as_json(queue=queue, **{**had._asdict(), **times, **kept})
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
    with one_look(place) as db:
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
    db: Database, queue: Declared, asked: Query, after: int, limit: int, wanted: Filter | None
) -> list[Peeked]:
    """Up to ``limit`` messages of a queue behind a position that fit a query and a filter."""
    from wsrm_mq.queue import browsing
    from wsrm_mq.views.reading import messages

    seen: list[Peeked] = []
    count = max(limit, PIECE) if asked.text else limit
    while page := browsing.peek(db, queue, now_ms(), after, count, wanted):
        first, after = page[0].seen.position, page[-1].seen.position
        if asked.text:
            fitting = {one.position for one in messages(db, asked.having(pos=f"{first}-{after}"))}
            page = [one for one in page if one.seen.position in fitting]
        seen += page
        if not asked.text or len(seen) >= limit:
            break
    return seen[:limit]


def _facts(one: Peeked) -> dict[str, Any]:
    seen = one.seen
    told = {"position": seen.position, "message_id": seen.message_id or f"#{seen.message}", "type": seen.type}
    told |= {"state": one.state, "reason": one.reason or None, "priority": seen.priority}
    return {**told, "deliveries": seen.deliveries, "received_at": seen.received_at, "size": len(seen.body or b"")}
