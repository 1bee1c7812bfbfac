"""Commands that change something: each can be tried, asks first, and the ledger knows who did it. Those of acts are
made from the registry."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

import click

from wsrm_mq.acts import ACTS, Act, Argument, Kind
from wsrm_mq.acts.messages import DISCARD_LETTER, REDRIVE
from wsrm_mq.acts.sequences import SUBJECT as SEQUENCE
from wsrm_mq.cli import completing
from wsrm_mq.cli.output import Exit, Stopped, as_json, fields, say
from wsrm_mq.cli.place import POSITION, Asking, Place, in_store, over_network, query_argument, shorter_names, together
from wsrm_mq.errors import NotAllowed
from wsrm_mq.views.words import counted

if TYPE_CHECKING:
    from wsrm_mq.replay import acts
    from wsrm_mq.store import port, transaction

R = TypeVar("R")


class Care(NamedTuple):
    """The way in which an operator acts: tried or done, asked or not, by whom and why."""

    dry_run: bool
    yes: bool
    actor: str
    reason: str | None

    def why(self) -> dict[str, Any]:
        """Who acts and why, for the ledger. Raises ``NotAllowed`` where no reason is given; a dry run needs none."""
        reason = self.reason or ""
        if not (self.dry_run or reason.strip()):
            raise NotAllowed('a reason has to be given: --reason "…". It goes to the ledger.')
        if not self.dry_run and reason.strip() in PLACEHOLDERS:
            instead = '--reason "the database is back"'
            raise NotAllowed(f"--reason {reason.strip()} stands for words of your own: {instead}.")
        return {"actor": self.actor, "reason": reason}

    def allows(self, text: str) -> bool:
        """Whether the act is done. In a dry run it is only told; else the operator is asked."""
        if self.dry_run:
            will(text, dry_run=True)
            return False
        ask(f"This will {text}.", self.yes)
        return True


def _caring(*options: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[..., Callable[..., Any]]:
    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_care(
            *args: Any,
            dry_run: bool = False,
            yes: bool = False,
            actor: str | None = None,
            reason: str | None = None,
            **own: Any,
        ) -> Any:
            return command(*args, care=Care(dry_run, yes, actor or login(), reason), **own)

        return together(*options)(with_care)

    return decorate


_YES: Final = click.option("--yes", is_flag=True, help="Do not ask.")
_DRY_RUN: Final = click.option("--dry-run", is_flag=True, help="Say what would happen, change nothing.")
_REASON: Final = click.option("--reason", metavar="TEXT", help="Why, for the ledger. Has to be given.")
_ACTOR: Final = click.option("--actor", metavar="NAME", help="Who does it, for the ledger. Default: your login name.")

acting: Final = _caring(_YES, _DRY_RUN, _REASON, _ACTOR)
"""The options of a command that changes something; it is called with the ``Care`` that they mean. So are these:"""
careful: Final = _caring(_YES, _DRY_RUN)
signed: Final = _caring(_REASON, _ACTOR)
tried: Final = _caring(_DRY_RUN, _ACTOR)
named: Final = _caring(_ACTOR)
begun: Final = _caring(_YES, _REASON, _ACTOR)

PLACEHOLDERS: Final = ("TEXT", "FILE", "NEW", "OLD", "...", "…")
"""Words in a printed command that stand for the operator's own."""


def carry_out(
    place: Place,
    care: Care,
    do: Callable[[bool], R],
    tell: Callable[[R | None], None],
    *,
    is_rehearsed: bool = True,
    unconfirmed: bool = False,
) -> R:
    """Have an act done, or only rehearsed, and answer its result. ``do(True)`` rehearses it; ``tell`` says what the
    result of that means. Where the operator is asked, a rehearsal comes before the question, if the act
    ``is_rehearsed`` then. ``unconfirmed``: the act works also on a store that no service can start on."""
    from wsrm_mq.store import outside

    if care.dry_run:
        result = do(True)
        tell(result)
        return result
    if not care.yes:
        outside.refuse_unwritable(place.path, unconfirmed=unconfirmed)
        tell(do(True) if is_rehearsed else None)
    ask("", care.yes)
    return do(False)


def done(place: Place, care: Care, verb: Callable[[transaction.Transaction], R]) -> R:
    """Have a verb done that needs no question, or only rehearsed, and answer its result."""
    with place.looking():  # one that is no store, or an older one, is told as every command tells it
        pass
    return place.run(verb, dry_run=care.dry_run)


def committed(
    place: Place,
    care: Care,
    verb: Callable[[transaction.Transaction], R],
    says: Callable[[R], str],
    commit: Callable[[], R] | None = None,
) -> R:
    """Have a verb done in a transaction of its own, or only rehearsed, and answer its result. ``says``: the result →
    what the verb does, in words that go on from "This will". ``commit``: does the same in several transactions; then
    the verb is only rehearsed."""
    with place.looking():
        pass

    def do(is_dry: bool) -> R:
        return place.run(verb, dry_run=is_dry) if commit is None or is_dry else commit()

    def tell(result: R | None) -> None:
        will(says(cast("R", result)), care.dry_run)

    return carry_out(place, care, do, tell)


def will(text: str, dry_run: bool) -> None:
    """Say what an act does, before it is asked whether to do it, or in a dry run."""
    say(f"This would {text}. Nothing was changed." if dry_run else f"This will {text}.")


def changed(is_json: bool, dry_run: bool, would: str, did: str, **answer: Any) -> None:
    """Tell of an act that is done without a question: what it would do, or did, and its ``answer`` as JSON."""
    if dry_run:
        will(would, dry_run)
    else:
        say(did)
    if is_json:
        as_json(**answer, dry_run=dry_run)


def ask(text: str, yes: bool) -> None:
    """Go on only if the operator says so."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise NotAllowed("there is no terminal to ask on; say --yes.")
    if text:
        say(text)
    if not click.confirm("Go on?", err=True):
        raise NotAllowed("nothing was changed.")


def login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a process without an account
        return f"uid {os.getuid()}"


NAMED: Final = 5
"""The most sequences that are named before a question."""
SOME: Final = 1_000
"""Acts on so many things are over before a bar would say anything."""


def add_acts(group: click.Group) -> None:
    """Give a group a command for each act on its subject."""
    for act in ACTS:
        if act.subject == group.name:
            group.add_command((_on_sequences if act.subject == SEQUENCE else _on_messages)(act))


# sequences


def _on_sequences(act: Act) -> click.Command:
    def command(place: Place, care: Care, words: tuple[str, ...], **given: Any) -> None:

        def choose(db: port.Database) -> tuple[list[str], str]:
            from wsrm_mq.replay import acts

            chosen = acts.which_sequences(db, " ".join(words))
            shorter = shorter_names(db, chosen[:NAMED])
            return chosen, ", ".join(shorter.get(name, name) for name in chosen[:NAMED])

        _run(act, place, care, choose, given)

    metavar, count = ("SEQUENCE", 1) if act.is_for_one else ("SEQUENCE...", -1)
    complete = completing.values("seq") if act.is_for_one else completing.query
    which = click.argument(
        "words", nargs=count, required=True, metavar=metavar, shell_complete=complete, callback=_as_words
    )
    examples = [f"wsrm-mq {act.subject} {act.name} {one}" for one in act.examples]
    help_ = f"{cleandoc(act.help)}\n\n\b\nExample: " + "\n         ".join(examples)
    return _command(act, help_, which(_with_arguments(act, command)), is_query=not act.is_for_one)


def _as_words(_context: click.Context, _parameter: click.Parameter, given: str | tuple[str, ...]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else given


# messages


def _on_messages(act: Act) -> click.Command:
    def command(place: Place, care: Care, query: str, everything: bool, **given: Any) -> None:
        def choose(_db: port.Database) -> tuple[list[int], str]:
            positions = _positions(place, act, query, everything)
            return positions, counted(len(positions), _NOUNS[act.subject])

        _run(act, place, care, choose, given)

    everything = click.option("--all", "everything", is_flag=True, help="Every message that it fits.")
    examples = "".join(f"\n  wsrm-mq {act.subject} {act.name} {one}" for one in act.examples)
    help_ = f"{cleandoc(act.help)}\n\nQUERY is positions, or words that all have to hold.\n\n\b\nExamples:{examples}"
    return _command(act, help_, everything(query_argument(_with_arguments(act, command))), is_query=True)


def _positions(place: Place, act: Act, query: str, everything: bool) -> list[int]:
    from wsrm_mq.replay import acts

    words = query.split()
    if everything == bool(words):
        raise NotAllowed("say which messages: positions, a query such as queue:/orders, or --all; one of these.")
    if words and all(word.isdecimal() for word in words):
        return list(dict.fromkeys(POSITION(word) for word in words))  # it may have more digits than positions have
    return acts.fitting(place.path, act, query)


_OVER_NETWORK: Final = (REDRIVE, DISCARD_LETTER)
_NOUNS: Final = {"message": "message", "dead-letter": "dead letter"}


# options


def _command(act: Act, help_: str, callback: Callable[..., None], *, is_query: bool) -> click.Command:
    made = click.command(act.name, cls=Asking if is_query else click.Command, help=help_)
    command = in_store(acting(callback))
    return made(over_network(act.name)(command) if act in _OVER_NETWORK else command)


def _with_arguments(act: Act, command: Callable[..., None]) -> Callable[..., None]:
    for argument in reversed(act.arguments):
        for option in reversed(list(_options(argument))):
            command = option(command)
    return command


def _options(one: Argument) -> Iterator[Callable[[Callable[..., None]], Callable[..., None]]]:
    if one.kind is Kind.FLAG:
        for choice in one.choices:
            yield click.option(f"--{choice.word}", one.name, flag_value=choice.word, help=choice.help)
        return
    type_ = {
        Kind.NUMBER: POSITION,
        Kind.TEXT: click.STRING,
        Kind.ONE_OF: click.Choice([choice.word for choice in one.choices]),
    }[one.kind]
    if one.is_named:
        shown: dict[str, Any] = {"default": one.default, "show_default": True} if one.default is not None else {}
        yield click.option(f"--{one.name}", type=type_, help=one.help, **shown)
    else:
        yield click.argument(one.name, type=type_)


def _values(act: Act, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an act, of the words that were given. Raises ``UsageError``."""
    for one in act.arguments:
        if given[one.name] is None and one.missing:
            raise click.UsageError(one.missing)
    if why := act.contradiction(given):
        raise click.UsageError(why)
    values = {one.name: {choice.word: choice.value for choice in one.choices} for one in act.arguments}
    return {name: values[name].get(word, word) for name, word in given.items()}


# doing


def _run(
    act: Act, place: Place, care: Care, choose: Callable[[port.Database], tuple[list[Any], str]], given: dict[str, Any]
) -> None:
    """Do an act as a command. ``choose`` answers the things that it is done to, and what they are called."""
    from wsrm_mq.views import rows

    how, why = _values(act, given), care.why()
    with place.looking() as db:
        things, called = choose(db)
        when, later = ("now", "") if rows.live_instances(db) or not rows.is_served(db) else _AT_START
    is_one, of_sequences = len(things) == 1, act.subject == SEQUENCE

    def told(result: Any) -> str:
        if of_sequences and not is_one:
            others = ", …" if len(things) > NAMED else ""
            return f"{act.to_many.format(**given)} {len(things)} sequences: {called}{others}"
        return place.told(act.does(result, how).format(these=called, when=when, later=later))

    def perform(is_dry: bool) -> list[acts.Done]:
        done = _performed(act, place, things, dry_run=is_dry, **why, **how)
        return [one for one in done if of_sequences or one.refused or is_one]

    def tell(done: list[acts.Done] | None) -> None:
        if things:
            will(told(done[0].result if done and is_one else None), care.dry_run)

    if not things:
        say(f"No {_NOUNS[act.subject]} fits.")
        care = care._replace(yes=True)
    done = carry_out(place, care, perform, tell, is_rehearsed=is_one)
    if of_sequences and is_one:
        if not care.dry_run:
            say(f"Done: {told(done[0].result)}.")
        answer = {"sequence": done[0].thing, **act.answer(done[0].result, how), "dry_run": care.dry_run}
        place.result(answer)
        return
    refused = [one for one in done if one.refused]
    if of_sequences:
        _tell_of_sequences(act, place, done, refused, how, care.dry_run)
    else:
        _tell_of_messages(act, place, len(things), refused, care.dry_run)
    if refused:
        noun = "sequence" if of_sequences else "message"
        raise Stopped(f"refused: {len(refused)} of {counted(len(things), noun)}.", Exit.REFUSED)


_AT_START: Final = ("when the service starts", "; it goes on when the service starts")


def _performed(act: Act, place: Place, things: list[Any], **how: Any) -> Iterator[acts.Done]:
    """Do it, with a bar where there are many and a terminal to draw it on."""
    from wsrm_mq.replay import acts

    is_shown = sys.stderr.isatty() and len(things) > SOME
    count = 0
    with click.progressbar(length=len(things), label=act.name, file=sys.stderr, hidden=not is_shown) as bar:

        def on_progress(things: int) -> None:
            nonlocal count
            count += things
            bar.update(things)

        try:
            yield from acts.perform(place.path, act, things, on_progress=on_progress, **how)
        except KeyboardInterrupt:
            left = f"{count} of {len(things)} are done; the same command does the rest."
            raise Stopped(f"interrupted: {left}", Exit.INTERRUPTED) from None


# telling


def _tell_of_sequences(
    act: Act, place: Place, done: list[acts.Done], refused: list[acts.Done], how: dict[str, Any], dry_run: bool
) -> None:
    changed = [one for one in done if not one.refused]
    if place.is_json:
        as_json(
            done=[{"sequence": one.thing, **act.answer(one.result, how)} for one in changed],
            refused=[{"sequence": one.thing, "why": one.refused} for one in refused],
            dry_run=dry_run,
        )
        return
    fields({"sequences": len(done), "done": len(changed), "refused": len(refused), "dry_run": dry_run}.items())
    fields(("refused", one.refused) for one in refused)


def _tell_of_messages(act: Act, place: Place, count: int, refused: list[acts.Done], dry_run: bool) -> None:
    from wsrm_mq.replay import acts

    told = refused[: acts.REPORTED]
    document = {"act": act.name, "messages": count, "done": count - len(refused), "refusals": len(refused)}
    if place.is_json:
        as_json(**document, refused=[{"position": one.thing, "why": one.refused} for one in told], dry_run=dry_run)
        return
    fields({**document, "dry_run": dry_run}.items())
    fields((f"refused {one.thing}", one.refused) for one in told)
