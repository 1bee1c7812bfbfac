"""How a table fits a terminal: values are shown shorter, then cut, then the columns that matter least are left out.

In a pipe each value is whole, and every column is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from wsrm_mq.events.inert import inert
from wsrm_mq.views.words import moment

if TYPE_CHECKING:
    from rich.text import Text

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
    """A value in a pipe."""
    short: Callable[[Any], object] | None = None
    """A value on a terminal, where that is another."""
    unit: str = ""
    """What a terminal's heading adds to the name."""
    styles: Mapping[str, str] = {}
    """The style of a value on a terminal."""

    def in_pipe(self, value: object) -> str:
        return cell(None if value is None else self.whole(value))

    def on_terminal(self, value: object) -> str:
        return cell(None if value is None else (self.short or self.whole)(value))


def key(name: str, *, rank: int = 0) -> Column:
    """What commands take as an argument: never cut."""
    return Column(name, None, rank=rank)


def known(name: str, shorter: Mapping[str, str], *, rank: int = 0) -> Column:
    """Identifiers, shown by the parts that commands accept instead."""
    return Column(name, None, rank=rank, short=lambda value: shorter.get(value, value))


def end_of(name: str, *, rank: int = 0) -> Column:
    """Texts that begin alike: the action of an operation."""
    return Column(name, keeps_end=True, rank=rank)


def when(name: str, *, rank: int = 0) -> Column:
    """A time, in ms since the epoch."""
    return Column(name, None, rank=rank, whole=moment, short=_short_moment, unit=" UTC")


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
    """A verdict or a state."""
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
