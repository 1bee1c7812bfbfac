"""``wsrm-mq pipeline replay``: what many stores and archives hold is delivered again, by a plan in parts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

import click

from wsrm_mq.cli.acts import Care, ask, careful, signed
from wsrm_mq.cli.output import Exit, as_json, fields, say, table, write
from wsrm_mq.cli.pipeline import SETTINGS, check_sources, directory, in_session, pipeline
from wsrm_mq.cli.place import config_option, configured, json_option, now_ms
from wsrm_mq.cli.progress import shown
from wsrm_mq.cli.replay import show_header
from wsrm_mq.cli.store import Age
from wsrm_mq.errors import NotAllowed
from wsrm_mq.views.words import counted

if TYPE_CHECKING:
    from wsrm_mq.replay import divided

_DIRECTORY: Final = click.Path(path_type=Path, file_okay=False)
_RUN: Final = "wsrm-mq pipeline replay run"
_PARTS: Final = 1_000
_SHOWN: Final = 20


@pipeline.group(short_help="Deliver what was archived to an address, in order.")
def replay() -> None:
    """Deliver again what many stores, exports and archives hold, to an address. A plan is made first, then run.

    \b
    wsrm-mq pipeline replay plan /archives/* --where "queue = '/orders'" \\
        --to https://rebuilt.example/orders --out march --reason "rebuilt"
    wsrm-mq pipeline replay run march
    wsrm-mq pipeline replay status march
    """


@replay.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--out", "output", type=_DIRECTORY, required=True, help="The directory of the plan.")
@click.option("--to", "target", metavar="URL", required=True, help="Where its messages go, as plain SOAP posts.")
@click.option("--where", "query", metavar="SQL", default="true", help="A condition on columns of messages.")
@click.option("--parts", type=click.IntRange(1, _PARTS), help="So many at a time are sent. Default: Spark's cores.")
@click.option("--as-new", is_flag=True, help="Keys are new ones: the target does its work again.")
@click.option("--skip-missing", is_flag=True, help="Leave out what has no envelope, or a redacted one.")
@click.option("--marks-kept", type=Age(), help="How long the target knows its keys: seconds, or P30D.")
@click.option("--with-security", "security", is_flag=True, help="Leave wsse:Security in the envelopes of stores.")
@click.option("--header", "headers", metavar="NAME", multiple=True, help="Read this request header of stores too.")
@signed
@json_option
@config_option
@SETTINGS
def plan(
    paths: tuple[str, ...],
    output: Path,
    target: str,
    query: str,
    parts: int | None,
    security: bool,
    headers: tuple[str, ...],
    care: Care,
    is_json: bool,
    config: Path | None,
    settings: Mapping[str, str],
    **wished: Any,
) -> None:
    """Freeze what fits as a plan. Nothing is delivered yet.

    Of each message that was delivered or is a dead letter the plan has a line, in the part of its sequence. Columns are
    those of the table messages, for example queue, state, received_at, peer.

    \b
    Example: wsrm-mq pipeline replay plan /stores/a.db /archives/b \\
        --where "queue = '/orders' AND received_at >= '2026-03-01'" \\
        --to https://rebuilt.example/orders --out march --reason "rebuilt"
    """
    from wsrm_mq.replay import plan as planned
    from wsrm_mq.replay import planning
    from wsrm_mq.replay import run as running

    why = care.why()
    check_sources(paths, {"copies": True})  # before the import that needs PySpark
    from wsrm_mq.spark import replay as in_parts

    running.check_address(target, configured(config).replay_targets)
    output = directory(output, for_tables=False)
    in_parts.refuse_existing(output)
    output.mkdir(mode=0o700, parents=True, exist_ok=True)
    wishes = planning.Wishes(query, target, **why, **wished)
    with in_session("replay plan", output, settings, is_json) as spark:
        count = parts or min(spark.sparkContext.defaultParallelism, _PARTS)
        found = in_parts.make_plan(
            spark, in_parts.Sources(paths, headers, security), wishes, output, parts=count, now=now_ms()
        )
    if is_json:
        as_json(plan=planned.document(found), directory=str(output))
        return
    show_header(found)
    say(f"Try it: `{_RUN} {quote(str(output))} --dry-run`. Run it: `{_RUN} {quote(str(output))}`")


@replay.command()
@click.argument("directory", type=_DIRECTORY)
@click.argument("paths", metavar="[PATH...]", nargs=-1)
@click.option("--rate", type=click.FloatRange(0.01), help="At most so many messages a second, of all parts together.")
@careful
@json_option
@config_option
@SETTINGS
def run(
    directory: Path,
    paths: tuple[str, ...],
    rate: float | None,
    care: Care,
    is_json: bool,
    config: Path | None,
    settings: Mapping[str, str],
) -> None:
    """Run a plan, or what is left of it. Ctrl-C stops it; run again, it goes on where it was.

    Its envelopes are read from the stores and archives that it was made of, or from PATH. A sequence whose message the
    target does not take stands still there, and the others go on; the next run tries it again.

    \b
    Example: wsrm-mq pipeline replay run march --rate 500
    """
    from wsrm_mq.replay import divided
    from wsrm_mq.replay import run as running

    found = divided.DividedPlan(directory)
    manifest, before = found.manifest, found.standing()
    if before.is_done:
        raise NotAllowed(f"The plan in {directory} ran to its end. Make a new plan to run it again.")
    check_sources(paths or manifest.sources, {"copies": True})  # before the import that needs PySpark
    from wsrm_mq.spark import replay as in_parts

    allowed = configured(config).replay_targets
    running.check_address(manifest.target, allowed)
    left = f"{before.messages - before.delivered} of {before.messages} messages to {manifest.target}"
    if not care.dry_run:
        ask(f"This will deliver {left}.", care.yes)
    sources = in_parts.Sources(paths or manifest.sources, manifest.headers, manifest.security)
    with (
        in_session("replay run", directory, settings, is_quiet=True) as spark,
        shown(is_json or care.dry_run) as update,
    ):
        done = in_parts.run_plan(
            *(spark, directory, allowed),
            sources=sources,
            rate=rate,
            dry=care.dry_run,
            on_progress=lambda over: update(over, before.messages, ""),
        )
    if care.dry_run:
        _tell_rehearsal(done, manifest.target, is_json)
        return
    after = found.standing()
    _tell(directory, after, is_json, this_run=done)
    if not (is_json or after.is_done):
        _tell_next(directory, done)
    if not after.is_done:
        raise click.exceptions.Exit(Exit.FAILED)


@replay.command()
@click.argument("directory", type=_DIRECTORY)
@json_option
def status(directory: Path, is_json: bool) -> None:
    """Show how far a plan has come, while it runs too, and which sequences stand still. It needs no Spark.

    \b
    Example: wsrm-mq pipeline replay status march
    """
    from wsrm_mq.replay import divided

    _tell(directory, divided.DividedPlan(directory).standing(), is_json)


def _tell(directory: Path, found: divided.Standing, is_json: bool, **more: Any) -> None:
    if is_json:
        told = {"messages": found.messages, "delivered": found.delivered, "stopped": found.stopped}
        as_json(directory=str(directory), **told, **more)
        return

    left = found.messages - found.delivered
    fields([("messages", found.messages), ("delivered", found.delivered), ("left", left)])
    if not found.stopped:
        return
    write("")
    table(("sequence", "number", "position", "store", "error"), found.stopped[:_SHOWN])
    if len(found.stopped) > _SHOWN:
        others = counted(len(found.stopped) - _SHOWN, "more sequence stands", "more sequences stand")
        say(f"{others} still: --json has all")


def _tell_next(directory: Path, done: divided.Tally) -> None:
    if done.superseded:
        say("Another run has taken over a part of this plan; this one has ended there.")
    if done.gave_up:
        say("The target took nothing of many sequences in a row, so no more was sent to it.")
    say(f"Not at its end. Go on: `{_RUN} {quote(str(directory))}`")


def _tell_rehearsal(done: divided.Tally, target: str, is_json: bool) -> None:
    if is_json:
        as_json(dry_run=True, delivered=done.delivered, stopped=done.stopped)
        return
    text = f"This would deliver {done.delivered} messages to {target}."
    if done.stopped:
        text += f" {done.stopped} sequences would stand still: a message of them cannot be sent as it was received."
    say(f"{text} Nothing was sent.")
