"""``wsrm-mq store``: make one, bring it up to date, measure it, verify it. What keeps it in order is in ``upkeep``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from wsrm_mq.cli.acts import ask, login, reason_given, signed
from wsrm_mq.cli.columns import Column, key, when
from wsrm_mq.cli.exits import Exit
from wsrm_mq.cli.export import export_store
from wsrm_mq.cli.output import as_json, fields, say, table
from wsrm_mq.cli.place import Place, in_store, looking, now_ms, one_look, unconfirmed
from wsrm_mq.cli.upkeep import adopt, application, backup, prune, rehearse_on, vacuum
from wsrm_mq.views.words import counted, moment, span

if TYPE_CHECKING:
    from wsrm_mq.store.port import Database


@click.group()
def store() -> None:
    """Make, migrate, measure and verify a store; prune it, copy it, go on with a copy."""


for _command in (prune, backup, vacuum, rehearse_on, adopt, application, export_store):
    store.add_command(_command)


_LOST = """\
A store was in use here, and is lost: there is no file, or an empty one. A new one knows nothing of what that one has
acknowledged. Of it, what the service had not taken is lost: its senders will not send it again by themselves. Their
open sequences are unknown here (UnknownSequence). Tell the partners, and compare with the service's own database."""


@store.command()
@in_store
@click.option("--yes", is_flag=True, help="Do not ask.")
@signed
def init(place: Place, yes: bool, actor: str | None, reason: str | None) -> None:
    """Make a store. One that is there is only brought to the schema of this version. Where one was in use and is lost,
    this makes an empty one in its place; that needs --reason.

    \b
    Example: wsrm-mq store init --store /var/lib/orders/wsrm.db
    """
    from wsrm_mq.errors import StoreUnconfirmed
    from wsrm_mq.store.sqlite import schema
    from wsrm_mq.store.store import run_once

    is_new = not place.path.exists()
    try:
        schema.ensure(place.path)
    except StoreUnconfirmed:  # one is lost
        why, who = reason_given(reason), actor or login()
        say(_LOST, keep="\n")
        ask("", yes)
        schema.ensure(place.path, anew=True)
        run_once(place.path, lambda tx: tx.ledger("begun_anew", reason=why, actor=who))
    if place.is_json:
        as_json(path=str(place.path), made=is_new, schema=schema.HEAD)
        return
    say(f"{place.path}: {'made' if is_new else 'is there already'}, schema {schema.HEAD}.")


@store.command()
@in_store
@click.option("--dry-run", is_flag=True, help="Say what would happen, change nothing.")
def migrate(place: Place, dry_run: bool) -> None:
    """Bring a store to the schema of this version. There is no way back: copy the file first, the service stopped.

    \b
    Example: wsrm-mq store migrate --dry-run
    """
    from wsrm_mq.store.sqlite import schema

    with looking(place, any_known=True) as db:  # a store that is not there is an error, not a new one
        before = schema.revision(db, place.path)
    if not dry_run:
        before, _after = schema.migrate(place.path)
    if place.is_json:
        as_json(path=str(place.path), before=before, after=schema.HEAD, dry_run=dry_run)
    elif before == schema.HEAD:
        say(f"{place.path}: has schema {schema.HEAD} already.")
    else:
        verb = "would go" if dry_run else "went"
        say(f"{place.path}: {verb} from schema {before or 'none'} to {schema.HEAD}.")


@store.command()
@in_store
def info(place: Place) -> None:
    """Show size, schema, what is in it, and which processes use it.

    \b
    Example: wsrm-mq store info --store /backup/wsrm-monday.db
    """

    now = now_ms()
    with one_look(place) as db:
        found = _measured(db, place)
    if place.is_json:
        as_json(**found)
        return
    oldest = found["oldest_undelivered"]
    fields(
        [
            ("path", found["path"]),
            ("schema", found["schema"]),
            ("copied", f"{moment(found['copied_at'])}, and not adopted" if found["copied_at"] else "no"),
            *([("not served", f"it {found['unconfirmed']}")] if found["unconfirmed"] else []),
            ("size", f"{found['size']} bytes"),
            ("reclaimable", f"{found['reclaimable']} bytes, used again by what comes next"),
            ("write-ahead log", f"{found['wal_size']} bytes"),
            ("queues", found["queues"]),
            *((f"sequences {state}", count) for state, count in found["sequences"].items()),
            *((f"messages {outcome}", count) for outcome, count in found["messages"].items()),
            ("messages pruned", found["pruned"]),
            (
                "oldest undelivered",
                f"position {oldest['position']}, received {moment(oldest['received_at'])} "
                f"({span(now - oldest['received_at'])} ago)"
                if oldest
                else "none",
            ),
            ("live processes", len(found["instances"])),
        ]
    )
    if found["instances"]:
        table(
            (key("instance"), "host", "process", when("since")),
            [(one["name"], one["host"], one["pid"], one["started_at"]) for one in found["instances"]],
        )


def _measured(db: Database, place: Place) -> dict[str, Any]:
    from wsrm_mq.store.driver import log_bytes, revision, space
    from wsrm_mq.store.identity import identify
    from wsrm_mq.views.contents import contents
    from wsrm_mq.views.instances import live_instances

    found = contents(db)
    oldest = found.oldest_undelivered
    return {
        "path": str(place.path),
        "schema": revision(db, place.path),
        "copied_at": identify(db).copied_at,
        "unconfirmed": unconfirmed(place, db),
        "size": place.path.stat().st_size,
        "reclaimable": space(db).reclaimable,
        "wal_size": log_bytes(place.path),
        **found._asdict(),
        "oldest_undelivered": oldest._asdict() if oldest is not None else None,
        "instances": [one._asdict() for one in live_instances(db)],
    }


@store.command()
@in_store
@click.pass_context
def verify(context: click.Context, place: Place) -> None:
    """Check that the file is whole and agrees with itself. The service may go on meanwhile; the whole file is
    read.

    \b
    Example: wsrm-mq store verify --store /backup/wsrm-monday.db
    """
    from wsrm_mq.store.invariants import INVARIANTS, all_findings

    with looking(place) as db:
        found, doubt = list(all_findings(db)), unconfirmed(place, db)
    if place.is_json:
        as_json(path=str(place.path), findings=[one._asdict() for one in found], unconfirmed=doubt)
    elif found:
        table(("broken", "table", "key", Column("detail", None)), found)
    if found:
        say(
            f"{place.path}: {counted(len(found), 'finding')}. "
            "Keep a copy of the file as it is before you change anything."
        )
        context.exit(Exit.FAILED)
    say(f"{place.path}: nothing is wrong ({len(INVARIANTS)} invariants).")
    if doubt is not None:
        say(f"No service starts on it: it {doubt}")
