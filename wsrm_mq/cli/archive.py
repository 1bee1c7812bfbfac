"""``wsrm-mq archive``: archives are looked at, compared, confirmed; ``wsrm-mq pipeline archive`` makes them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

import click

from wsrm_mq.cli.acts import Care, acting, actor_option, ask, login, reason_given, signed
from wsrm_mq.cli.output import Column, Exit, as_json, fields, key, listing, rows_of, say, when
from wsrm_mq.cli.place import (
    Place,
    directory_argument,
    in_store,
    json_option,
    looking,
    manifest_argument,
    now_ms,
)
from wsrm_mq.errors import StoreError
from wsrm_mq.views.words import counted

SHOWN: Final = 20
"""The most differences that are shown."""


@click.group()
def archive() -> None:
    """Compare archives with their stores, let retention delete what they hold, and have them forget."""


@archive.command("list")
@in_store
def list_(place: Place) -> None:
    """Show the archives that hold what the store has.

    Only archives that were confirmed are shown.

    \b
    Example: wsrm-mq archive list
    """
    from wsrm_mq.views.rows import archives

    with looking(place) as db:
        found = archives(db)
    columns = (key("archive"), Column("manifest", of="number"), when("read", "read_at"))
    more = (when("confirmed", "confirmed_at"), Column("by", of="actor"), "positions", Column("place", None))
    listing(place.is_json, "archives", found, (*columns, *more))


@archive.command()
@json_option
@directory_argument
def show(is_json: bool, directory: Path) -> None:
    """Show what an archive holds, and what was done to it.

    \b
    Example: wsrm-mq archive show /archive/4f1c
    """
    from wsrm_mq.archive.files import HELD, load

    known = load(directory)
    rows = {name: sum(one.rows for one in known.segments if one.table == name) for name in HELD}
    if is_json:
        as_json(**known.as_dict())
        return
    fields(
        [
            *(("archive", known.archive), ("store", known.store), ("node", known.node), ("manifest", known.number)),
            *rows.items(),
            ("bytes", sum(one.bytes for one in known.segments)),
            ("not compared", f"{len(known.unverified)} of {len(known.segments)} files"),
        ]
    )
    columns = (Column("manifest", of="number"), "act", when("at"), Column("by", of="actor"))
    rows_of((*columns, Column("rows", of=lambda one: sum(one.rows.values())), "reason"), known.records)


@archive.command()
@in_store
@directory_argument
@click.option("--all", "whole", is_flag=True, help="Compare what was compared before, too.")
@click.option("--no-confirm", is_flag=True, help="Do not tell the store.")
@actor_option
@click.pass_context
def verify(
    context: click.Context,
    place: Place,
    directory: Path,
    whole: bool,
    no_confirm: bool,
    actor: str | None,
) -> None:
    """Compare an archive with its store.

    What was not compared before is compared, with --all every file, and every row that the store still has. Exit status
    1 if something differs; else the store is told what the archive holds.

    \b
    Example: wsrm-mq archive verify /archive/4f1c --store /var/lib/orders/wsrm.db
    """
    _check_parquet()
    from wsrm_mq.archive.batches import verified
    from wsrm_mq.archive.files import load, locked
    from wsrm_mq.export.pieces import opened

    load(directory)
    with locked(directory), opened(place.path) as db:
        known = load(directory)
        skipped = 0 if whole else len(known.segments) - len(known.unverified)
        known, wrong = verified(directory, known, db, now_ms(), whole=whole)
    is_confirmed = not (wrong or no_confirm) and tell_store(place.path, directory, actor or login())
    found = [one._asdict() for one in wrong]
    if place.is_json:
        told = {"differences": found, "confirmed": is_confirmed, "not_read": skipped}
        as_json(archive=known.archive, manifest=known.number, **told)
    elif wrong:
        rows_of((Column("difference", of="kind"), "table", Column("of", None, of="what")), wrong[:SHOWN])
    if wrong:
        differs = counted(len(wrong), "difference", "differences")
        say(f"{directory}: {differs} from {place.path}. Nothing was confirmed.")
        context.exit(Exit.FAILED)
    say(f"{directory}: has what {place.path} has.")
    if skipped:
        files = counted(skipped, "file was", "files were")
        say(f"{files} compared before and not read again, but for their length: --all reads every file.")


def tell_store(store: Path, directory: Path, actor: str) -> bool:
    """Confirm the archive in the store; says what to do where that cannot be written."""
    from wsrm_mq.archive.batches import held_by
    from wsrm_mq.queue import archiving
    from wsrm_mq.store.outside import run_once

    held = held_by(directory)
    try:
        run_once(store, lambda tx: archiving.confirm(tx, held, actor=actor))
    except StoreError as error:
        say(f"{store}: is not told what the archive holds: {error}")
        say(f"Where it can be written: wsrm-mq archive confirm {shlex.quote(held.place)}/manifest.json")
        return False
    return True


@archive.command()
@json_option
@directory_argument
@click.option("--message-id", metavar="ID", help="The message with this wsa:MessageID, wherever it was replayed to.")
@click.option("--partner", metavar="NAME", help="All sequences of this partner, with their messages.")
@acting
def forget(
    is_json: bool,
    directory: Path,
    message_id: str | None,
    partner: str | None,
    care: Care,
) -> None:
    """Take messages out of an archive for good.

    A law or a contract may demand that. The manifest keeps who did it, when, why, and how many. They are not archived
    again while the store still has them; the store itself deletes them when their retain is over.

    \b
    Example: wsrm-mq archive forget /archive/4f1c --partner acme --reason law
    """
    _check_parquet()
    from wsrm_mq.archive.batches import doomed
    from wsrm_mq.archive.batches import forget as forget_them
    from wsrm_mq.archive.files import load, locked

    if (message_id is None) == (partner is None):
        raise click.UsageError("say what: --message-id ID, or --partner NAME.")
    why = care.why()
    load(directory)
    with locked(directory):
        known = load(directory)
        found = doomed(directory, known, message_id=message_id, partner=partner)
        what = (
            f"{counted(found.positions.count(), 'message', 'messages')} and "
            f"{counted(found.sequences.count(), 'sequence', 'sequences')}"
        )
        if care.dry_run:
            say(f"This would take {what} out of {directory}. Nothing was changed.")
            rows: dict[str, int] = {}
        else:
            ask(f"This takes {what} out of {directory} for good.", care.yes)
            known, rewritten = forget_them(directory, known, found, **why, now=now_ms())
            rows = rewritten.rows
            say(f"Forgotten: {what}. {counted(len(rewritten.before), 'file', 'files')} written anew.")
    if is_json:
        as_json(archive=known.archive, manifest=known.number, rows=rows, dry_run=care.dry_run)


@archive.command()
@in_store
@manifest_argument
@actor_option
def confirm(place: Place, manifest: Path, actor: str | None) -> None:
    """Let retention delete what an archive holds. MANIFEST is its directory, or its manifest copied to this machine.

    The archive has to be verified. Where `retain_until_archived` is set, messages are kept until this is done.

    \b
    Example: wsrm-mq archive confirm /archive/4f1c/manifest.json
    """
    from wsrm_mq.archive.batches import held_by
    from wsrm_mq.queue import archiving

    with looking(place):
        pass
    held = held_by(manifest)
    place.run(lambda tx: archiving.confirm(tx, held, actor=actor or login()))
    if place.is_json:
        as_json(archive=held.archive, manifest=held.number, place=held.place)
    say(f"{place.path}: what manifest {held.number} of {held.place} holds may be deleted when its retain is over.")


@archive.command()
@in_store
@click.argument("named", metavar="ARCHIVE")
@signed
def withdraw(place: Place, named: str, actor: str | None, reason: str | None) -> None:
    """Say that an archive is lost. ARCHIVE is the beginning of its id, or the place that it was confirmed at.

    What it alone held counts as not archived any more.

    \b
    Example: wsrm-mq archive withdraw 4f1c --reason "its disk is dead"
    """
    from wsrm_mq.export.manifest import on_this_machine
    from wsrm_mq.queue import archiving
    from wsrm_mq.views.rows import find_archive

    named = on_this_machine(named)
    why = reason_given(reason)
    with looking(place) as db:
        found = find_archive(db, named)
    place.run(lambda tx: archiving.withdraw(tx, found.archive, actor=actor or login(), reason=why))
    if place.is_json:
        as_json(archive=found.archive)
    say(f"{place.path}: archive {found.archive} does not count any more.")


def _check_parquet() -> None:
    from wsrm_mq.export.formats import format_named

    format_named("parquet")  # says which extra has it
