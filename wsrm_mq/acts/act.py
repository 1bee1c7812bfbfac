"""The form of an act: all that a command, a button or a request needs to know of it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from wsrm_mq.store.transaction import Transaction

Arguments = Mapping[str, Any]
"""The arguments of an act by their names."""


class Kind(enum.Enum):
    """The type of an argument."""

    NUMBER = enum.auto()
    """A whole number from 1 on."""
    TEXT = enum.auto()
    ONE_OF = enum.auto()
    """One of its choices."""
    FLAG = enum.auto()
    """One of its choices, each with a button or an option of its own."""


class Choice(NamedTuple):
    """A value that an argument may have, under a word for people."""

    word: str
    value: Any
    help: str = ""


class Argument(NamedTuple):
    """An argument of an act, beside the things that it is done to and the reason."""

    name: str
    kind: Kind
    help: str = ""
    choices: tuple[Choice, ...] = ()
    default: str | None = None
    is_named: bool = True
    """On a command line it is an option; else it follows the name of the thing, and has to be given."""
    missing: str = ""
    """The error where it has to be given, and is not."""


@dataclass(frozen=True, slots=True)
class Command:
    """Something to do or to look at, by the name that it has on the command line: ``wsrm-mq SUBJECT NAME``."""

    subject: str
    name: str
    takes_reason: bool = False
    """The act changes something, and a reason for it has to be given, for the ledger."""
    asks: tuple[str, ...] = ()
    """Names of things that only the operator knows, where a proposal does not name them."""

    def step(self, effect: str, *which: str, **arguments: Any) -> Step:
        """Propose it: for the things named by ``which``, with these ``arguments``."""
        return Step(self, effect, which, arguments)


class Step(NamedTuple):
    """A proposal to an operator: a command with its arguments."""

    command: Command
    effect: str
    """The purpose of doing it."""
    which: tuple[str, ...] = ()
    """The things that it is about: identifiers, positions, or the words of a query."""
    arguments: Mapping[str, Any] = {}


Verb = Callable[..., Any]
"""``verb(tx, thing, *, actor, reason, **arguments)``: does the act in the transaction, and answers what came of it.
Raises ``NotFound``, or ``NotAllowed`` where the act does not fit the thing; then nothing is changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Act(Command):
    """An act of an operator. What it does not fit is refused by its verb, so a rehearsal tells that beforehand."""

    takes_reason: bool = True
    verb: str
    """Where its verb is, as ``MODULE:NAME``."""
    does: Callable[[Any, Arguments], str]
    """The result for one thing and the arguments → what the act does, in words that go on from "This will …". In them
    stand ``{these}`` for the things, ``{when}`` for the moment at which the service is at it, and ``{later}`` for a
    clause that says when, where the service does not run."""
    to_many: str = ""
    """Its words for many things, where these are others: a verb, which their number follows. It may name
    arguments."""
    answer: Callable[[Any, Arguments], Mapping[str, Any]] = lambda _result, _arguments: {}
    """The result for one thing and the arguments → the parts of the result by their names."""
    help: str = ""
    """Its description, at length."""
    examples: tuple[str, ...] = ()
    """Words of the command line that follow its name."""
    arguments: tuple[Argument, ...] = ()
    is_for_one: bool = False
    """It is done to one thing at a time."""
    fits: tuple[Mapping[str, str], ...] = ({},)
    """The things that it fits, where a query says which: alternatives of further words of the query, by their keys."""
    has_failed: bool = False
    """Among the messages of a query it fits only those that have failed."""
    contradiction: Callable[[Arguments], str] = lambda _arguments: ""
    """The arguments → why they do not go together; empty if they do."""
    batch: int = 200
    """The largest number of things in one transaction."""
    remainder: Callable[[Transaction], int] | None = None
    """A verb that does some of what the act leaves, and answers how much that was. A process of the service calls it
    until nothing is left; where none lives, the caller of the act does."""

    def load(self) -> Verb:
        """The verb, whose module is imported for it: a command tells of an act without one."""
        loaded: Verb = resolve_name(self.verb)
        return loaded

    def step(self, effect: str, *which: str, **arguments: Any) -> Step:
        """Propose it. Raises ``TypeError`` for an argument that it does not have."""
        if unknown := set(arguments) - {one.name for one in self.arguments} - DRY:
            raise TypeError(f"{self.subject} {self.name} has no argument {', '.join(unknown)}")
        return Step(self, effect, which, arguments)


DRY: Final = frozenset({"dry_run"})
"""An argument of every act: it says what it would do, and changes nothing."""
