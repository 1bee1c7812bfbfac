"""What the commands write: data on standard output, talk on standard error.

Text of a peer is never trusted with the terminal: control characters are shown as escapes, markup is not read.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import click

from wsrm_mq.cli.columns import Column, cell, drawn
from wsrm_mq.events.inert import inert

__all__ = [
    "SCHEMA_VERSION",
    "as_json",
    "as_line",
    "fields",
    "inert",
    "is_terminal",
    "prose",
    "result",
    "say",
    "table",
    "write",
]

SCHEMA_VERSION: Final = 1
"""Of the JSON that commands write; grows when a key changes its meaning or goes away."""

INDENT: Final = 2
"""Blanks before each line but the first of a sentence that has several."""

LEAST: Final = 20
"""Characters in a line of prose, however narrow the terminal is."""


def is_terminal() -> bool:
    return sys.stdout.isatty()


def say(text: object, *, keep: str = "") -> None:
    """A line of talk. On a terminal in lines that fit, unless it is laid out: it has what is to ``keep``."""
    line = inert(text, keep=keep)
    if sys.stderr.isatty() and not keep:
        for count, part in enumerate(_fitting(line, shutil.get_terminal_size().columns - INDENT)):
            click.echo(f"{'' if not count else ' ' * INDENT}{part}", err=True)
    else:
        click.echo(line, err=True)


def _fitting(line: str, width: int) -> list[str]:
    """Lines of at most ``width`` characters, but that a command in backquotes stays in one, to be copied."""
    from textwrap import wrap

    whole = re.sub("`[^`]*`", lambda command: command[0].replace(" ", "\0"), line)
    parts = wrap(whole, max(LEAST, width), break_on_hyphens=False, break_long_words=False)
    return [part.replace("\0", " ") for part in parts]


def write(text: object, *, keep: str = "") -> None:
    """A line of data."""
    click.echo(inert(text, keep=keep))


def prose(text: str, head: str = "", *, margin: int = 0, style: str = "") -> None:
    """A sentence. On a terminal in lines that fit, ``margin`` blanks before each but the first: there ``head`` stands,
    in its ``style``. In a pipe it is one line."""
    line = inert(text)
    if not is_terminal():
        click.echo(f"{head:<{margin}}{line}")
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, markup=False, emoji=False)
    for part in _fitting(line, console.width - margin):
        console.print(Text(f"{head:<{margin}}", style).append(part, "not bold default"), soft_wrap=True)
        head = ""


def as_json(**document: Any) -> None:
    """One JSON document. It is ASCII, so nothing in it can act on a terminal."""
    click.echo(json.dumps({"schema_version": SCHEMA_VERSION, **document}, indent=2))


def as_line(document: Mapping[str, Any]) -> None:
    """One of several JSON documents, in a line of its own."""
    click.echo(json.dumps({"schema_version": SCHEMA_VERSION, **document}))


def table(columns: Sequence[str | Column], rows: Iterable[Sequence[object]]) -> None:
    """A table, a line a row: on a terminal as wide as that, else with tabs between whole values, its heading first."""
    described = [Column(column) if isinstance(column, str) else column for column in columns]
    listed = list(rows)
    if not is_terminal():
        click.echo("\t".join(column.name for column in described))
        for row in listed:
            click.echo("\t".join(column.in_pipe(value) for column, value in zip(described, row, strict=True)))
        return
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    lines, left_out = drawn(described, listed, console.width)
    for line in lines:
        console.print(line, soft_wrap=True)
    if left_out:
        say(f"No room for {', '.join(left_out)}; --json has all.")


def result(is_json: bool, document: Mapping[str, Any]) -> None:
    """One JSON document, or name and value a line."""
    if is_json:
        as_json(**document)
    else:
        fields(document.items())


def fields(pairs: Iterable[tuple[str, object]]) -> None:
    """Name and value a line; a value that is a list has its items below each other."""
    lists = [(name, value if isinstance(value, list) else [value]) for name, value in pairs]
    width = max((len(name) for name, _ in lists), default=0)
    for name, items in lists:
        for place, item in enumerate(items):
            click.echo(f"{'' if place else name:<{width}}  {cell(item)}".rstrip())
