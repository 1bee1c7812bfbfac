"""``wsrm-mq archive``: archives are looked at, compared, confirmed; ``wsrm-mq pipeline archive`` makes them. ``wsrm-mq
store export`` and ``message export``: what the store holds, as files for other tools."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from wsrm_mq.cli.acts import Care, acting, ask, done, named, signed
from wsrm_mq.cli.output import Column, Exit, as_json, fields, key, say, table, when
from wsrm_mq.cli.place import (
    Asking,
    Place,
    directory_argument,
    in_store,
    json_option,
    manifest_argument,
    now_ms,
    query_argument,
    together,
)
from wsrm_mq.errors import StoreError
from wsrm_mq.views.words import counted

if TYPE_CHECKING:
    from wsrm_mq.export import manifest

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
    from wsrm_mq.views import rows

    with place.looking() as db:
        found = rows.archives(db)
    columns = (key("archive"), Column("manifest", of="number"), when("read", "read_at"))
    more = (when("confirmed", "confirmed_at"), Column("by", of="actor"), "positions", Column("place", None))
    place.listing("archives", found, (*columns, *more))


@archive.command()
@json_option
@directory_argument
def show(is_json: bool, directory: Path) -> None:
    """Show what an archive holds, and what was done to it.

    \b
    Example: wsrm-mq archive show /archive/4f1c
    """
    from wsrm_mq.archive import files

    known = files.load(directory)
    rows = {name: sum(one.rows for one in known.segments if one.table == name) for name in files.HELD}
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
    table((*columns, Column("rows", of=lambda one: sum(one.rows.values())), "reason"), known.records)


@archive.command()
@in_store
@directory_argument
@click.option("--all", "whole", is_flag=True, help="Compare what was compared before, too.")
@click.option("--no-confirm", is_flag=True, help="Do not tell the store.")
@named
def verify(place: Place, directory: Path, whole: bool, no_confirm: bool, care: Care) -> None:
    """Compare an archive with its store.

    What was not compared before is compared, with --all every file, and every row that the store still has. Exit status
    1 if something differs; else the store is told what the archive holds.

    \b
    Example: wsrm-mq archive verify /archive/4f1c --store /var/lib/orders/wsrm.db
    """
    from wsrm_mq.archive import batches, files
    from wsrm_mq.export import pieces

    _check_parquet()

    files.load(directory)
    with files.locked(directory), pieces.opened(place.path) as db:
        known = files.load(directory)
        skipped = 0 if whole else len(known.segments) - len(known.unverified)
        known, wrong = batches.verified(directory, known, db, now_ms(), whole=whole)
    is_confirmed = not (wrong or no_confirm) and tell_store(place.path, directory, care.actor)
    if place.is_json:
        told = {"differences": wrong, "confirmed": is_confirmed, "not_read": skipped}
        as_json(archive=known.archive, manifest=known.number, **told)
    elif wrong:
        table((Column("difference", of="kind"), "table", Column("of", None, of="what")), wrong[:SHOWN])
    if wrong:
        say(f"{directory}: {counted(len(wrong), 'difference')} from {place.path}. Nothing was confirmed.")
        raise click.exceptions.Exit(Exit.FAILED)
    say(f"{directory}: has what {place.path} has.")
    if skipped:
        left = counted(skipped, "file was", "files were")
        say(f"{left} compared before and not read again, but for their length: --all reads every file.")


def tell_store(store: Path, directory: Path, actor: str) -> bool:
    """Confirm the archive in the store; says what to do where that cannot be written."""
    from wsrm_mq.archive import batches
    from wsrm_mq.queue import archiving
    from wsrm_mq.store import outside

    held = batches.held_by(directory)
    try:
        outside.run_once(store, lambda tx: archiving.confirm(tx, held, actor=actor))
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
def forget(is_json: bool, directory: Path, message_id: str | None, partner: str | None, care: Care) -> None:
    """Take messages out of an archive for good.

    A law or a contract may demand that. The manifest keeps who did it, when, why, and how many. They are not archived
    again while the store still has them; the store itself deletes them when their retain is over.

    \b
    Example: wsrm-mq archive forget /archive/4f1c --partner acme --reason law
    """
    from wsrm_mq.archive import batches, files

    _check_parquet()

    if (message_id is None) == (partner is None):
        raise click.UsageError("say what: --message-id ID, or --partner NAME.")
    why = care.why()
    files.load(directory)
    with files.locked(directory):
        known = files.load(directory)
        found = batches.doomed(directory, known, message_id=message_id, partner=partner)
        what = f"{counted(found.positions.count(), 'message')} and {counted(found.sequences.count(), 'sequence')}"
        if care.dry_run:
            say(f"This would take {what} out of {directory}. Nothing was changed.")
            rows: dict[str, int] = {}
        else:
            ask(f"This takes {what} out of {directory} for good.", care.yes)
            known = batches.forget(directory, known, found, **why, now=now_ms())
            rows = known.records[-1].rows
            say(f"Forgotten: {what}. {counted(len(known.records[-1].before), 'file')} written anew.")
    if is_json:
        as_json(archive=known.archive, manifest=known.number, rows=rows, dry_run=care.dry_run)


@archive.command()
@in_store
@manifest_argument
@named
def confirm(place: Place, manifest: Path, care: Care) -> None:
    """Let retention delete what an archive holds. MANIFEST is its directory, or its manifest copied to this machine.

    The archive has to be verified. Where `retain_until_archived` is set, messages are kept until this is done.

    \b
    Example: wsrm-mq archive confirm /archive/4f1c/manifest.json
    """
    from wsrm_mq.archive import batches
    from wsrm_mq.queue import archiving

    held = batches.held_by(manifest)
    done(place, care, lambda tx: archiving.confirm(tx, held, actor=care.actor))
    if place.is_json:
        as_json(archive=held.archive, manifest=held.number, place=held.place)
    say(f"{place.path}: what manifest {held.number} of {held.place} holds may be deleted when its retain is over.")


@archive.command()
@in_store
@click.argument("named", metavar="ARCHIVE")
@signed
def withdraw(place: Place, named: str, care: Care) -> None:
    """Say that an archive is lost. ARCHIVE is the beginning of its id, or the place that it was confirmed at.

    What it alone held counts as not archived any more.

    \b
    Example: wsrm-mq archive withdraw 4f1c --reason "its disk is dead"
    """
    from wsrm_mq.export import manifest
    from wsrm_mq.queue import archiving
    from wsrm_mq.views import rows

    named = manifest.on_this_machine(named)
    why = care.why()
    with place.looking() as db:
        found = rows.find_archive(db, named)
    place.run(lambda tx: archiving.withdraw(tx, found.archive, **why))
    if place.is_json:
        as_json(archive=found.archive)
    say(f"{place.path}: archive {found.archive} does not count any more.")


def _check_parquet() -> None:
    from wsrm_mq.export import formats

    formats.format_named("parquet")  # says which extra has it


# As `export.schema` and `export.formats` have them, which `--help` need not import; a test compares.
TABLES: Final = (
    *("messages", "sequences", "ranges", "attempts", "ledger", "replies"),
    *("outgoing_sequences", "request_sequences", "queues", "bindings", "subscriptions", "clients", "instances"),
)
FORMATS: Final = ("ndjson", "csv", "zip", "parquet")

_exporting: Final = together(
    in_store,
    directory_argument,
    query_argument,
    click.option("--format", "encoding", type=click.Choice(FORMATS), default="ndjson", show_default=True),
    click.option("--for-spreadsheet", is_flag=True, help="In CSV: text that begins with = + - @ is no formula there."),
    click.option("--header", "headers", metavar="NAME", multiple=True, help="Give this request header too."),
    click.option("--with-security", "security", is_flag=True, help="Leave wsse:Security in the envelopes."),
    click.option("--node", metavar="NAME", help="What this node is called. Default: its name, or the machine's."),
    click.option(
        "--segment-rows",
        type=click.IntRange(1),
        help="At most so many rows in a file. Default: 100,000; of a zip 10,000.",
    ),
)
"""The options that both commands have."""


@click.command("export", cls=Asking)
@_exporting
@click.option(
    "--table",
    "tables",
    metavar="TABLE",
    type=click.Choice(TABLES),
    multiple=True,
    help=f"Only this table, of {', '.join(TABLES)}; may be repeated.",
)
@click.option("--bodies", is_flag=True, help="With envelopes, and the bodies of replies.")
def export_store(place: Place, tables: tuple[str, ...], **options: Any) -> None:
    """Write the tables of the store as files.

    They are sorted, in DIRECTORY, with a manifest; of messages those that fit QUERY. The service may go on meanwhile.
    An export that was interrupted goes on when it is asked for again.

    \b
    Example: wsrm-mq store export /backup/april --format parquet
    """
    _export(place, tables=tables or TABLES, **options)


@click.command("export", cls=Asking)
@_exporting
@click.option("--bodies", is_flag=True, help="With envelopes; a ZIP always has them.")
def export_messages(place: Place, bodies: bool, encoding: str, **options: Any) -> None:
    """Write the messages that fit QUERY as files.

    They are sorted, in DIRECTORY, with a manifest. A ZIP has each envelope as a file, and an index.

    \b
    Example: wsrm-mq message export envelopes partner:acme state:dead --format zip
    """
    _export(place, tables=("messages",), bodies=bodies or encoding == "zip", encoding=encoding, **options)


def _export(place: Place, directory: Path, for_spreadsheet: bool, **asked: Any) -> None:
    from wsrm_mq.export import exporting

    if for_spreadsheet:
        if asked["encoding"] != "csv":
            raise click.UsageError("--for-spreadsheet is about --format csv.")
        asked["encoding"] = "spreadsheet"

    def on_progress(segment: manifest.Segment, upper: int) -> None:
        say(f"{segment.file}: {segment.rows} rows, {segment.table} up to {segment.last[0]} of {upper}")

    made = exporting.export(place.path, directory, exporting.Asked(**asked), on_progress=on_progress)
    if place.is_json:
        as_json(directory=str(directory), **made.as_dict())
        return
    rows = {name: sum(one.rows for one in made.segments if one.table == name) for name in made.tables}
    fields([("directory", directory), *rows.items(), ("bytes", sum(one.bytes for one in made.segments))])
    if asked["bodies"] and made.security == "redacted":
        say("Envelopes that had a wsse:Security are without it, and marked as not replayable.")
