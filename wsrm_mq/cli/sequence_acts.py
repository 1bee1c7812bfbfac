"""What ``wsrm-mq sequence`` changes: each act says what it will do, asks, and does it; on one sequence or on many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from wsrm_mq.cli import completing
from wsrm_mq.cli.acts import ask, careful, login, reason_given, signed
from wsrm_mq.cli.asking import Asking
from wsrm_mq.cli.exits import Exit, Stopped
from wsrm_mq.cli.output import as_json, fields, is_terminal, say
from wsrm_mq.cli.place import POSITION, Place, in_store, json_option, looking

if TYPE_CHECKING:
    from wsrm_mq.queue.operate import Ended, Forced
    from wsrm_mq.replay.sequences import SequenceAct

Act = Callable[..., "list[SequenceAct]"]
"""An act of ``replay.sequences`` with all its own options: ``act(store, which, actor=, reason=, dry_run=)``."""
Wording = Callable[[Any], str]
"""What an act answers of one sequence → what it does with ``{sequence}``, ``{when}`` the service runs."""

NAMED: Final = 5
"""So many of many sequences are named before it is asked."""


def _acting(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that every act has. SEQUENCE is the name of one or a query for many."""
    words = click.argument("words", nargs=-1, required=True, metavar="SEQUENCE...", shell_complete=completing.query)
    return in_store(json_option(careful(signed(words(command)))))


# the words


def _held(runs: int | None) -> str:
    running = "" if runs is None else f"; number {runs}, which is being run, is let end"
    return f"deliver nothing more of {{sequence}} until it is resumed{running}"


def _resumed(number: int | None) -> str:
    if number is None:
        return "let {sequence} go on; nothing of it waits to be delivered"
    return f"let {{sequence}} go on with number {number} {{when}}"


def _forced(late: str, forced: Forced) -> str:
    count = f"{forced.released} held message{'' if forced.released == 1 else 's'}"
    fate = "is delivered at once, marked late" if late == "accept" else "goes to the dead letters"
    return (
        f"deliver {count} of {{sequence}} up to number {forced.to} {{when}}, without number {forced.missing}: "
        f"what is missing and comes later {fate}"
    )


def _ended(verb: str, left: Ended) -> str:
    fates = [
        *([f"{left.delivers} undelivered to be delivered {{when}}"] if left.delivers else []),
        *([f"{left.gives_up} undelivered to the dead letters"] if left.gives_up else []),
    ]
    lacks = f", which lacks number {left.missing}" if left.missing else ""
    return f"{verb} {{sequence}}{lacks}: it takes no new message; {' and '.join(fates) or 'nothing is undelivered'}"


# the commands


@click.command(cls=Asking)
@_acting
def hold(place: Place, words: tuple[str, ...], **how: Any) -> None:
    """Deliver nothing more until it is resumed. That holds after the end of the sequence too.

    A message that is being run is let end. New ones are still accepted and acknowledged, and wait.

    \b
    Example: wsrm-mq sequence hold 242f14a4 --reason "the backend moves"
             wsrm-mq sequence hold partner:acme --reason "ticket 17"
    """
    from wsrm_mq.replay import sequences

    _act(place, sequences.hold, words, "hold", _held, lambda runs: {"running": runs}, **how)


@click.command(cls=Asking)
@_acting
def resume(place: Place, words: tuple[str, ...], **how: Any) -> None:
    """Try a blocked or held sequence again. Now, or when the service starts if it is stopped; also one that waits for
    a retry; from the first step of its ladder of waits.

    \b
    Example: wsrm-mq sequence resume 242f14a4 --reason "the database is back"
             wsrm-mq sequence resume verdict:blocked --reason "ticket 17"
    """
    from wsrm_mq.replay import sequences

    _act(place, sequences.resume, words, "resume", _resumed, lambda number: {"number": number}, **how)


@click.command()
@in_store
@json_option
@careful
@signed
@click.argument("part", metavar="SEQUENCE", shell_complete=completing.sequences)
@click.argument("number", type=POSITION)
def skip(place: Place, part: str, number: int, **how: Any) -> None:
    """Give up the message that stops a sequence. NUMBER goes to the dead letters, the sequence goes on, if the service
    is stopped when it starts.

    \b
    Example: wsrm-mq sequence skip 242f14a4 4 --reason "no such product"
    """
    from wsrm_mq.replay import sequences

    act = partial(sequences.skip, number=number)
    wording = f"move number {number} of {{sequence}} to the dead letters{{later}}"
    _act(place, act, (part,), "skip", lambda _position: wording, lambda at: {"number": number, "position": at}, **how)


@click.command(cls=Asking)
@_acting
@click.option("--past", type=POSITION, help="Go past the next gap, in which this number is missing.")
@click.option(
    "--to", type=POSITION, help="Go past every gap up to this number. What follows it without a gap goes along."
)
@click.option(
    "--late",
    type=click.Choice(["accept", "refuse"]),
    default="accept",
    show_default=True,
    help="A missing number that comes later is delivered at once, marked late; or goes to the dead letters.",
)
def force(place: Place, words: tuple[str, ...], past: int | None, to: int | None, late: str, **how: Any) -> None:
    """Go on past a gap. What is held up to the next gap is delivered without what is missing. The gap is named, so that
    the same command given twice does not go past another one.

    \b
    Example: wsrm-mq sequence force 242f14a4 --past 3 --reason "it is lost"
             wsrm-mq sequence force 242f14a4 --to 40 --late refuse --reason "why"
    """
    from wsrm_mq.replay import sequences

    if past is not None and to is not None:
        raise click.UsageError("--past goes past one gap, --to past every gap up to a number: choose one.")

    def document(forced: Forced) -> dict[str, Any]:
        return {**forced._asdict(), "late": late}

    act = partial(sequences.force, past=past, to=to, late=late)
    _act(place, act, words, f"force, with --late {late},", partial(_forced, late), document, **how)


@click.command(cls=Asking)
@_acting
def close(place: Place, words: tuple[str, ...], **how: Any) -> None:
    """Close a sequence in its source's stead. It takes no new number, and what is held is delivered across the gaps, or
    given up, as its behavior says. The source learns of it by SequenceClosed, and at once where it has an address for
    acknowledgements. WS-RM 1.0 has no close: terminate.

    \b
    Example: wsrm-mq sequence close 242f14a4 --reason "the partner begins anew"
    """
    from wsrm_mq.replay import sequences

    _act(place, sequences.close, words, "close", partial(_ended, "close"), _ended_document, **how)


@click.command(cls=Asking)
@_acting
@click.option("--drain", "fate", flag_value="drain", help="What was accepted is still delivered, as its behavior says.")
@click.option("--now", "fate", flag_value="now", help="What is undelivered goes to the dead letters.")
def terminate(place: Place, words: tuple[str, ...], fate: str | None, **how: Any) -> None:
    """End a sequence. The source learns of it by SequenceTerminated, with its next message; in WS-RM 1.1 at once where
    it has an address for acknowledgements.

    \b
    Example: wsrm-mq sequence terminate 242f14a4 --drain --reason "ticket 17"
             wsrm-mq sequence terminate 242f14a4 --now --reason "all typed in"
    """
    from wsrm_mq.replay import sequences

    if fate is None:
        raise click.UsageError("say what becomes of what is undelivered: --drain or --now.")
    act = partial(sequences.terminate, drain=fate == "drain")
    _act(place, act, words, f"terminate (--{fate})", partial(_ended, "end"), _ended_document, **how)


@click.command(cls=Asking)
@_acting
def note(place: Place, words: tuple[str, ...], **how: Any) -> None:
    """Write something down about a sequence. `sequence show` shows it.

    \b
    Example: wsrm-mq sequence note 242f14a4 --reason "ACME looks for number 3"
    """
    from wsrm_mq.replay import sequences

    _act(place, sequences.note, words, "note it for", lambda _none: "note it for {sequence}", lambda _none: {}, **how)


ACTS: Final[tuple[click.Command, ...]] = (hold, resume, skip, force, close, terminate, note)


def _ended_document(left: Ended) -> dict[str, Any]:
    return left._asdict()


# how


def _act(
    place: Place,
    act: Act,
    words: Sequence[str],
    verb: str,
    wording: Wording,
    document: Callable[[Any], dict[str, Any]],
    *,
    is_json: bool,
    dry_run: bool,
    yes: bool,
    actor: str | None,
    reason: str | None,
) -> None:
    """Choose, say what the act does, ask, and do it. ``verb`` is what it does with many; ``document`` names the parts
    of what it answers of one."""
    from wsrm_mq.replay.sequences import which_sequences
    from wsrm_mq.store.rehearsal import refuse_unwritable
    from wsrm_mq.views.instances import live_instances
    from wsrm_mq.views.naming import shortened

    why = {"reason": reason_given(reason, dry_run), "actor": actor or login()}
    with looking(place) as db:
        chosen = which_sequences(db, " ".join(words))
        is_served = bool(live_instances(db))
        shorter = shortened(db, chosen[:NAMED]) if is_terminal() else {}
    if not dry_run:
        refuse_unwritable(place.path)
    shown = [shorter.get(name, name) for name in chosen[:NAMED]]
    when, later = ("now", "") if is_served else ("when the service starts", "; it goes on when the service starts")
    if len(chosen) > 1:
        will = f"{verb} {len(chosen)} sequences: {', '.join(shown)}{', …' if len(chosen) > NAMED else ''}"
        return _act_on_many(place, partial(act, **why), chosen, will, document, is_json, dry_run=dry_run, yes=yes)

    def told(one: SequenceAct) -> str:
        return wording(one.result).format(sequence=shown[0], when=when, later=later)

    (rehearsed,) = act(place.path, chosen, **why, dry_run=True)  # whether it fits is known before it is asked
    if dry_run:
        one = rehearsed
        say(f"This would {told(one)}. Nothing was changed.")
    else:
        ask(f"This will {told(rehearsed)}.", yes)
        (one,) = act(place.path, chosen, **why)
        say(f"Done: {told(one)}.")
    answer = {"sequence": one.sequence, **document(one.result), "dry_run": dry_run}
    if is_json:
        as_json(**_jsonable(answer))
    else:
        fields(answer.items())


def _act_on_many(
    place: Place,
    act: Act,
    chosen: list[str],
    will: str,
    document: Callable[[Any], dict[str, Any]],
    is_json: bool,
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    """``will`` is what the act does, for people."""
    from wsrm_mq.views.sentences import counted

    if dry_run:
        say(f"This would {will}. Nothing was changed.")
    else:
        ask(f"This will {will}.", yes)
    acts = act(place.path, chosen, dry_run=dry_run)
    done = [one for one in acts if not one.refused]
    refused = [one for one in acts if one.refused]
    if is_json:
        as_json(
            done=[{"sequence": one.sequence, **_jsonable(document(one.result))} for one in done],
            refused=[{"sequence": one.sequence, "why": one.refused} for one in refused],
            dry_run=dry_run,
        )
    else:
        fields({"sequences": len(acts), "done": len(done), "refused": len(refused), "dry_run": dry_run}.items())
        fields(("refused", one.refused) for one in refused)
    if refused:
        raise Stopped(f"refused: {len(refused)} of {counted(len(acts), 'sequence')}.", Exit.REFUSED)


def _jsonable(answer: dict[str, Any]) -> dict[str, Any]:
    """``missing`` is an ``AckRanges``, which people read as it is."""
    return {name: [list(one) for one in value] if name == "missing" else value for name, value in answer.items()}
