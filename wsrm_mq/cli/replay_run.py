"""``wsrm-mq replay run``, ``list``, ``status`` and ``cancel``: what becomes of a plan."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final

import click

from wsrm_mq.cli import completing
from wsrm_mq.cli.acts import Care, acting, ask, careful, login
from wsrm_mq.cli.columns import Column, key, when, word
from wsrm_mq.cli.exits import Exit
from wsrm_mq.cli.output import as_json, fields, say, table, write
from wsrm_mq.cli.place import Place, in_store, looking
from wsrm_mq.cli.progress import shown
from wsrm_mq.cli.targets import call_of, named, policy_of
from wsrm_mq.views.words import counted, first_line, moment

if TYPE_CHECKING:
    from wsrm_mq.replay.run import Progress
    from wsrm_mq.views.plans import PlanView

_MAY_RUN: Final = {"planned": "Run it", "stopped": "Go on where it was"}
_FILE: Final = click.Path(path_type=Path, dir_okay=False)
WIDTH: Final = 79


@click.command()
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
@click.pass_context
def run(
    context: click.Context,
    place: Place,
    file: Path,
    rate: float | None,
    stop_on_error: bool,
    target: str | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Run a plan, or what is left of it. Ctrl-C stops it; run again, it goes on where it was.

    What was delivered since the plan was made is skipped. A message that fails is tried again as `retry` says; then its
    group waits, and the others go on.

    Example: wsrm-mq replay run plan.json --rate 50
    """
    from wsrm_mq.replay import PlanFile, check_plan
    from wsrm_mq.serving.logs import keep_quiet
    from wsrm_mq.views.plans import outcomes

    with looking(place):
        pass
    known = check_plan(place.path, file)
    with PlanFile(file) as found:
        header = found.header
    with looking(place) as db:
        entered = outcomes(db, header.id).get("waiting", 0)
    where = target or known.target
    for warning in header.warnings:
        say(fill(f"- {warning}", WIDTH, subsequent_indent="  "), keep="\n")
    left = f"{known.messages - known.line + entered} of {counted(known.messages, 'message')} to {named(where)}"
    if dry_run:
        say(f"This would deliver {left}. Nothing was changed.")
        return
    ask(f"This will deliver {left}.", yes)
    keep_quiet()  # what failed is in the ledger, and is told at the end
    progress = _run(place, file, where, place.is_json, rate=rate, stop_on_error=stop_on_error)
    with looking(place) as db:
        found_outcomes = outcomes(db, header.id)
        ended = _plan(place, header.id)
    if place.is_json:
        as_json(plan=ended._asdict(), outcomes=found_outcomes, blocked=list(progress.blocked))
    else:
        _tell_end(place, ended, found_outcomes, progress, file)
    if ended.state != "done" or found_outcomes.get("dead"):
        context.exit(Exit.FAILED)


def _run(place: Place, file: Path, target: str, is_quiet: bool, **options: Any) -> Progress:
    from wsrm_mq.replay import run_plan

    call = call_of(place, target)
    try:
        with shown(is_quiet) as on_progress:
            return run_plan(
                place.path,
                file,
                actor=login(),
                target=target,
                call=call,
                policy_of=policy_of(place),
                on_progress=on_progress,
                **options,
            )
    except KeyboardInterrupt:
        say(place.told(f"Stopped; nothing is lost. Go on: `wsrm-mq replay run {quote(str(file))}`"))
        if call is None:
            _tell_what_goes_on(place, file)
        raise


def _tell_what_goes_on(place: Place, file: Path) -> None:
    """The service knows nothing of Ctrl-C."""
    from wsrm_mq.views.plans import outcomes

    plan = _plan(place, str(file)).id
    with looking(place) as db:
        waiting = outcomes(db, plan).get("waiting", 0)
    if waiting:
        goes_on = f"The service still delivers {counted(waiting, 'message')} that it entered before."
        cancel = f"`wsrm-mq replay cancel {quote(str(file))} --reason TEXT`"
        say(place.told(f"{goes_on} Stop that too, and the plan for good: {cancel}"))


@click.command("list")
@in_store
def list_(place: Place) -> None:
    """List the plans of a store, newest first.

    Example: wsrm-mq replay list
    """
    from wsrm_mq.views.plans import plans

    with looking(place) as db:
        found = plans(db)
    if place.is_json:
        as_json(plans=[one._asdict() for one in found])
        return
    table(
        (
            key("plan"),
            word("state"),
            "messages",
            "line",
            when("made"),
            Column("target"),
            Column("file", keeps_end=True),
        ),
        [(one.id, one.state, one.messages, one.line, one.made_at, one.target, one.file) for one in found],
    )


@click.command()
@in_store
@click.argument("plan", metavar="PLAN", shell_complete=completing.plans)
def status(place: Place, plan: str) -> None:
    """Show how far a plan has come. PLAN is its id, the beginning of it, or its file.

    Example: wsrm-mq replay status plan.json
    """
    from wsrm_mq.views.plans import outcomes

    found = _plan(place, plan)
    with looking(place) as db:
        counted = outcomes(db, found.id)
    if place.is_json:
        as_json(plan=found._asdict(), outcomes=counted)
        return
    times = ("made_at", "begun_at", "ended_at")
    fields(
        (name, moment(value) if name in times and value is not None else value)
        for name, value in found._asdict().items()
    )
    write("")
    fields(counted.items())
    if found.state in _MAY_RUN:
        say(place.told(f"{_MAY_RUN[found.state]}: `wsrm-mq replay run {quote(found.file)}`"))


@click.command()
@in_store
@acting
@click.argument("plan", metavar="PLAN", shell_complete=completing.plans)
@click.pass_context
def cancel(
    context: click.Context,
    place: Place,
    plan: str,
    care: Care,
) -> None:
    """Let a plan run no more. What it has entered and is not delivered is taken back, also from a service that
    delivers it; what waited for delivery before goes to the dead letters. PLAN is its id, the beginning of it, or its
    file.

    Example: wsrm-mq replay cancel plan.json --reason "wrong day"
    """
    from wsrm_mq.replay import cancel_plan
    from wsrm_mq.views.plans import outcomes

    found = _plan(place, plan)
    why = care.why()
    with looking(place) as db:
        waiting = outcomes(db, found.id).get("waiting", 0)
    taken = counted(waiting, "message")
    text = f"cancel the plan {found.id} at line {found.line} of {found.messages}, and take back {taken}"
    withdrawn = left = 0
    if care.dry_run:
        cancel_plan(place.path, found.id, **why, dry_run=True)
        say(f"This would {text}. Nothing was changed.")
    else:
        ask(f"This will {text}.", care.yes)
        withdrawn, left = cancel_plan(place.path, found.id, **why)
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
        context.exit(Exit.FAILED)


def _plan(place: Place, text: str) -> PlanView:
    from wsrm_mq.replay import PlanFile
    from wsrm_mq.views.plans import find_plan

    if Path(text).is_file():
        with PlanFile(Path(text)) as found:
            text = found.header.id
    with looking(place) as db:
        return find_plan(db, text)


def _tell_end(place: Place, ended: PlanView, outcomes: dict[str, int], progress: Progress, file: Path) -> None:

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
