"""``wsrm-mq replay plan`` and ``show``: a plan is made of a query, and looked at."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from shlex import quote
from textwrap import wrap
from typing import TYPE_CHECKING, Final

import click

from wsrm_mq.cli.acts import login, reason_given, signed
from wsrm_mq.cli.asking import Asking, query_argument
from wsrm_mq.cli.columns import Column, end_of, key, word
from wsrm_mq.cli.output import as_json, fields, inert, say, table, write
from wsrm_mq.cli.place import Place, in_store, looking
from wsrm_mq.cli.targets import check_target, named
from wsrm_mq.cli.upkeep import Age
from wsrm_mq.views.words import counted, moment

if TYPE_CHECKING:
    from wsrm_mq.replay.plan import About, Line

_FILE: Final = click.Path(path_type=Path, dir_okay=False)
_LINES: Final = 20
WIDTH: Final = 79


@click.command(cls=Asking)
@in_store
@signed
@query_argument
@click.option("-o", "--output", type=_FILE, required=True, help="The file of the plan; it must not be there yet.")
@click.option("--to", "target", metavar="TARGET", default="app", show_default=True, help="See above.")
@click.option("--as-new", is_flag=True, help="The service's inbox takes them for new: effects repeat.")
@click.option("--skip-missing", is_flag=True, help="Leave out what retention has emptied or deleted.")
@click.option("--marks-kept", type=Age(), help="How long the service's inbox keeps its marks: seconds, or P30D.")
def plan(
    place: Place,
    query: str,
    output: Path,
    target: str,
    as_new: bool,
    skip_missing: bool,
    marks_kept: int | None,
    actor: str | None,
    reason: str | None,
) -> None:
    """Freeze what fits QUERY as a plan. Nothing is delivered yet.

    TARGET is app, the service that runs; MODULE:ATTRIBUTE, a WSGI application that is called here, the service up or
    down; or the URL of a service that takes plain SOAP posts.

    \b
    Example: wsrm-mq replay plan queue:/orders since:2026-11-01 -o day.json \\
                 --to https://rebuilt.example/orders --reason "rebuilt"
    """
    from wsrm_mq.replay import Wishes, document, make_plan

    if not query:
        raise click.UsageError("Say what is to be delivered again, for example queue:/orders since:2h.")
    check_target(place, target)
    why = reason_given(reason)
    with looking(place):
        pass
    wishes = Wishes(query, target, as_new, skip_missing, marks_kept, actor or login(), why)
    header = make_plan(place.path, wishes, output)
    if place.is_json:
        as_json(plan=document(header), file=str(output))
        return
    show_header(header)
    file = quote(str(output))
    say(place.told(f"Look at it: `wsrm-mq replay show {file}`. Run it: `wsrm-mq replay run {file}`"))


@click.command()
@in_store
@click.argument("file", type=_FILE)
@click.option("--after", metavar="LINE", type=click.IntRange(0), default=0, help="Begin behind this message.")
@click.option("--limit", type=click.IntRange(1), default=_LINES, show_default=True, help="At most so many messages.")
@click.option("--all", "is_all", is_flag=True, help="All messages; in a terminal page by page.")
def show(place: Place, file: Path, after: int, limit: int, is_all: bool) -> None:
    """Show a plan, what it warns of, and whether it may be run.

    It may be run if it is as its store knows it. Its messages are in the order in which they run.

    Example: wsrm-mq replay show plan.json --after 1000 --limit 50
    """
    from wsrm_mq.replay import PlanFile, document

    refused = _why_not_run(place, file)
    with PlanFile(file) as found:
        lines = found.lines(after)
        if is_all and not place.is_json:
            click.echo_via_pager(_as_text(found.header, refused, lines))
            return
        some = list(islice(lines, None if is_all else limit))
        if place.is_json:
            as_json(
                plan=document(found.header), refused=refused, lines=[{"line": n, **document(line)} for n, line in some]
            )
            return
        show_header(found.header, refused)
        write("")
        table(_COLUMNS, map(_cells, some))
        if some and some[-1][0] < found.header.messages:
            say(f"{found.header.messages - some[-1][0]} more: --after {some[-1][0]}, or --all")


def _why_not_run(place: Place, file: Path) -> str | None:
    """Why ``replay run`` would refuse the file; ``None``: it would not."""
    from wsrm_mq.errors import NotAllowed, NotFound, StoreError
    from wsrm_mq.replay import check_plan

    try:
        check_plan(place.path, file)
    except (NotAllowed, NotFound, StoreError) as error:
        return str(error)
    return None


# what is shown


def show_header(header: About, refused: str | None = None) -> None:

    messages, groups = counted(header.messages, "message"), counted(header.groups, "group")
    fields(
        [
            *([("not run", wrap(refused, WIDTH - 12))] if refused else []),
            ("plan", header.id),
            ("made", f"{moment(header.made_at)} by {header.actor}: {header.reason}"),
            ("query", header.query),
            ("target", named(header.target)),
            (
                "messages",
                f"{messages} in {groups}, {header.bytes} bytes",
            ),
            ("of them", ", ".join(f"{count} {word}" for word, count in header.counts.items())),
            ("left out", [f"{one.messages} {one.why} (such as {one.example})" for one in header.left_out]),
            ("take care", [line for warning in header.warnings for line in wrap(warning, WIDTH - 12)]),
        ]
    )


def _cells(numbered: tuple[int, Line]) -> tuple[object, ...]:
    number, line = numbered
    return number, line.position, line.sequence, line.number, line.action, line.state, " ".join(line.flags)


def _short(flags: str) -> str:
    return flags.replace("duplicate", "again").replace("breaks_order", "order")


_COLUMNS: Final = (
    *("line", key("position", rank=1), Column("sequence", 8, keeps_end=True), "number", end_of("action")),
    *(word("state"), Column("flags", None, short=_short)),
)


def _as_text(header: About, refused: str | None, lines: Iterator[tuple[int, Line]]) -> Iterator[str]:

    if refused:
        yield inert(f"not run: {refused}") + "\n"
    yield f"plan {header.id}: {counted(header.messages, 'message')} to {named(header.target)}\n"
    for number, line in lines:
        place = f"{number:>9} {line.position:>9} {(line.sequence or '')[-8:]:>8} {line.number or '':>7}"
        yield inert(f"{place} {line.state:<10} {_short(' '.join(line.flags)):<16} {line.action or ''}"[:WIDTH]) + "\n"
