"""``wsrm-mq queue declare``, ``bind``, ``unbind``, ``purge`` and ``delete``, each of which leaves a line in the ledger;
and what the commands of queues have in common."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

import click

from wsrm_mq.cli import completing
from wsrm_mq.cli.acts import Care, acting, changed, committed, done, tried
from wsrm_mq.cli.output import as_json, encoded, into_file, is_terminal, result, say, write
from wsrm_mq.cli.place import BEHIND, POSITION, Place, in_store, over_network
from wsrm_mq.errors import KeeperGone, NotAllowed, NotFound, QueueBusy, UnknownQueue
from wsrm_mq.views.words import counted

if TYPE_CHECKING:
    from wsrm_mq.client.node import RemoteNode
    from wsrm_mq.node import Node
    from wsrm_mq.queue import clearing, declaring
    from wsrm_mq.store import port, transaction

name_argument: Final = click.argument("name", metavar="QUEUE", shell_complete=completing.values("queue"))
output_option: Final = click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="The body into this file, which is made."
)
filter_option: Final = click.option("--filter", "wanted", metavar="TEXT", help='Only what fits: "priority > 5".')


def consumed(db: port.Database, name: str) -> declaring.Declared:
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


def _elsewhere(db: port.Database, name: str) -> str:
    from wsrm_mq.queue import routing

    among = routing.routes(db)
    if (way := routing.choose(among, name)) is not None:
        return f" here, and what is put there goes to {way.next_hop}"
    return " here, and no route of `wsrm-mq route list` is for it" if among else ""


def give(is_json: bool, body: bytes, facts: dict[str, Any], output: Path | None) -> None:
    """Write a body into the file ``output``, or to standard output; as JSON with ``facts``. Returns when it is
    written."""
    if output is not None:
        into_file(body, output)
    if is_json:
        as_json(message=facts, **({} if output is not None else encoded(body)))
    elif output is None and is_terminal():
        write(body.decode("utf-8", "backslashreplace"), keep="\n\t")
    elif output is None:
        sys.stdout.buffer.write(body)
    sys.stdout.flush()


def take(
    node: Node | RemoteNode,
    is_json: bool,
    name: str,
    wait: float,
    no_ack: bool,
    wanted: str | None,
    output: Path | None,
) -> int:
    """Lease the next message of a queue, write it out and settle it; answers its position."""
    found = node.receive(name, 1, wait=wait, filter=wanted)
    if not found:
        steps = f"`wsrm-mq queue stats {quote(name)}` counts what is held and leased."
        raise NotFound(f"Nothing is ready in {name}: {steps}")
    (one,) = found
    facts = {name: getattr(one, name) for name in ("position", "message_id", "type", "topic", "content_type")}
    facts |= {name: getattr(one, name) for name in ("properties", "priority", "deliveries")}
    give(is_json, one.body, {**facts, "acknowledged": not no_ack}, output)
    if no_ack:
        one.release()
    else:
        one.ack()
    say(f"{one.message_id} at position {one.position} is {'given back' if no_ack else 'acknowledged'}.")
    return one.position


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


pattern_argument: Final = click.argument("pattern")


@click.command()
@over_network("declare")
@in_store
@name_argument
@click.argument("options", nargs=-1, metavar="[OPTION=VALUE]...", callback=values_of)
@tried
def declare(place: Place, name: str, options: dict[str, Any], care: Care) -> None:
    """Make a queue, or change the policy of one.

    Options that are not named stay; `queue show` has all of them. A value is JSON, or a text.

    \b
    Example: wsrm-mq queue declare orders max_failures=5 ttl=3600
             wsrm-mq queue declare orders ttl=null --dry-run
    """
    from wsrm_mq.queue import declaring, policies

    def verb(tx: transaction.Transaction) -> tuple[bool, declaring.Declared]:
        before = tx.queue_row(name)
        return before is None, declaring.declare(tx, name, options, actor=care.actor)

    is_new, made = done(place, care, verb)
    tell_declared(place.is_json, name, is_new, policies.as_values(made.policy), care.dry_run)


def tell_declared(is_json: bool, name: str, is_new: bool, policy: dict[str, Any], dry_run: bool = False) -> None:
    would = f"{'make' if is_new else 'declare'} the queue {name}"
    did = f"{name} is {'made' if is_new else 'declared'}."
    changed(is_json, dry_run, would, did, queue=name, made=is_new, policy=policy)


@click.command()
@over_network("bind")
@in_store
@name_argument
@pattern_argument
@filter_option
@tried
def bind(place: Place, name: str, pattern: str, wanted: str | None, care: Care) -> None:
    """Lead what is published to topics into a queue.

    In PATTERN * is one level of a topic, and # at its end all that follows.

    \b
    Example: wsrm-mq queue bind audit "orders/#"
             wsrm-mq queue bind large orders/placed --filter "amount > 1000"
    """
    from wsrm_mq.queue import topics

    def verb(tx: transaction.Transaction) -> None:
        topics.bind(tx, pattern, _bindable(tx, name), wanted, actor=care.actor)

    done(place, care, verb)
    tell_bound(place.is_json, name, pattern, wanted, care.dry_run)


def tell_bound(is_json: bool, name: str, pattern: str, wanted: str | None, dry_run: bool = False) -> None:
    would, did = f"lead {pattern} into {name}", f"{pattern} leads into {name}."
    changed(is_json, dry_run, would, did, queue=name, pattern=pattern, filter=wanted)


@click.command()
@over_network("unbind")
@in_store
@name_argument
@pattern_argument
@tried
def unbind(place: Place, name: str, pattern: str, care: Care) -> None:
    """Lead nothing of a pattern into a queue any more.

    What is there stays. Bindings with filters go too.

    \b
    Example: wsrm-mq queue unbind audit "orders/#"
    """
    from wsrm_mq.queue import topics

    def verb(tx: transaction.Transaction) -> int:
        count = topics.unbind(tx, pattern, _bindable(tx, name), actor=care.actor)
        if not count:
            raise NotFound(f"Nothing of the pattern {pattern} leads into {name}: `wsrm-mq topic list` has what does.")
        return count

    tell_unbound(place.is_json, name, pattern, done(place, care, verb), care.dry_run)


def tell_unbound(is_json: bool, name: str, pattern: str, count: int, dry_run: bool = False) -> None:
    told = f"{counted(count, 'binding')} of {pattern} to {name}"
    would, did = f"take away {told}", f"Taken away: {told}."
    changed(is_json, dry_run, would, did, queue=name, pattern=pattern, bindings=count)


def _bindable(tx: transaction.Transaction, name: str) -> declaring.Declared:
    """The queue. Raises ``NotAllowed`` for a durable subscription's, which is bound by that."""
    found = consumed(tx.db, name)
    if found.kind == "subscription":
        steps = f"`wsrm-mq subscription drop {quote(name)}` ends it."
        raise NotAllowed(f"{name} collects for a durable subscription, by the pattern that its client names: {steps}")
    return found


def clear(
    place: Place,
    care: Care,
    name: str,
    event: str,
    text: str,
    first: Callable[[transaction.Transaction, declaring.Declared], clearing.Part],
    rest: Callable[[int, transaction.Transaction], clearing.Part],
    bounds: tuple[int, int] | None = None,
) -> None:
    """Clear a queue, in its ``first`` transaction and the ``rest`` of them, between which others write; ``None``: all
    of it, also what is leased."""
    from wsrm_mq.queue import clearing

    why = care.why()

    def begin(tx: transaction.Transaction) -> clearing.Part:
        found = consumed(tx.db, name)
        if not found.is_declared:
            steps = "`wsrm-mq dead-letter discard QUERY` gives dead letters up."
            raise NotAllowed(f"{name} is a queue of the store's own: {steps}")
        with _by_command(name):
            part = first(tx, found)
        tx.add_ledger(event, found.key, **why)
        return part

    def would(tx: transaction.Transaction) -> clearing.Cleared:
        count, leased = clearing.tally(tx, consumed(tx.db, name), *(bounds or ()))
        begin(tx)  # it may be refused
        return clearing.Cleared(count + leased) if bounds is None else clearing.Cleared(count, leased)

    def says(cleared: clearing.Cleared) -> str:
        left = f"; {counted(cleared.skipped, 'message')} that consumers have leased stay" if cleared.skipped else ""
        return f"{text} {name}: {counted(cleared.settled, 'message')} given up{left}"

    cleared = committed(place, care, would, says, lambda: clearing.in_parts(place.run, begin, rest))
    tell_cleared(place.is_json, name, cleared, care.dry_run)


def tell_cleared(is_json: bool, name: str, cleared: clearing.Cleared, dry_run: bool = False) -> None:
    result(is_json, {"queue": name, "purged": cleared.settled, "skipped": cleared.skipped, "dry_run": dry_run})


@contextmanager
def _by_command(name: str) -> Iterator[None]:
    """Within it an error says the options of the command."""
    try:
        yield
    except KeeperGone as error:
        raise KeeperGone(error.args[0], "Have a program delete it, `node.delete`; --force loses them.") from None
    except QueueBusy as error:
        told = str(error).replace("`force=True`", "--force")
        told = told.replace("`if_empty`", "--if-empty").replace("`if_unused`", "--if-unused")
        raise QueueBusy(told.replace("Purge it", f"Purge it: `wsrm-mq queue purge {quote(name)}`")) from None


@click.command()
@over_network("purge")
@in_store
@acting
@name_argument
@click.option("--from", "lower", metavar="POSITION", type=BEHIND, default=0, help="Only from this position on.")
@click.option("--to", "upper", metavar="POSITION", type=POSITION, help="Only up to this position.")
def purge(place: Place, care: Care, name: str, lower: int, upper: int | None) -> None:
    """Give up what a queue has.

    What consumers have leased stays. There is no way back.

    \b
    Example: wsrm-mq queue purge orders --to 42 --reason "test data"
    """
    from wsrm_mq.queue import browsing, clearing

    with place.looking() as db:
        newest = browsing.last_unsettled(db, consumed(db, name))
    to = newest if upper is None else min(upper, newest)
    part = partial(clearing.purge, name=name, upper=to)
    clear(place, care, name, "queue_purged", "purge", lambda tx, _found: part(lower, tx), part, (lower, to))


@click.command()
@over_network("delete")
@in_store
@acting
@name_argument
@click.option("--if-empty", is_flag=True, help="Only where it has no message.")
@click.option("--if-unused", is_flag=True, help="Only where no program that lives has subscribed to it.")
@click.option("--force", is_flag=True, help="Also where consumers have leased something of it.")
def delete(place: Place, care: Care, name: str, if_empty: bool, if_unused: bool, force: bool) -> None:
    """Delete a queue; what it has is given up. There is no way back.

    \b
    Example: wsrm-mq queue delete orders --if-empty --reason "moved"
    """
    from wsrm_mq.queue import clearing, express, topics

    def first(tx: transaction.Transaction, found: declaring.Declared) -> clearing.Part:
        if if_unused and not force:
            topics.refuse_used(tx, found.name)
        return express.delete(tx, found, if_empty=if_empty, force=force)

    clear(place, care, name, "queue_deleted", "delete", first, clearing.purge_deleted)
