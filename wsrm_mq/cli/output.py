"""All that a command prints, and how it ends."""

from __future__ import annotations

import base64
import enum
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from wsrm_mq.errors import (
    ConfigurationError,
    ExportError,
    NotAllowed,
    NotFound,
    QueryError,
    SparkFailed,
    StoreError,
    WSRMError,
)
from wsrm_mq.events.inert import inert
from wsrm_mq.views.words import moment

if TYPE_CHECKING:
    from rich.text import Text


# The exit status, and the error that becomes each.


class Exit(enum.IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    """The state of the thing forbids it, or what makes it safe is missing: --yes, --reason."""
    STORE = 5
    """The store is missing, locked, unreadable, of another version, or awaits confirmation; or an export, or Spark."""
    INTERRUPTED = 130


_BY_ERROR: Final[tuple[tuple[type[WSRMError], Exit], ...]] = (
    (ConfigurationError, Exit.USAGE),
    (QueryError, Exit.USAGE),
    (NotFound, Exit.NOT_FOUND),
    (NotAllowed, Exit.REFUSED),
    (StoreError, Exit.STORE),
    (ExportError, Exit.STORE),
    (SparkFailed, Exit.STORE),
    (WSRMError, Exit.FAILED),
)


class Stopped(click.ClickException):
    """Ends the command with a sentence on standard error, lines ``below`` it, and a status."""

    def __init__(self, message: str, code: Exit, below: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]
        self._below = below

    def show(self, file: Any = None) -> None:
        say(f"wsrm-mq: {self.message}")
        for line in self._below:
            say(f"  {line}", keep="\n")


def stopped(error: BaseException) -> click.ClickException:
    """The end of a command that met ``error``."""
    match error:
        case click.ClickException():
            return error
        case ConfigurationError(problems=(first, *others)):
            return Stopped(first, Exit.USAGE, others)
        case WSRMError():
            code = next(code for kind, code in _BY_ERROR if isinstance(error, kind))
            return Stopped(str(error), code, error.pointed if isinstance(error, QueryError) else ())
        case KeyboardInterrupt() | click.Abort():
            return Stopped("interrupted.", Exit.INTERRUPTED)
        case OSError():
            where = f"{error.filename}: " if error.filename is not None else ""
            return Stopped(f"{where}{error.strerror or error}.", Exit.FAILED)
        case UnicodeEncodeError(reason="surrogates not allowed"):  # what Python makes of such bytes in an argument
            return Stopped(f"{error.object!r} has bytes that are not UTF-8; write it in UTF-8.", Exit.USAGE)
        case Exception() if _is_of_a_store(error):
            return Stopped(f"the store: {error}. `wsrm-mq store verify` says whether it is whole.", Exit.STORE)
        case _:
            return Stopped(f"unexpected: {in_a_line(error)}", Exit.FAILED)


def _is_of_a_store(error: Exception) -> bool:
    from wsrm_mq.store import driver

    return isinstance(error, driver.Error)


def in_a_line(error: BaseException) -> str:
    """An error that is not ours: its type, the first line of what it says, where it was raised, and what shows more."""
    from traceback import extract_tb

    said = next(iter(str(error).splitlines()), "")
    frames = extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {said}{where}. The same words behind `wsrm-mq --debug` show more."


# How a table fits a terminal: values are shown shorter, then cut, then the columns that matter least are left out.
#
# In a pipe each value is whole, and every column is there.

BETWEEN: Final = 2
"""Blanks between two columns."""
PLAIN_SECONDS: Final = 300 * 86_400
"""A day so near is told without its year."""
LEAST: Final = 12
"""A text is cut to so many characters, not fewer."""


def cell(value: object) -> str:
    return "" if value is None else "yes" if value is True else "no" if value is False else inert(value)


class Column(NamedTuple):
    name: str
    least: int | None = LEAST
    """Where there is no room it is cut to so many characters; ``None``: never."""
    keeps_end: bool = False
    """The end of a value is what tells it from others."""
    rank: int = 0
    """Where there is no room at all, columns of the highest rank are left out first."""
    whole: Callable[[Any], object] = lambda value: value
    """The value as it is written into a pipe."""
    short: Callable[[Any], object] | None = None
    """A value on a terminal, where that is another."""
    unit: str = ""
    """The text that a terminal's heading adds to the name."""
    styles: Mapping[str, str] = {}
    """The style of a value on a terminal."""
    of: str | Callable[[Any], object] = ""
    """The field of a row that it shows, or a function of the row; empty: the field is called as the column is."""

    def value(self, row: Any) -> object:
        if not isinstance(self.of, str):
            return self.of(row)
        field = self.of or self.name
        return row[field] if isinstance(row, Mapping) else getattr(row, field)

    def in_pipe(self, value: object) -> str:
        return cell(None if value is None else self.whole(value))

    def on_terminal(self, value: object) -> str:
        return cell(None if value is None else (self.short or self.whole)(value))


def key(name: str, of: str = "", *, rank: int = 0) -> Column:
    """A column with names that commands take as an argument: never cut."""
    return Column(name, None, rank=rank, of=of)


def known(name: str, shorter: Mapping[str, str]) -> Column:
    """Identifiers, shown by the parts that commands accept instead."""
    return Column(name, None, short=lambda value: shorter.get(value, value))


def end_of(name: str, of: str = "", *, rank: int = 0) -> Column:
    """A column with texts that begin alike, as actions of operations do: their ends are kept."""
    return Column(name, keeps_end=True, rank=rank, of=of)


def when(name: str, of: str = "", *, rank: int = 0) -> Column:
    """A column with a time, in ms since the epoch."""
    return Column(name, None, rank=rank, whole=moment, short=_short_moment, unit=" UTC", of=of)


_STYLES: Final = {
    "ok": "green",
    "delivered": "green",
    "running": "cyan",
    "leased": "cyan",
    "waiting": "yellow",
    "silent": "yellow",
    "expiring": "yellow",
    "held": "magenta",
    "faulted": "red",
    "incomplete": "red",
    "dead": "red",
    "blocked": "bold red",
    "ended": "dim",
    "discarded": "dim",
}


def word(name: str, *, rank: int = 0) -> Column:
    """A column with a verdict or a state."""
    return Column(name, None, rank=rank, styles=_STYLES)


def _short_moment(at: int) -> str:
    """Without its year where that is plain, else without the time of day."""
    full = moment(at)
    return full[5:19] if abs(time.time() - at / 1000) < PLAIN_SECONDS else full[:10]


def drawn(columns: Sequence[Column], rows: Sequence[Sequence[object]], width: int) -> tuple[list[Text], list[str]]:
    """The lines of a table that is not wider than ``width`` (its first column has to be), the heading first; and the
    names of the columns that were left out."""
    from rich.cells import cell_len
    from rich.text import Text

    cells = [[column.on_terminal(value) for column, value in zip(columns, row, strict=True)] for row in rows]
    titles = [column.name + column.unit for column in columns]
    natural = [max(map(cell_len, column)) for column in zip(titles, *cells, strict=True)]
    is_number = [all(isinstance(value, int | None) for value in column) for column in zip(*rows, strict=True)]
    widths = _widths(columns, natural, [len(title) for title in titles], width)
    lines = [Text(), *(Text() for _ in cells)]
    for place, room in widths.items():
        column, is_last = columns[place], place == max(widths)
        for line, row in zip(lines, [titles, *cells], strict=True):
            text = _cut(row[place], room, column.keeps_end)
            style = "bold" if line is lines[0] else column.styles.get(row[place], "")
            blanks = " " * (room - cell_len(text))
            to_right = bool(is_number) and is_number[place] and not column.short
            line.append(blanks if to_right else "").append(text, style)
            line.append("" if is_last else " " * BETWEEN if to_right else blanks + " " * BETWEEN)
    return lines, [column.name for place, column in enumerate(columns) if place not in widths]


def _widths(columns: Sequence[Column], natural: Sequence[int], titles: Sequence[int], width: int) -> dict[int, int]:
    """Which columns there is room for, each with its width."""
    least = [
        wide if column.least is None else min(wide, max(column.least, title))
        for column, wide, title in zip(columns, natural, titles, strict=True)
    ]
    shown = list(range(len(columns)))
    while len(shown) > 1 and sum(least[place] + BETWEEN for place in shown) - BETWEEN > width:
        shown.remove(max(shown[1:], key=lambda place: (columns[place].rank, place)))
    widths = {place: natural[place] for place in shown}
    over = sum(wide + BETWEEN for wide in widths.values()) - BETWEEN - width
    while over > 0 and any(widths[place] > least[place] for place in shown):
        widest = max(shown, key=lambda place: widths[place] - least[place])
        widths[widest] -= 1
        over -= 1
    return widths


def _cut(text: str, room: int, keeps_end: bool) -> str:
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= room:
        return text
    if not keeps_end:
        return set_cell_size(text, room - 1).rstrip() + "…"
    while cell_len(text) >= room:
        text = text[1:]
    return f"…{text}"


SCHEMA_VERSION: Final = 1
"""The version of the JSON that commands write; it grows when a key changes its meaning or goes away."""

INDENT: Final = 2
"""Blanks before each line but the first of a sentence that has several."""

LEAST_OF_PROSE: Final = 20
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
    parts = wrap(whole, max(LEAST_OF_PROSE, width), break_on_hyphens=False, break_long_words=False)
    return [part.replace("\0", " ") for part in parts]


def write(text: object, *, keep: str = "") -> None:
    """Write a line of data."""
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
    click.echo(_encoded(document, indent=2))


def as_line(document: Any) -> None:
    """One of several JSON documents, or rows, in a line of its own."""
    click.echo(_encoded(document))


def _encoded(document: Any, **how: Any) -> str:
    """JSON with ranges of numbers as lists."""
    return json.dumps({"schema_version": SCHEMA_VERSION, **_plain(document)}, default=list, **how)


def _plain(value: Any) -> Any:
    """``value`` with each row in it, which is a named tuple, as a mapping."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def table(columns: Sequence[str | Column], rows: Iterable[Any]) -> None:
    """A table of named tuples or mappings, of which each column shows its field: on a terminal as wide as that, else
    with tabs between whole values, its heading first."""
    described = [Column(column) if isinstance(column, str) else column for column in columns]
    listed = [[column.value(row) for column in described] for row in rows]
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


def listing(
    is_json: bool,
    name: str,
    rows: Sequence[Any],
    columns: Sequence[str | Column],
    *,
    limit: int | None = None,
    option: str = "--after",
    of: str = "position",
    document: Callable[[Any], Any] = lambda row: row,
    **others: Any,
) -> None:
    """Rows, which are named tuples or mappings: as one JSON document with the key ``name``, and ``others``; else as a
    table, without these. Where ``limit`` rows are there may be more: the ``option`` with the field ``of`` of the last
    row shows them (with ``--before`` of the first); JSON has its value as ``next``."""
    is_full = limit is not None and len(rows) == limit
    following = Column(of).value(rows[0 if option == "--before" else -1]) if is_full else None
    if is_json:
        others = others if limit is None else {"next": following, **others}
        as_json(**{name: [document(row) for row in rows]}, **others)
        return
    table(columns, rows)
    if is_full:
        say(f"There may be more: {option} {following}")


_TIMES: Final = ("_at", "_since", "_seen", "since", "retry_from")
"""Ends of the names of times."""


def facts(values: Mapping[str, Any]) -> None:
    """The values of a row by their names, a line each: times, which are ms since the epoch, for people, and an error
    line by line."""
    fields((name, value if value is None else _for_people(name, value)) for name, value in values.items())


def _for_people(name: str, value: Any) -> object:
    if name == "last_error":
        return value.rstrip("\n").split("\n")
    return moment(value) if name.endswith(_TIMES) and isinstance(value, int) else value


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


def encoded(content: bytes) -> dict[str, str]:
    """``content`` as JSON can hold it, byte for byte."""
    try:
        return {"encoding": "utf-8", "body": content.decode()}
    except UnicodeDecodeError:
        return {"encoding": "base64", "body": base64.b64encode(content).decode("ascii")}


def into_file(content: bytes, output: Path) -> None:
    try:
        with output.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError as error:
        raise NotAllowed(f"{output} exists already; it stays as it is. Name another file.") from error
    except OSError as error:
        raise Stopped(f"{output} cannot be written: {error.strerror}.", Exit.FAILED) from error
