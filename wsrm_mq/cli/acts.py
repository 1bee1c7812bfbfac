"""The options and questions of every command that changes something: it can be tried, it asks first, and the ledger
knows who did it."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

import click

from wsrm_mq.cli.output import as_json, say
from wsrm_mq.cli.place import Place, looking, together
from wsrm_mq.errors import NotAllowed

if TYPE_CHECKING:
    from wsrm_mq.store.transaction import Transaction

R = TypeVar("R")


dry_run_option: Final = click.option("--dry-run", is_flag=True, help="Say what would happen, change nothing.")
actor_option: Final = click.option(
    "--actor", metavar="NAME", help="Who does it, for the ledger. Default: your login name."
)
careful: Final = together(click.option("--yes", is_flag=True, help="Do not ask."), dry_run_option)
signed: Final = together(
    click.option("--reason", metavar="TEXT", help="Why, for the ledger. Has to be given."), actor_option
)


class Care(NamedTuple):
    """The way in which an operator acts: tried or done, asked or not, by whom and why."""

    dry_run: bool
    yes: bool
    actor: str
    reason: str | None

    def why(self) -> dict[str, Any]:
        """Who acts and why, for the ledger. Raises ``NotAllowed`` where no reason is given; a dry run needs none."""
        return {"actor": self.actor, "reason": reason_given(self.reason, self.dry_run)}


def acting(command: Callable[..., None]) -> Callable[..., None]:
    """The options of ``careful`` and ``signed``; the command is called with the ``Care`` that they mean."""

    @wraps(command)
    def with_care(*args: Any, dry_run: bool, yes: bool, actor: str | None, reason: str | None, **own: Any) -> None:
        command(*args, care=Care(dry_run, yes, actor or login(), reason), **own)

    return careful(signed(with_care))


PLACEHOLDERS: Final = ("TEXT", "FILE", "NEW", "OLD", "...", "…")
"""Words in a printed command that stand for the operator's own."""


def reason_given(reason: str | None, is_dry: bool = False) -> str:
    """The reason that an operator gives; a dry run needs none."""
    if is_dry:
        return reason or ""
    if reason is None or not reason.strip():
        raise NotAllowed('a reason has to be given: --reason "…". It goes to the ledger.')
    if reason.strip() in PLACEHOLDERS:
        raise NotAllowed(f'--reason {reason.strip()} stands for words of your own: --reason "the database is back".')
    return reason


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
    from wsrm_mq.store.outside import refuse_unwritable

    if care.dry_run:
        result = do(True)
        tell(result)
        return result
    if not care.yes:
        refuse_unwritable(place.path, unconfirmed=unconfirmed)
        tell(do(True) if is_rehearsed else None)
    ask("", care.yes)
    return do(False)


def committed(place: Place, care: Care, verb: Callable[[Transaction], R], says: Callable[[R], str]) -> R:
    """Have a verb done in a transaction of its own, or only rehearsed, and answer its result. ``says``: the result →
    what the verb does, in words that go on from "This will"."""
    with looking(place):  # one that is no store, or an older one, is told as every command tells it
        pass

    def tell(result: R | None) -> None:
        will(says(cast("R", result)), care.dry_run)

    return carry_out(place, care, lambda is_dry: place.run(verb, dry_run=is_dry), tell)


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
