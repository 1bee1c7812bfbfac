"""What the commands write: data on standard output, talk on standard error.

Text of a peer is never trusted with the terminal: control characters are shown as escapes, markup is not read.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

import click

from wsrm_mq.events.inert import inert

__all__ = ["SCHEMA_VERSION", "as_json", "fields", "inert", "is_terminal", "say", "table", "write"]

SCHEMA_VERSION: Final = 1
"""Of the JSON that commands write; grows when a key changes its meaning or goes away."""

FOLDED: Final = 13
"""A column of a drawn table is folded to this width, not narrower."""
BETWEEN: Final = 3
"""Between two columns."""


def is_terminal() -> bool:
    return sys.stdout.isatty()


def say(text: object, *, keep: str = "") -> None:
    """A line of talk."""
    click.echo(inert(text, keep=keep), err=True)


def write(text: object, *, keep: str = "") -> None:
    """A line of data."""
    click.echo(inert(text, keep=keep))


def as_json(**document: Any) -> None:
    """One JSON document. It is ASCII, so nothing in it can act on a terminal."""
    click.echo(json.dumps({"schema_version": SCHEMA_VERSION, **document}, indent=2))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table: drawn on a terminal, else one line a row with tabs between, its header first. On a terminal too narrow
    for that each row is a block of lines: words broken letter by letter cannot be read."""
    cells = [[_cell(value) for value in row] for row in rows]
    if not is_terminal():
        for line in [list(columns), *cells]:
            click.echo("\t".join(line))
        return
    from rich import box
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    widths = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    if sum(min(width, FOLDED) + BETWEEN for width in widths) > console.width:
        for line in cells:
            fields(zip(columns, line, strict=True))
            click.echo()
        return
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column, width in zip(columns, widths, strict=True):
        drawn.add_column(Text(column), overflow="fold", no_wrap=width <= FOLDED)
    for line in cells:
        drawn.add_row(*map(Text, line))
    console.print(drawn)


def fields(pairs: Iterable[tuple[str, object]]) -> None:
    """Name and value a line; a value that is a list has its items below each other."""
    lists = [(name, value if isinstance(value, list) else [value]) for name, value in pairs]
    width = max((len(name) for name, _ in lists), default=0)
    for name, items in lists:
        for place, item in enumerate(items):
            click.echo(f"{'' if place else name:<{width}}  {_cell(item)}".rstrip())


def _cell(value: object) -> str:
    return "" if value is None else "yes" if value is True else "no" if value is False else inert(value)
