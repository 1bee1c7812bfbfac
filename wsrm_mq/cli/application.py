"""``wsrm-mq store application``: whose messages a store has."""

from __future__ import annotations

import click

from wsrm_mq.cli.acts import PLACEHOLDERS, Care, acting, carry_out, will
from wsrm_mq.cli.output import as_json, say
from wsrm_mq.cli.place import Place, in_store


@click.command()
@in_store
@acting
@click.argument("old")
@click.argument("new")
def application(
    place: Place,
    care: Care,
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

    why = care.why()
    if new in PLACEHOLDERS or old in PLACEHOLDERS:
        raise click.UsageError(f"{old} {new}: OLD and NEW stand for the two names; `none` is one without a name.")

    def verb(tx: Transaction) -> int:
        return rename(tx, _name(old), _name(new), **why)

    def do(is_dry: bool) -> int:
        return run_once(place.path, verb, dry_run=is_dry)

    def tell(count: int | None) -> None:
        will(f"give {new} the queues of {old}: {count}", care.dry_run)

    count = carry_out(place, care, do, tell)
    if not care.dry_run:
        say(f"{new} has the queues of {old}: {count}.")
    if place.is_json:
        as_json(old=old, new=new, queues=count, dry_run=care.dry_run)


def _name(word: str) -> str | None:
    return None if word == "none" else word
