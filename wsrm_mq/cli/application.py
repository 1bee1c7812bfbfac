"""``wsrm-mq store application``: whose messages a store has."""

from __future__ import annotations

import click

from wsrm_mq.cli.acts import PLACEHOLDERS, careful, carry_out, login, reason_given, signed, will
from wsrm_mq.cli.output import as_json, say
from wsrm_mq.cli.place import Place, in_store, json_option


@click.command()
@in_store
@json_option
@careful
@signed
@click.argument("old")
@click.argument("new")
def application(
    place: Place,
    is_json: bool,
    dry_run: bool,
    yes: bool,
    actor: str | None,
    reason: str | None,
    old: str,
    new: str,
) -> None:
    """Deliver to the application NEW what was stored for OLD.

    `none` is one without a name. `status` shows what waits for an application that no process serves.

    \b
    Example: wsrm-mq store application orders:app shop.orders:app --reason "moved"
    """
    from wsrm_mq.queue.applications import rename
    from wsrm_mq.store.store import run_once
    from wsrm_mq.store.transaction import Transaction

    why = reason_given(reason, dry_run)
    if new in PLACEHOLDERS or old in PLACEHOLDERS:
        raise click.UsageError(f"{old} {new}: OLD and NEW stand for the two names; `none` is one without a name.")

    def verb(tx: Transaction) -> int:
        return rename(tx, _name(old), _name(new), why, actor or login())

    def do(is_dry: bool) -> int:
        return run_once(place.path, verb, dry_run=is_dry)

    def tell(count: int | None) -> None:
        will(f"give {new} the queues of {old}: {count}", dry_run)

    count = carry_out(place, do, tell, dry_run=dry_run, yes=yes)
    if not dry_run:
        say(f"{new} has the queues of {old}: {count}.")
    if is_json:
        as_json(old=old, new=new, queues=count, dry_run=dry_run)


def _name(word: str) -> str | None:
    return None if word == "none" else word
