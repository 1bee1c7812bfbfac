"""``wsrm-mq queue``: the queues of a store, what is in them, and what is put there and taken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wsrm_mq.cli.columns import Column, end_of, key, when, word
from wsrm_mq.cli.output import as_json, fields, say, table, write
from wsrm_mq.cli.place import BEHIND, POSITION, Place, in_store, now_ms, one_look
from wsrm_mq.cli.queue_acts import declare, delete, purge
from wsrm_mq.cli.queue_common import consumed, filter_option, give, name_argument, output_option
from wsrm_mq.cli.queue_messages import get, put
from wsrm_mq.errors import NotFound
from wsrm_mq.views.words import moment

if TYPE_CHECKING:
    from wsrm_mq.queue.browsing import Peeked, Stats
    from wsrm_mq.queue.declaring import Declared


@click.group()
def queue() -> None:
    """See the queues that programs consume, put messages there and take them."""


for _command in (declare, put, get, purge, delete):
    queue.add_command(_command)


@queue.command("list")
@in_store
def list_(place: Place) -> None:
    """List every queue of the store, those of wrapped services too.

    \b
    Example: wsrm-mq queue list
    """
    from wsrm_mq.queue import browsing
    from wsrm_mq.views.overview import waiting

    with one_look(place) as db:
        served, now = waiting(db), now_ms()
        rows = []
        for one in browsing.every(db):
            had = browsing.stats(db, one, now)
            row = {"queue": one.name, "kind": one.kind, "declared": one.is_declared, **_in_short(had)}
            if not one.is_consumed and one.name in served:
                held, ready, oldest = served[one.name]
                row |= {"ready": ready, "held": held, "bytes": None, "oldest_at": oldest}
            rows.append(row)
    if place.is_json:
        as_json(queues=rows)
        return
    names = ("queue", "kind", "ready", "held", "leased", "dead", "bytes", "oldest_at")
    columns = (end_of("queue"), Column("kind", rank=2), "ready", "held", "leased", "dead", Column("bytes", rank=1))
    table((*columns, when("oldest", rank=1)), [[row[name] for name in names] for row in rows])


def _in_short(had: Stats) -> dict[str, Any]:
    counts = {"ready": had.ready, "held": sum(had.held.values()), "leased": had.leased, "dead": had.dead}
    return {**counts, "bytes": had.bytes, "oldest_at": had.oldest_at}


def _stats(place: Place, name: str) -> tuple[Declared, Stats]:
    from wsrm_mq.queue import browsing

    with one_look(place) as db:
        found = consumed(place, db, name)
        return found, browsing.stats(db, found, now_ms())


@queue.command()
@in_store
@name_argument
def show(place: Place, name: str) -> None:
    """Show the policy of a queue, and what it has.

    \b
    Example: wsrm-mq queue show orders
    """
    from wsrm_mq.queue.policies import as_values

    found, had = _stats(place, name)
    policy = as_values(found.policy)
    if place.is_json:
        as_json(queue=found.name, kind=found.kind, declared=found.is_declared, policy=policy, **_in_short(had))
        return
    fields({"queue": found.name, "kind": found.kind, **_in_short(had), "oldest_at": _time(had.oldest_at)}.items())
    write("")
    fields((option, json.dumps(value)) for option, value in policy.items())


@queue.command()
@in_store
@name_argument
def stats(place: Place, name: str) -> None:
    """Count what a queue has, by state, and what is held by the reason.

    \b
    Example: wsrm-mq queue stats orders
    """
    found, had = _stats(place, name)
    if place.is_json:
        as_json(queue=found.name, **had._asdict())
        return
    reasons = {f"held: {reason}": count for reason, count in had.held.items()}
    times = {"oldest_at": _time(had.oldest_at), "last_put_at": _time(had.last_put_at)}
    fields({"queue": found.name, **had._asdict(), "held": sum(had.held.values()), **times, **reasons}.items())


def _time(at: int | None) -> str | None:
    return None if at is None else moment(at)


@queue.command()
@in_store
@name_argument
@click.argument("position", type=POSITION, required=False)
@click.option("--after", metavar="POSITION", type=BEHIND, default=0, help="Begin behind this position.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
@filter_option
@output_option
def peek(
    place: Place, name: str, position: int | None, after: int, limit: int, wanted: str | None, output: Path | None
) -> None:
    """Look at the messages of a queue, or at the body of one.

    That is the one at POSITION. Nothing changes by it.

    \b
    Example: wsrm-mq queue peek orders --filter "priority > 5"
             wsrm-mq queue peek orders 42 --output order.xml
    """
    from wsrm_mq.queue import browsing, filters

    if output is not None and position is None:
        raise click.UsageError("--output is for the body of one message: name its POSITION.")
    with one_look(place) as db:
        found = consumed(place, db, name)
        if position is not None:
            one = browsing.get(db, found, now_ms(), position)
        else:
            seen = browsing.peek(db, found, now_ms(), after, limit, None if wanted is None else filters.parse(wanted))
    if position is not None:
        if one is None:
            steps = f"`wsrm-mq message show {position}` says what became of it."
            raise NotFound(f"{name} has no message at position {position} now: {place.told(steps)}")
        give(place, one.seen.body or b"", _facts(one), output)
        return
    is_full = len(seen) == limit
    rows = [_facts(one) for one in seen]
    if place.is_json:
        as_json(messages=rows, next=rows[-1]["position"] if is_full else None)
        return
    head = (key("position"), Column("message_id"), end_of("type"), word("state"), "reason", "priority", "deliveries")
    table((*head, when("received", rank=1), Column("bytes", rank=2)), [tuple(row.values()) for row in rows])
    if is_full:
        say(f"There may be more: --after {rows[-1]['position']}")


def _facts(one: Peeked) -> dict[str, Any]:
    seen = one.seen
    told = {"position": seen.position, "message_id": seen.message_id or f"#{seen.message}", "type": seen.type}
    told |= {"state": one.state, "reason": one.reason or None, "priority": seen.priority}
    return {**told, "deliveries": seen.deliveries, "received_at": seen.received_at, "size": len(seen.body or b"")}
