"""Where a command works: the options that say it, and the store opened for looking; the words of a query; and proposals
as lines that can be typed there.

A command that looks makes no file, migrates nothing and takes no lock. What it does in a store it does at a queue
server too, where it can: then its function of ``cli.far`` is called.
"""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from wsrm_mq.acts import Act, Kind, Step, others
from wsrm_mq.cli import completing
from wsrm_mq.cli.output import Column, as_json, is_terminal, listing, prose, result, say, write
from wsrm_mq.errors import SchemaMismatch, StoreCorrupt, StoreError, WSRMError, store_flag, with_flags

if TYPE_CHECKING:
    from wsrm_mq.config import Settings
    from wsrm_mq.queue import policy
    from wsrm_mq.store import port, transaction
    from wsrm_mq.views import query

_LARGEST: Final = 2**63 - 1
POSITION: Final = click.IntRange(1, _LARGEST)
"""A position, or a number of a message: what SQLite can hold, else it is no error of the store."""
BEHIND: Final = click.IntRange(0, _LARGEST)

C = TypeVar("C", bound=Callable[..., Any])
R = TypeVar("R")


def _on_this_machine(_context: click.Context, _parameter: click.Parameter, given: Path) -> Path:
    from wsrm_mq.export import manifest

    return Path(manifest.on_this_machine(str(given)))


directory_argument: Final = click.argument(
    "directory", type=click.Path(path_type=Path, file_okay=False), callback=_on_this_machine
)
"""The argument DIRECTORY: an export or an archive."""
manifest_argument: Final = click.argument("manifest", type=click.Path(path_type=Path), callback=_on_this_machine)
"""The argument MANIFEST: an archive, by its manifest or its directory."""


class Offer(NamedTuple):
    """A proposal as an operator reads it: a line to type as it is, and what it is good for."""

    command: str
    effect: str


class Place(NamedTuple):
    """A store, and how to say it again in a command for the operator to run."""

    path: Path
    flag: str
    settings: Settings
    """As the configuration is where the command runs."""
    is_json: bool
    """The command writes JSON."""

    def run(
        self, verb: Callable[[transaction.Transaction], R], *, dry_run: bool = False, unconfirmed: bool = False
    ) -> R:
        """Run a verb in a transaction of its own, as ``store.outside.run_once`` does."""
        from wsrm_mq.store import outside

        return outside.run_once(self.path, verb, dry_run=dry_run, unconfirmed=unconfirmed)

    def query(self, text: str) -> query.Query:
        """``views.query.parse``; the partners that are configured here are known."""
        from wsrm_mq.views import query

        return query.parse(text, None, partners=self.settings.partners)

    def command(self, text: str) -> str:
        """A command line as ``text``, with the options that name this store."""
        return f"{text}{self.flag}" if text.startswith("wsrm-mq ") else text

    def line(self, step: Step) -> str:
        """A proposal as a line to type, for this store."""
        return self.command(line_of(step))

    def offered(self, steps: Iterable[Step]) -> list[Offer]:
        """Proposals for this store. Where no act works on it, the one that mends this comes first; acts are offered on
        what may be rehearsed alone."""
        found = list(steps)
        if any(map(_acts, found)) and (before := self._before_acts()) is not None:
            step, are_offered = before
            found = [step, *(one for one in found if are_offered or not _acts(one))]
        return [Offer(self.line(step), step.effect) for step in found]

    def _before_acts(self) -> tuple[Step, bool] | None:
        """The step that has to come before any act, and whether acts work then; ``None``: no step has to."""
        from wsrm_mq.store import driver
        from wsrm_mq.store.sqlite import witness

        try:
            with closing(driver.connect_looker(self.path, may_copy=False)) as db:
                if witness.why_unconfirmed(db, self.path) is None or witness.is_for_rehearsal(db, self.path):
                    return None
                if witness.may_be_rehearsed(db, self.path):
                    return others.REHEARSE.step("first: this is a copy; let repairs be tried on it"), True
                effect = "no act works before it is adopted: what that loses"
                return others.ADOPT.step(effect, dry_run=True), False
        except (WSRMError, driver.Error):
            return None

    def told(self, text: str) -> str:
        """``text``, in which commands stand in backquotes, for this store."""
        return with_flags(self.flag, text)

    @contextmanager
    def looking(self, *, any_known: bool = False) -> Iterator[port.Connection]:
        """A read-only connection to a store of the schema that this version works with, or of ``any_known`` one."""
        from wsrm_mq.store import driver
        from wsrm_mq.store.sqlite import connection, schema

        db = driver.connect_looker(self.path)
        if isinstance(db, connection.CopyConnection):
            say(f"{self.path}: nothing can be written beside it; this is what a temporary copy of it shows.")
        try:
            found = schema.revision(db, self.path)
            if found is None and not any_known:
                raise StoreCorrupt(f"{self.path}: is empty.", "Make it a store with `wsrm-mq store init`.")
            if found is not None and found not in schema.KNOWN:
                raise SchemaMismatch(f"{self.path}: has schema {found}, this version knows up to {driver.HEAD}.")
            if found != driver.HEAD and not any_known:
                raise SchemaMismatch(f"{self.path}: has schema {found}, this version works with {driver.HEAD}.", _OLDER)
            with driver.store_errors(self.path):
                yield db
        finally:
            db.close()

    @contextmanager
    def one_look(self) -> Iterator[port.Database]:
        """``looking`` at one state of the store, whatever is committed meanwhile."""
        from wsrm_mq.store import driver

        with self.looking() as db, driver.snapshot(db):
            yield db

    def unconfirmed(self, db: port.Database) -> str | None:
        """Why no service starts on the store before an operator confirms it, and how to; ``None`` where one may."""
        from wsrm_mq.store.sqlite import witness
        from wsrm_mq.views import rows

        if rows.live_instances(db):  # what is served was confirmed
            return None
        doubt = witness.why_unconfirmed(db, self.path)
        return None if doubt is None else f"{doubt.what} {self.told(doubt.hint)}"

    def listing(self, name: str, rows: Sequence[Any], columns: Sequence[str | Column], **how: Any) -> None:
        """``output.listing``, as JSON where the command writes that."""
        listing(self.is_json, name, rows, columns, **how)

    def result(self, document: Mapping[str, Any]) -> None:
        """``output.result``, as JSON where the command writes that."""
        result(self.is_json, document)

    def explain(self, name: str, told: Sequence[tuple[Mapping[str, Any], str, Iterable[Step]]], **others: Any) -> None:
        """Tell why several things are as they are: for each its facts, which JSON has below the key ``name``, the same
        in words, and proposals."""
        if self.is_json:
            as_json(**{name: [{**facts, "next_steps": self.offered(steps)} for facts, _, steps in told]}, **others)
            return
        for _facts, text, steps in told:
            prose(text)
            self.show_steps(steps)

    def policy(self, partner: str | None) -> policy.QueuePolicy:
        """The policy of a partner, as it is configured where the command runs."""
        return self.settings.policy(self.settings.partners.get(partner or ""))

    def show_steps(self, steps: Iterable[Step], shorter: Mapping[str, str] = {}) -> None:
        for count, step in enumerate(self.offered(steps)):
            write(f"{'or:  ' if count else 'next:'} {renamed(step.command, shorter)}")
            write(f"      {step.effect}")


def _acts(step: Step) -> bool:
    return step.command.takes_reason and "dry_run" not in step.arguments


def now_ms() -> int:
    """The time that a command looks at: ms since the epoch."""
    return time.time_ns() // 1_000_000


def configured(config: Path | None, store: str | None = None) -> Settings:
    """The settings of the configuration file, or of that which is found, and of the environment; ``store`` wins."""
    from wsrm_mq.config import loading

    overrides = {} if store is None else {"store": store}
    return loading.load(config or loading.find_file(os.environ), os.environ, **overrides)


def together(*options: Callable[[C], C]) -> Callable[[C], C]:
    """Several options as one decorator, in the order in which help shows them."""

    def decorate(command: C) -> C:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


config_option: Final = click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The configuration file. Default: $WSRM_MQ_CONFIG, else wsrm-mq.toml here if there is one.",
)
json_option: Final = click.option("--json", "is_json", is_flag=True, help="Write JSON.")
after_option: Final = click.option(
    "--after", metavar="POSITION", type=BEHIND, default=0, help="Begin behind this position."
)
limit_option: Final = click.option(
    "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many."
)


paged: Final = together(after_option, limit_option)


def in_store(command: Callable[..., Any], *, with_json: bool = True) -> Callable[..., Any]:
    """Give a command ``--store``, ``--config`` and ``--json``; it is called with the ``Place`` that they mean as first
    argument."""

    @wraps(command)
    def placed(*args: Any, store: str | None, config: Path | None, is_json: bool = False, **options: Any) -> Any:
        from wsrm_mq.store import store as stores

        settings = configured(config, store)
        flag = "" if store is None else store_flag(store)
        flag += "" if config is None else f" --config {shlex.quote(str(config))}"
        place = Place(stores.store_path(settings.store), flag, settings, is_json)
        try:
            return command(place, *args, **options)
        except WSRMError as error:
            error.args = tuple(map(place.told, error.args))
            if isinstance(error, StoreError):
                error.hint = place.told(error.hint)
            raise

    stored = click.option("--store", metavar="PATH", help="The store. Default: the configured one, else wsrm.db.")
    return stored(config_option(json_option(placed) if with_json else placed))


_OLDER: Final = "Bring it up to date with `wsrm-mq store migrate`."


def shorter_names(db: port.Database, identifiers: Iterable[str | None]) -> dict[str, str]:
    """The parts of the identifiers of sequences that commands accept in place of them, where people read; none in a
    pipe."""
    from wsrm_mq.views import naming

    return naming.shortened(db, identifiers) if is_terminal() else {}


def tell_unseen(db: port.Database, asked: query.Query) -> None:
    """Say with an empty answer which names of the query only part of the store was looked at for."""
    from wsrm_mq.views import naming

    for told in naming.unseen(db, asked):
        say(told)


def renamed(command: str, shorter: Mapping[str, str]) -> str:
    """A command with the names by which an operator may call sequences."""
    for identifier, name in shorter.items():
        command = command.replace(identifier, name)
    return command


def line_of(step: Step) -> str:
    """A proposal as a line that can be typed as it is printed; words in capitals stand for words of the operator's
    own."""
    command = step.command
    words = [word for word in ("wsrm-mq", command.subject, command.name) if word]
    words += map(_quoted, step.which)
    options = list[str]()
    for name, value in step.arguments.items():
        for word in _words(step, name, value):
            (options if word.startswith("-") or options else words).append(_quoted(word))
    words += [*command.asks, *options]
    if command.takes_reason and "dry_run" not in step.arguments:
        words += ["--reason", "TEXT"]
    return " ".join(words)


def _words(step: Step, name: str, value: Any) -> Iterator[str]:
    """An argument as an option with its value, or where it has no option as the value alone."""
    known = {one.name: one for one in step.command.arguments} if isinstance(step.command, Act) else {}
    argument = known.get(name)
    if argument is not None and not argument.is_named:
        yield str(value)
    elif argument is not None and argument.kind is Kind.FLAG:
        yield from (f"--{choice.word}" for choice in argument.choices if choice.value == value)
    else:
        yield f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
        if value is not True:
            yield str(value)


def _quoted(word: str) -> str:
    """A word as a shell takes it; control characters, which no terminal is shown, as bash and zsh read them."""
    return shlex.quote(word) if word.isprintable() else f"$'{''.join(map(_spelled, word))}'"


def _spelled(one: str) -> str:
    if one in "\\'":
        return f"\\{one}"
    return one if one.isprintable() else f"\\U{ord(one):08x}"


_NEGATED: Final = re.compile(r"-[a-z]{2,}:")


class Asking(click.Command):
    """A command with a query. ``-key:value`` is a word of it, though it looks like an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        words = [arg for arg in args[:end] if _NEGATED.match(arg)]
        rest = [arg for arg in args[:end] if not _NEGATED.match(arg)]
        words += args[end + 1 :]
        return super().parse_args(ctx, [*rest, "--", *words] if words else rest)


def query_argument(command: C) -> C:
    """``[QUERY]…``; the command is called with ``query``, one text."""
    argument = click.argument("query", nargs=-1, metavar="[QUERY]...", callback=_text, shell_complete=completing.query)
    return argument(command)


def _text(_context: click.Context, _parameter: click.Parameter, words: tuple[str, ...]) -> str:
    return " ".join(words)


def term_option(name: str, key: str, metavar: str, text: str) -> Callable[[C], C]:
    """An option that means the same as ``key`` in a query; the command is called with that."""
    return click.option(name, key, metavar=metavar, help=text, shell_complete=completing.values(key))


_OF_STORES: Final = ("store", "config", "scope", "dry_run", "actor", "reason")
"""The options that are only for a store on this machine."""


def over_network(function: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command ``--server`` and ``--token``: with them the ``function`` of ``cli.far`` is called, with a node of
    the server and whether JSON is wanted."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def placed(*args: Any, server: str | None, token: str | None, **options: Any) -> Any:
            if server is None:
                return command(*args, **options)
            from wsrm_mq import client

            given = [name for name in _OF_STORES if options.pop(name, None)]
            if given:
                raise click.UsageError(f"--{given[0].replace('_', '-')} is for a store here, not for a --server.")

            if not server.startswith(("http://", "https://")):
                raise click.UsageError(f"{server!r} is no address of a queue server: it is https://HOST/PATH.")
            with client.connect(server, "wsrm-mq", token=token or "") as node:
                return getattr(import_module("wsrm_mq.cli.far"), function)(node, *args, **options)

        secret = click.option(
            "--token", metavar="TOKEN", envvar="WSRM_QUEUE_TOKEN", help="For the server. Default: $WSRM_QUEUE_TOKEN."
        )
        where = click.option("--server", metavar="URL", help="At this queue server, in place of a store here.")
        return where(secret(placed))

    return decorate
