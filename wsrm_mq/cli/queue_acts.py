"""``wsrm-mq queue declare``, ``purge`` and ``delete``: each leaves a line in the ledger."""

from __future__ import annotations

import json
from collections.abc import Callable
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from wsrm_mq.cli.acts import Care, acting, actor_option, carry_out, login, will
from wsrm_mq.cli.output import as_json, result, say
from wsrm_mq.cli.place import BEHIND, POSITION, Place, in_store, looking
from wsrm_mq.cli.queue_common import consumed, name_argument, values_of
from wsrm_mq.errors import NotAllowed, QueueBusy
from wsrm_mq.views.words import counted

if TYPE_CHECKING:
    from wsrm_mq.queue.declaring import Declared
    from wsrm_mq.store.transaction import Transaction


@click.command()
@in_store
@name_argument
@click.argument("options", nargs=-1, metavar="[OPTION=VALUE]...", callback=values_of)
@click.option("--dry-run", is_flag=True, help="Say what would happen, change nothing.")
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
    from wsrm_mq.store.store import run_once

    def verb(tx: Transaction) -> tuple[bool, Declared]:
        before = tx.queue_row(name)
        made = declaring.declare(tx, name, options)
        if before is None or made.stored_policy != before[-1]:
            tx.add_ledger("queue_declared", made.key, actor=actor or login(), reason=json.dumps(options))
        return before is None, made

    with looking(place):
        pass
    is_new, made = run_once(place.path, verb, dry_run=dry_run)
    if dry_run:
        will(f"{'make' if is_new else 'declare'} the queue {name}", dry_run)
    else:
        say(f"{name} is {'made' if is_new else 'declared'}.")
    if place.is_json:
        as_json(queue=name, made=is_new, policy=as_values(made.policy), dry_run=dry_run)


def _clear(place: Place, care: Care, name: str, event: str, text: str, verb: Callable[..., Any]) -> None:
    from wsrm_mq.store.store import run_once

    why = care.why()

    def act(tx: Transaction) -> Any:
        found = consumed(place, tx.db, name)
        if not found.is_declared:
            steps = place.told("`wsrm-mq dead-letter discard QUERY` gives dead letters up.")
            raise NotAllowed(f"{name} is a queue of the store's own: {steps}")
        try:
            cleared = verb(tx, found)
        except QueueBusy as error:
            told = str(error).replace("`force=True`", "--force").replace("`if_empty`", "--if-empty")
            purge_it = place.told(f"Purge it: `wsrm-mq queue purge {quote(name)}`")
            raise QueueBusy(told.replace("Purge it", purge_it)) from None
        tx.add_ledger(event, found.key, **why)
        return cleared

    def tell(cleared: Any) -> None:
        left = f"; {counted(cleared.skipped, 'message')} that consumers have leased stay" if cleared.skipped else ""
        will(f"{text} {name}: {counted(cleared.settled, 'message')} given up{left}", care.dry_run)

    with looking(place):
        pass
    done = carry_out(place, care, lambda is_dry: run_once(place.path, act, dry_run=is_dry), tell)
    result(place.is_json, {"queue": name, "purged": done.settled, "skipped": done.skipped, "dry_run": care.dry_run})


@click.command()
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

    _clear(place, care, name, "queue_purged", "purge", lambda tx, found: clearing.purge(tx, found, lower, upper))


@click.command()
@in_store
@acting
@name_argument
@click.option("--if-empty", is_flag=True, help="Only where it has no message.")
@click.option("--force", is_flag=True, help="Also where consumers have leased something of it.")
def delete(place: Place, care: Care, name: str, if_empty: bool, force: bool) -> None:
    """Delete a queue; what it has is given up. There is no way back.

    \b
    Example: wsrm-mq queue delete orders --if-empty --reason "moved"
    """
    from wsrm_mq.queue import clearing

    def verb(tx: Transaction, found: Declared) -> Any:
        return clearing.delete(tx, found, if_empty=if_empty, force=force)

    _clear(place, care, name, "queue_deleted", "delete", verb)
