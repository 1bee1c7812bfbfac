"""What every command that changes something has in common: it can be tried, it asks first, and the ledger knows who
did it."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from wsrm_mq.cli.output import say
from wsrm_mq.cli.place import Place
from wsrm_mq.errors import NotAllowed

if TYPE_CHECKING:
    from wsrm_mq.store.transaction import Transaction

C = TypeVar("C", bound=Callable[..., None])


def careful(command: C) -> C:
    """``--dry-run`` and ``--yes``."""
    command = click.option("--dry-run", is_flag=True, help="Say what would happen, change nothing.")(command)
    return click.option("--yes", is_flag=True, help="Do not ask.")(command)


def signed(command: C) -> C:
    """``--actor`` and ``--reason``."""
    actor = click.option("--actor", metavar="NAME", help="Who does it, for the ledger. Default: your login name.")
    reason = click.option("--reason", metavar="TEXT", help="Why, for the ledger. Has to be given.")
    return reason(actor(command))


PLACEHOLDERS: Final = ("TEXT", "FILE", "NEW", "OLD", "...", "…")
"""What stands in a printed command for words of the operator's own."""


def reason_given(reason: str | None, is_dry: bool = False) -> str:
    """The reason; a dry run needs none."""
    if is_dry:
        return reason or ""
    if reason is None or not reason.strip():
        raise NotAllowed('a reason has to be given: --reason "…". It goes to the ledger.')
    if reason.strip() in PLACEHOLDERS:
        raise NotAllowed(f'--reason {reason.strip()} stands for words of your own: --reason "the database is back".')
    return reason


def rehearse(place: Place, verb: Callable[[Transaction], Any], dry_run: bool, *, unconfirmed: bool = False) -> Any:
    """What ``verb`` would answer; nothing is changed. Where it is done next, what forbids that is raised first."""
    from wsrm_mq.store.rehearsal import refuse_unwritable
    from wsrm_mq.store.store import run_once

    if not dry_run:
        refuse_unwritable(place.path, unconfirmed=unconfirmed)
    return run_once(place.path, verb, unconfirmed=unconfirmed, dry_run=True)


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
