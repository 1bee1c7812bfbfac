"""Acts on messages: of ``wsrm-mq message`` and of ``wsrm-mq dead-letter``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from wsrm_mq.cli.acts import ask, careful, login, reason_given, signed
from wsrm_mq.cli.asking import Asking, query_argument
from wsrm_mq.cli.exits import Exit, Stopped
from wsrm_mq.cli.output import as_json, fields, say
from wsrm_mq.cli.place import POSITION, Place, in_store, json_option, looking
from wsrm_mq.errors import NotAllowed

if TYPE_CHECKING:
    from wsrm_mq.replay.acts import Acted

SOME: Final = 1_000
"""Acts on so many messages are over before a bar would say anything."""


class Wording(NamedTuple):
    """``will``: what an act does with ``{these}`` messages, ``{when}`` the service runs."""

    will: str
    help: str


WORDING: Final = {
    "redrive": Wording(
        "deliver {these} again {when}",
        """Deliver dead letters again.

        Those of a sequence go in its order. Each keeps the key that the service knows it by, so that what it has done
        already is recognised. One that fails for good is a dead letter again.""",
    ),
    "retry": Wording(
        "try {these} {when}",
        """Try now what waits for a retry, or stops its sequence.

        It is tried from the first step of the ladder of waits.""",
    ),
    "discard": Wording(
        "give {these} up; `wsrm-mq message restore` undoes that while they are kept",
        """Give up messages that are not delivered.

        Dead letters, and what is not settled and does not run now: its sequence goes on without it. `message restore`
        undoes it as long as the message is kept (`retain`).""",
    ),
    "restore": Wording(
        "bring {these} back as what they were",
        """Bring back what an operator has discarded.

        It is what it was: a dead letter, or a message that waits. Into a sequence in order only where nothing behind it
        was delivered.""",
    ),
    "confirm": Wording(
        "confirm {these}: they stay, and alarm no more",
        """Say that messages are known: they alarm no more.

        Dead letters, and messages that were answered with a fault. They stay as they are.""",
    ),
}

Check = Callable[[Place, list[int]], None]
"""Raises where one of the positions that were given is not to be acted on."""


def add_act(
    group: click.Group, name: str, noun: str, *, only: str = "", check: Check = lambda _place, _all: None
) -> None:
    """Give ``group`` the act ``name`` on what ``noun`` means; a query is narrowed by ``only``."""
    help_ = (
        WORDING[name].help
        + f"""

        QUERY is positions, or words that all have to hold.

        \b
        Examples:
          wsrm-mq {group.name} {name} 42 43 --reason "the service is repaired"
          wsrm-mq {group.name} {name} queue:/orders age:1h --reason "ticket 17"
        """
    )

    @group.command(name, cls=Asking, help=help_)
    @in_store
    @json_option
    @careful
    @signed
    @click.option("--all", "everything", is_flag=True, help="Every message that it fits.")
    @query_argument
    def command(place: Place, is_json: bool, query: str, everything: bool, **how: Any) -> None:
        positions, by_query = _chosen(place, name, query, only, everything)
        if not by_query:
            check(place, positions)
        _act(place, name, noun, positions, is_json, **how)


def _chosen(place: Place, name: str, query: str, only: str, everything: bool) -> tuple[list[int], bool]:
    """The positions that are meant, and whether a query said so."""
    from wsrm_mq.replay import which_messages

    words = query.split()
    if everything == bool(words):
        raise NotAllowed("say which messages: positions, a query such as queue:/orders, or --all; one of these.")
    if words and all(word.isdecimal() for word in words):
        return list(dict.fromkeys(_position(word) for word in words)), False
    return which_messages(place.path, name, f"{query} {only}"), True


def _position(word: str) -> int:
    position: int = POSITION(word)  # it may have more digits than there are positions
    return position


def _act(
    place: Place,
    name: str,
    noun: str,
    positions: list[int],
    is_json: bool,
    *,
    dry_run: bool,
    yes: bool,
    actor: str | None,
    reason: str | None,
) -> None:
    """Say what it does, ask, and do it."""
    from wsrm_mq.store.rehearsal import refuse_unwritable
    from wsrm_mq.views.instances import live_instances

    why = {"reason": reason_given(reason, dry_run), "actor": actor or login()}
    with looking(place) as db:
        when = "now" if live_instances(db) else "when the service starts"
    if not dry_run:
        refuse_unwritable(place.path)
    these = f"1 {noun}" if len(positions) == 1 else f"{len(positions)} {noun}s"
    will = place.told(WORDING[name].will.format(these=these, when=when))
    if not positions:
        say(f"No {noun} fits.")
        done = _perform(place, name, positions, dry_run=dry_run, **why)
    elif dry_run:
        done = _perform(place, name, positions, dry_run=True, **why)
        say(f"This would {will}. Nothing was changed.")
    else:
        if len(positions) == 1:  # whether it fits is known before it is asked
            _perform(place, name, positions, dry_run=True, **why)
        ask(f"This will {will}.", yes)
        done = _perform(place, name, positions, dry_run=False, **why)
    _report(name, positions, done, dry_run, is_json)


def _perform(place: Place, name: str, positions: list[int], *, dry_run: bool, **why: str) -> Acted:
    """With a bar, where there are many and a terminal to draw it on."""
    from wsrm_mq import replay

    act: Callable[..., Acted] = getattr(replay, name)
    if len(positions) == 1:
        return act(place.path, positions[0], dry_run=dry_run, **why)
    is_shown = sys.stderr.isatty() and len(positions) > SOME
    count = 0
    with click.progressbar(length=len(positions), label=name, file=sys.stderr, hidden=not is_shown) as bar:

        def on_progress(messages: int) -> None:
            nonlocal count
            count += messages
            bar.update(messages)

        try:
            return act(place.path, positions, dry_run=dry_run, on_progress=on_progress, **why)
        except KeyboardInterrupt:
            left = f"{count} of {len(positions)} are done; the same command does the rest."
            raise Stopped(f"interrupted: {left}", Exit.INTERRUPTED) from None


def _report(name: str, positions: list[int], done: Acted, dry_run: bool, is_json: bool) -> None:
    from wsrm_mq.views.sentences import counted

    document = {"act": name, "messages": len(positions), "done": done.done, "refusals": done.refusals}
    if is_json:
        as_json(**document, refused=[one._asdict() for one in done.refused], dry_run=dry_run)
    else:
        fields({**document, "dry_run": dry_run}.items())
        fields((f"refused {one.position}", one.why) for one in done.refused)
    if done.refusals:
        raise Stopped(f"refused: {done.refusals} of {counted(len(positions), 'message')}.", Exit.REFUSED)
