"""``wsrm-mq store export`` and ``wsrm-mq message export``: what the store holds, as files for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from wsrm_mq.cli.asking import Asking, query_argument
from wsrm_mq.cli.output import as_json, fields, say
from wsrm_mq.cli.place import Place, directory_argument, in_store, together

if TYPE_CHECKING:
    from wsrm_mq.export import Segment

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
    from wsrm_mq.export import Asked, export

    if for_spreadsheet:
        if asked["encoding"] != "csv":
            raise click.UsageError("--for-spreadsheet is about --format csv.")
        asked["encoding"] = "spreadsheet"

    def on_progress(segment: Segment, upper: int) -> None:
        say(f"{segment.file}: {segment.rows} rows, {segment.table} up to {segment.last[0]} of {upper}")

    made = export(place.path, directory, Asked(**asked), on_progress=on_progress)
    if place.is_json:
        as_json(directory=str(directory), **made.as_dict())
        return
    rows = {name: sum(one.rows for one in made.segments if one.table == name) for name in made.tables}
    fields([("directory", directory), *rows.items(), ("bytes", sum(one.bytes for one in made.segments))])
    if asked["bodies"] and made.security == "redacted":
        say("Envelopes that had a wsse:Security are without it, and marked as not replayable.")
