"""Commands that take a query: its words are their arguments."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from wsrm_mq.cli import completing

C = TypeVar("C", bound=Callable[..., Any])

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
