"""``wsrm-mq replay``: stored messages are delivered again, by a plan that is made, looked at, and run as it is: to
``app``, ``module:attribute`` or a URL."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import islice
from pathlib import Path
from shlex import quote
from textwrap import fill, wrap
from typing import TYPE_CHECKING, Any, Final

import click

from wsrm_mq.cli import completing
from wsrm_mq.cli.acts import Care, acting, careful, login, signed
from wsrm_mq.cli.output import (
    Column,
    Exit,
    Stopped,
    as_json,
    end_of,
    facts,
    fields,
    in_a_line,
    key,
    say,
    table,
    when,
    word,
    write,
)
from wsrm_mq.cli.place import Asking, Place, in_store, query_argument
from wsrm_mq.cli.progress import shown, trouble
from wsrm_mq.cli.store import Age
from wsrm_mq.errors import NotAllowed, NotAnswered, NotFound, StoreError, WSRMError
from wsrm_mq.events.inert import inert
from wsrm_mq.views.words import counted, first_line, moment

if TYPE_CHECKING:
    from wsrm_mq.delivery import delivery
    from wsrm_mq.replay import plan as planned
    from wsrm_mq.replay import run as running
    from wsrm_mq.views import rows

# An application by its name, as an operator writes it.


def imported(name: str) -> Any:
    """The application that ``name`` means: ``module:attribute``."""
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise Stopped(f"{name!r} names no application; write MODULE:ATTRIBUTE, for example orders:app.", Exit.USAGE)
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
            raise Stopped(f"{module} needs {error.name}, which is not installed.", Exit.USAGE) from error
        raise Stopped(f"there is no module {error.name} in {os.getcwd()} or on the Python path.", Exit.USAGE) from error
    except WSRMError:
        raise
    except Exception as error:
        raise Stopped(f"{module} cannot be imported: {in_a_line(error)}", Exit.USAGE) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise Stopped(f"{module} has no attribute {attribute}.", Exit.USAGE)
        found = getattr(found, part)
    if not callable(found):
        raise Stopped(f"{name} is no application: it cannot be called.", Exit.USAGE)
    return found


def call_of(place: Place, target: str, *, connects: bool = False) -> delivery.Call | None:
    """The call that delivers messages here to ``target``; ``None``: the service that runs delivers them. Where the
    target cannot be called the command ends, with status 2."""
    from wsrm_mq import engine, hooks
    from wsrm_mq.replay import run as running
    from wsrm_mq.serving import wrapping

    if target == "app":
        return None
    if "://" in target:
        try:
            running.check_address(target, place.settings.replay_targets, connects=connects)
        except (NotAllowed, NotAnswered) as error:
            raise Stopped(f"--to {error}", Exit.USAGE) from error
        return running.to_address(target, place.policy, place.settings.replay_targets)
    if ":" not in target:
        raise Stopped(f"--to {target}: is no target; write app, MODULE:ATTRIBUTE or a URL.", Exit.USAGE)

    with engine.standing_aside():  # this process delivers what the plan says, and nothing else
        application = imported(target)
    wrapped = wrapping.found_in(application)
    if hooks.is_asgi(application):
        told = f"--to {target}: is an ASGI application, which needs its server: serve it, and use --to app."
        raise Stopped(told, Exit.USAGE)
    if wrapped:
        return wrapped[0].deliver
    settings = place.settings
    return running.to_application(application, place.policy, headers=settings.headers, max_reply=settings.max_reply)


def named(target: str) -> str:
    """The name of a target, for people."""
    return "the service that runs" if target == "app" else target


_FILE: Final = click.Path(path_type=Path, dir_okay=False)
_LINES: Final = 20
WIDTH: Final = 79


@click.group()
def replay() -> None:
    """Deliver stored messages again. A plan is made of a query and written to a file; it is run as it was shown.

    \b
    wsrm-mq replay plan seq:9f3c21 msg:12-40 -o plan.json --reason "lost there"
    wsrm-mq replay show plan.json
    wsrm-mq replay run plan.json
    """


@replay.command(cls=Asking)
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
    care: Care,
) -> None:
    """Freeze what fits QUERY as a plan. Nothing is delivered yet.

    TARGET is app, the service that runs; MODULE:ATTRIBUTE, a WSGI application that is called here, the service up or
    down; or the URL of a service that takes plain SOAP posts.

    \b
    Example: wsrm-mq replay plan queue:/orders since:2026-11-01 -o day.json \\
                 --to https://rebuilt.example/orders --reason "rebuilt"
    """
    from wsrm_mq.replay import plan as planned
    from wsrm_mq.replay import planning

    if not query:
        raise click.UsageError("Say what is to be delivered again, for example queue:/orders since:2h.")
    call_of(place, target, connects=True)
    why = care.why()
    with place.looking():
        pass
    wishes = planning.Wishes(query, target, as_new, skip_missing, marks_kept, **why)
    header = planning.make_plan(place.path, wishes, output)
    if place.is_json:
        as_json(plan=planned.document(header), file=str(output))
        return
    show_header(header)
    file = quote(str(output))
    say(place.told(f"Look at it: `wsrm-mq replay show {file}`. Run it: `wsrm-mq replay run {file}`"))


@replay.command()
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
    from wsrm_mq.replay import plan as planned

    refused = _why_not_run(place, file)
    with planned.PlanFile(file) as found:
        lines = found.lines(after)
        if is_all and not place.is_json:
            click.echo_via_pager(_as_text(found.header, refused, lines))
            return
        some = list(islice(lines, None if is_all else limit))
        numbered = [{"line": number, **planned.document(line)} for number, line in some]
        if place.is_json:
            as_json(plan=planned.document(found.header), refused=refused, lines=numbered)
            return
        show_header(found.header, refused)
        write("")
        table(_COLUMNS, numbered)
        if some and some[-1][0] < found.header.messages:
            say(f"{found.header.messages - some[-1][0]} more: --after {some[-1][0]}, or --all")


def _why_not_run(place: Place, file: Path) -> str | None:
    """Why ``replay run`` would refuse the file; ``None``: it would not."""
    from wsrm_mq.replay import run as running

    try:
        running.check_plan(place.path, file)
    except (NotAllowed, NotFound, StoreError) as error:
        return str(error)
    return None


# what is shown


def show_header(header: planned.About, refused: str | None = None) -> None:
    messages, groups = counted(header.messages, "message"), counted(header.groups, "group")
    fields(
        [
            *([("not run", wrap(refused, WIDTH - 12))] if refused else []),
            ("plan", header.id),
            ("made", f"{moment(header.made_at)} by {header.actor}: {header.reason}"),
            ("query", header.query),
            ("target", named(header.target)),
            ("messages", f"{messages} in {groups}, {header.bytes} bytes"),
            ("of them", ", ".join(f"{count} {word}" for word, count in header.counts.items())),
            ("left out", [f"{one.messages} {one.why} (such as {one.example})" for one in header.left_out]),
            ("take care", [line for warning in header.warnings for line in wrap(warning, WIDTH - 12)]),
        ]
    )


def _short(flags: Iterable[str]) -> str:
    return " ".join(flags).replace("duplicate", "again").replace("breaks_order", "order")


_COLUMNS: Final = (
    *("line", key("position", rank=1), Column("sequence", 8, keeps_end=True), "number", end_of("action")),
    *(word("state"), Column("flags", None, whole=" ".join, short=_short)),
)


def _as_text(header: planned.About, refused: str | None, lines: Iterator[tuple[int, planned.Line]]) -> Iterator[str]:
    if refused:
        yield inert(f"not run: {refused}") + "\n"
    yield f"plan {header.id}: {counted(header.messages, 'message')} to {named(header.target)}\n"
    for number, line in lines:
        place = f"{number:>9} {line.position:>9} {(line.sequence or '')[-8:]:>8} {line.number or '':>7}"
        yield inert(f"{place} {line.state:<10} {_short(line.flags):<16} {line.action or ''}"[:WIDTH]) + "\n"


_MAY_RUN: Final = {"planned": "Run it", "stopped": "Go on where it was"}


@replay.command()
@in_store
@careful
@click.argument("file", type=_FILE)
@click.option(
    "--rate",
    type=click.FloatRange(0.01),
    help="At most so many messages a second; of those that the service delivers so many are entered.",
)
@click.option("--stop-on-error", is_flag=True, help="Enter no more once a message has failed for good.")
@click.option("--to", "target", metavar="TARGET", help="Another target than the plan says; see `replay plan`.")
def run(
    place: Place,
    file: Path,
    rate: float | None,
    stop_on_error: bool,
    target: str | None,
    care: Care,
) -> None:
    """Run a plan, or what is left of it. Ctrl-C stops it; run again, it goes on where it was.

    What was delivered since the plan was made is skipped. A message that fails is tried again as `retry` says; then its
    group waits, and the others go on.

    Example: wsrm-mq replay run plan.json --rate 50
    """
    from wsrm_mq.replay import plan as planned
    from wsrm_mq.replay import run as running
    from wsrm_mq.serving import logs

    with place.looking():
        pass
    known = running.check_plan(place.path, file)
    with planned.PlanFile(file) as found:
        header = found.header
    entered = _outcomes(place, header.id).get("waiting", 0)
    where = target or known.target
    for warning in header.warnings:
        say(fill(f"- {warning}", WIDTH, subsequent_indent="  "), keep="\n")
    left = f"{known.messages - known.line + entered} of {counted(known.messages, 'message')} to {named(where)}"
    if not care.allows(f"deliver {left}"):
        return
    logs.keep_quiet()  # what failed is in the ledger, and is told at the end
    progress = _run(place, file, where, place.is_json, rate=rate, stop_on_error=stop_on_error)
    outcomes, ended = _outcomes(place, header.id), _plan(place, header.id)
    if place.is_json:
        as_json(plan=ended, outcomes=outcomes, blocked=list(progress.blocked))
    else:
        _tell_end(place, ended, outcomes, progress, file)
    if ended.state != "done" or outcomes.get("dead"):
        raise click.exceptions.Exit(Exit.FAILED)


def _run(place: Place, file: Path, target: str, is_quiet: bool, **options: Any) -> running.Progress:
    from wsrm_mq.replay import run as running

    call = call_of(place, target)
    try:
        with shown(is_quiet) as update:
            return running.run_plan(
                place.path,
                file,
                actor=login(),
                target=target,
                call=call,
                policy_of=place.policy,
                on_progress=lambda now: update(now.settled, now.messages, trouble(now)),
                **options,
            )
    except KeyboardInterrupt:
        say(place.told(f"Stopped; nothing is lost. Go on: `wsrm-mq replay run {quote(str(file))}`"))
        if call is None:
            _tell_what_goes_on(place, file)
        raise


def _tell_what_goes_on(place: Place, file: Path) -> None:
    """Tell what goes on without this command: the service knows nothing of Ctrl-C."""
    if waiting := _outcomes(place, _plan(place, str(file)).id).get("waiting", 0):
        goes_on = f"The service still delivers {counted(waiting, 'message')} that it entered before."
        cancel = f"`wsrm-mq replay cancel {quote(str(file))} --reason TEXT`"
        say(place.told(f"{goes_on} Stop that too, and the plan for good: {cancel}"))


@replay.command("list")
@in_store
def list_(place: Place) -> None:
    """List the plans of a store, newest first.

    Example: wsrm-mq replay list
    """
    from wsrm_mq.views import rows

    with place.looking() as db:
        found = rows.plans(db)
    columns = (key("plan", "id"), word("state"), "messages", "line", when("made", "made_at"), "target", end_of("file"))
    place.listing("plans", found, columns)


@replay.command()
@in_store
@click.argument("plan", metavar="PLAN", shell_complete=completing.values("a plan"))
def status(place: Place, plan: str) -> None:
    """Show how far a plan has come. PLAN is its id, the beginning of it, or its file.

    Example: wsrm-mq replay status plan.json
    """
    found = _plan(place, plan)
    counted = _outcomes(place, found.id)
    if place.is_json:
        as_json(plan=found, outcomes=counted)
        return
    facts(found._asdict())
    write("")
    fields(counted.items())
    if found.state in _MAY_RUN:
        say(place.told(f"{_MAY_RUN[found.state]}: `wsrm-mq replay run {quote(found.file)}`"))


@replay.command()
@in_store
@acting
@click.argument("plan", metavar="PLAN", shell_complete=completing.values("a plan"))
def cancel(place: Place, plan: str, care: Care) -> None:
    """Let a plan run no more. What it has entered and is not delivered is taken back, also from a service that
    delivers it; what waited for delivery before goes to the dead letters. PLAN is its id, the beginning of it, or its
    file.

    Example: wsrm-mq replay cancel plan.json --reason "wrong day"
    """
    from wsrm_mq.replay import run as running

    found = _plan(place, plan)
    why = care.why()
    taken = counted(_outcomes(place, found.id).get("waiting", 0), "message")
    text = f"cancel the plan {found.id} at line {found.line} of {found.messages}, and take back {taken}"
    withdrawn = left = 0
    if care.dry_run:
        running.cancel_plan(place.path, found.id, **why, dry_run=True)
    if care.allows(text):
        withdrawn, left = running.cancel_plan(place.path, found.id, **why)
        say(f"Done: the plan {found.id} is cancelled, {counted(withdrawn, 'message')} taken back.")
    if left:
        waits = f"{left} more {'waits' if left == 1 else 'wait'} for what is still being delivered; no other begins."
        say(
            place.told(
                f"{waits} Take the rest back when that has ended: `wsrm-mq replay cancel {found.id} --reason TEXT`"
            )
        )
    if place.is_json:
        as_json(plan=found.id, withdrawn=withdrawn, left=left, dry_run=care.dry_run)
    if left:
        raise click.exceptions.Exit(Exit.FAILED)


def _outcomes(place: Place, plan: str) -> dict[str, int]:
    """How many messages of a plan have each outcome; ``waiting``: none yet."""
    from wsrm_mq.views import rows

    with place.looking() as db:
        return rows.outcomes(db, plan)


def _plan(place: Place, text: str) -> rows.PlanView:
    from wsrm_mq.replay import plan as planned
    from wsrm_mq.views import rows

    if Path(text).is_file():
        with planned.PlanFile(Path(text)) as found:
            text = found.header.id
    with place.looking() as db:
        return rows.find_plan(db, text)


def _tell_end(
    place: Place, ended: rows.PlanView, outcomes: dict[str, int], progress: running.Progress, file: Path
) -> None:
    fields([*outcomes.items(), ("skipped", ended.skipped), ("missing", ended.missing), ("line", ended.line)])
    if ended.state == "done":
        say(f"Done: the plan {ended.id} ran to its end.")
        return
    if progress.blocked:
        said = first_line(progress.error or "no error was kept", WIDTH)
        stopped = counted(len(progress.blocked), "group is", "groups are")
        say(f"{stopped} stopped by a failure, such as {progress.blocked[0]}: {said}")
        say(place.told(f"See it: `wsrm-mq sequence explain {progress.blocked[0]}`"))
    left = counted(ended.messages - progress.settled, "message is", "messages are")
    say(place.told(f"Not at its end: {left} left. Go on: `wsrm-mq replay run {quote(str(file))}`"))
