"""``wsrm-mq queue declare``, ``bind``, ``unbind``, ``purge`` and ``delete``: each leaves a line in the ledger."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from wsrm_mq.cli.acts import Care, acting, actor_option, carry_out, changed, dry_run_option, login, will
from wsrm_mq.cli.network import over_network
from wsrm_mq.cli.output import result
from wsrm_mq.cli.place import BEHIND, POSITION, Place, in_store, looking
from wsrm_mq.cli.queue_common import consumed, filter_option, name_argument, values_of
from wsrm_mq.errors import KeeperGone, NotAllowed, NotFound, QueueBusy
from wsrm_mq.views.words import counted

if TYPE_CHECKING:
    from wsrm_mq.queue.clearing import Cleared
    from wsrm_mq.queue.declaring import Declared
    from wsrm_mq.store.transaction import Transaction

R = TypeVar("R")


pattern_argument: Final = click.argument("pattern")


@click.command()
@over_network("declare")
@in_store
@name_argument
@click.argument("options", nargs=-1, metavar="[OPTION=VALUE]...", callback=values_of)
@dry_run_option
@actor_option
def declare(place: Place, name: str, options: dict[str, Any], dry_run: bool, actor: str | None) -> None:
    """Make a queue, or change the policy of one.

    Options that are not named stay; `queue show` has all of them. A value is JSON, or a text.

    \b
    Example: wsrm-mq queue declare orders max_failures=5 ttl=3600
             wsrm-mq queue declare orders ttl=null --dry-run
    """
    from wsrm_mq.queue import declaring
    from wsrm_mq.queue.policies import as_values

    def verb(tx: Transaction) -> tuple[bool, Declared]:
        before = tx.queue_row(name)
        made = declaring.declare(tx, name, options)
        if before is None or made.stored_policy != before[-1]:
            tx.add_ledger("queue_declared", made.key, actor=actor or login(), reason=json.dumps(options))
        return before is None, made

    is_new, made = done(place, verb, dry_run)
    tell_declared(place.is_json, name, is_new, as_values(made.policy), dry_run)


def tell_declared(is_json: bool, name: str, is_new: bool, policy: dict[str, Any], dry_run: bool = False) -> None:
    would = f"{'make' if is_new else 'declare'} the queue {name}"
    did = f"{name} is {'made' if is_new else 'declared'}."
    changed(is_json, dry_run, would, did, queue=name, made=is_new, policy=policy)


def done(place: Place, verb: Callable[[Transaction], R], dry_run: bool) -> R:
    with looking(place):  # one that is no store, or an older one, is told as every command tells it
        pass
    return place.run(verb, dry_run=dry_run)


@click.command()
@over_network("bind")
@in_store
@name_argument
@pattern_argument
@filter_option
@dry_run_option
@actor_option
def bind(place: Place, name: str, pattern: str, wanted: str | None, dry_run: bool, actor: str | None) -> None:
    """Lead what is published to topics into a queue.

    In PATTERN * is one level of a topic, and # at its end all that follows.

    \b
    Example: wsrm-mq queue bind audit "orders/#"
             wsrm-mq queue bind large orders/placed --filter "amount > 1000"
    """
    from wsrm_mq.queue import topics

    def verb(tx: Transaction) -> None:
        found = _bindable(tx, name)
        topics.bind(tx, pattern, found, wanted)
        told = pattern if wanted is None else f"{pattern}, {wanted}"
        tx.add_ledger("bound", found.key, actor=actor or login(), reason=told)

    done(place, verb, dry_run)
    tell_bound(place.is_json, name, pattern, wanted, dry_run)


def tell_bound(is_json: bool, name: str, pattern: str, wanted: str | None, dry_run: bool = False) -> None:
    would, did = f"lead {pattern} into {name}", f"{pattern} leads into {name}."
    changed(is_json, dry_run, would, did, queue=name, pattern=pattern, filter=wanted)


@click.command()
@over_network("unbind")
@in_store
@name_argument
@pattern_argument
@dry_run_option
@actor_option
def unbind(place: Place, name: str, pattern: str, dry_run: bool, actor: str | None) -> None:
    """Lead nothing of a pattern into a queue any more.

    What is there stays. Bindings with filters go too.

    \b
    Example: wsrm-mq queue unbind audit "orders/#"
    """
    from wsrm_mq.queue import topics

    def verb(tx: Transaction) -> int:
        found = _bindable(tx, name)
        count = topics.unbind(tx, pattern, found)
        if not count:
            raise NotFound(f"Nothing of the pattern {pattern} leads into {name}: `wsrm-mq topic list` has what does.")
        tx.add_ledger("unbound", found.key, actor=actor or login(), reason=pattern)
        return count

    tell_unbound(place.is_json, name, pattern, done(place, verb, dry_run), dry_run)


def tell_unbound(is_json: bool, name: str, pattern: str, count: int, dry_run: bool = False) -> None:
    told = f"{counted(count, 'binding')} of {pattern} to {name}"
    would, did = f"take away {told}", f"Taken away: {told}."
    changed(is_json, dry_run, would, did, queue=name, pattern=pattern, bindings=count)


def _bindable(tx: Transaction, name: str) -> Declared:
    """The queue. Raises ``NotAllowed`` for a durable subscription's, which is bound by that."""
    found = consumed(tx.db, name)
    if found.kind == "subscription":
        steps = f"`wsrm-mq subscription drop {quote(name)}` ends it."
        raise NotAllowed(f"{name} collects for a durable subscription, by the pattern that its client names: {steps}")
    return found


class Clear(NamedTuple):
    """A way to clear a queue. ``last``: its last transaction, which does what is left; much is given up in parts ahead
    of it, between which others write, where ``check`` has raised nothing. ``takes_leased``: leases keep nothing."""

    event: str
    text: str
    reason: str
    last: Callable[[Transaction, Declared], Cleared]
    check: Callable[[Transaction, Declared], None] = lambda _tx, _found: None
    takes_leased: bool = False


def clear(place: Place, care: Care, name: str, how: Clear, lower: int = 0, upper: int | None = None) -> None:
    from wsrm_mq.queue import browsing, clearing

    why = care.why()

    def checked(tx: Transaction) -> tuple[Declared, Cleared]:
        found = consumed(tx.db, name)
        if not found.is_declared:
            steps = "`wsrm-mq dead-letter discard QUERY` gives dead letters up."
            raise NotAllowed(f"{name} is a queue of the store's own: {steps}")
        with _by_command(name):
            how.check(tx, found)
        count, leased = clearing.tally(tx, found, lower, upper)
        return found, clearing.Cleared(count + leased) if how.takes_leased else clearing.Cleared(count, leased)

    def last(tx: Transaction) -> Cleared:
        found, _count = checked(tx)
        with _by_command(name):
            cleared = how.last(tx, found)
        tx.add_ledger(how.event, found.key, **why)
        return cleared

    def do(is_dry: bool) -> Cleared:
        found, count = place.run(checked, dry_run=True)
        if is_dry:
            return count
        given_up = 0
        if count.settled > clearing.PIECE:
            with looking(place) as db:
                newest = browsing.last_unsettled(db, found)
            to = newest if upper is None else min(upper, newest)
            part = partial(clearing.purge_part, name=name, upper=to, reason=how.reason)
            given_up = clearing.in_parts(place.run, part, lower).settled
        rest = place.run(last)
        return rest._replace(settled=given_up + rest.settled)

    def tell(cleared: Any) -> None:
        left = f"; {counted(cleared.skipped, 'message')} that consumers have leased stay" if cleared.skipped else ""
        will(f"{how.text} {name}: {counted(cleared.settled, 'message')} given up{left}", care.dry_run)

    with looking(place):
        pass
    done = carry_out(place, care, do, tell)
    result(place.is_json, {"queue": name, "purged": done.settled, "skipped": done.skipped, "dry_run": care.dry_run})


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
    from wsrm_mq.queue import clearing

    def rest(tx: Transaction, found: Declared) -> Cleared:
        return clearing.purge(tx, found, lower, upper)

    clear(place, care, name, Clear("queue_purged", "purge", "purged", rest), lower, upper)


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

    def check(tx: Transaction, found: Declared) -> None:
        if not force:
            clearing.refuse_busy(tx, found, if_empty=if_empty)
            express.refuse_kept(tx, found)
            if if_unused:
                topics.refuse_used(tx, found.name)

    def rest(tx: Transaction, found: Declared) -> Cleared:
        return express.delete(tx, found, if_empty=if_empty, force=force)

    clear(place, care, name, Clear("queue_deleted", "delete", "queue_deleted", rest, check, takes_leased=force))
