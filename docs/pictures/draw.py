"""Draws the pictures of README and documentation: ``make pictures`` writes the SVG files beside it.

Each has a ground of its own, light or dark as its reader's screen is, so it can be read wherever it is shown.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
ROOMS = HERE.parent.parent / "ROOMS.md"
LIGHT = {
    "paper": "#ffffff",
    "ink": "#1f2933",
    "soft": "#52606d",
    "plain": "#eef2f7",
    "good": "#d7f0dd",
    "waits": "#fdeebf",
    "bad": "#fbdcd8",
}
DARK = {
    "paper": "#14181d",
    "ink": "#e8ecf0",
    "soft": "#aab5c1",
    "plain": "#28313b",
    "good": "#17492a",
    "waits": "#55430f",
    "bad": "#5a211c",
}
"""Of both: ground, text, text of lesser weight, and what boxes are filled with."""


def style(colours: dict[str, str]) -> str:
    fills = "".join(f".{name}{{fill:{colour}}}" for name, colour in colours.items())
    return fills + f".line{{stroke:{colours['soft']};stroke-width:1.5;fill:none}}.box{{stroke:{colours['soft']}}}"


def picture(title: str, width: int, height: int, parts: Iterable[str]) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
            f' role="img" aria-label="{escape(title)}" font-family="system-ui, sans-serif" font-size="14">',
            f"<title>{escape(title)}</title>",
            f"<style>{style(LIGHT)}@media (prefers-color-scheme: dark){{{style(DARK)}}}</style>",
            '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8"'
            ' orient="auto">'
            '<path class="soft" d="M0 0L10 5L0 10z"/></marker></defs>',
            f'<rect class="paper" width="{width}" height="{height}" rx="10"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def text(x: float, y: float, said: str, *, of: str = "ink", anchor: str = "middle", bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text class="{of}" x="{x:g}" y="{y:g}" text-anchor="{anchor}"{weight}>{escape(said)}</text>'


def box(x: float, y: float, width: float, height: float, *lines: str, of: str = "plain", bold: bool = True) -> str:
    """The first of its lines is its name."""
    top = y + height / 2 - 9 * (len(lines) - 1) + 5
    said = [
        text(x + width / 2, top + 18 * at, line, of="ink" if at == 0 else "soft", bold=bold and at == 0)
        for at, line in enumerate(lines)
    ]
    return f'<rect class="{of} box" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"/>' + "".join(said)


def arrow(*points: tuple[float, float]) -> str:
    path = "M" + "L".join(f"{x:g} {y:g}" for x, y in points)
    return f'<path class="line" d="{path}" marker-end="url(#tip)"/>'


# 3 comes last

ARRIVALS = (
    # number, what is acknowledged, held, delivered now
    (1, "1", (), (1,)),
    (2, "1–2", (), (2,)),
    (4, "1–2, 4", (4,), ()),
    (5, "1–2, 4–5", (4, 5), ()),
    (3, "1–5", (), (3, 4, 5)),
)


def gap() -> str:
    left, column, rows = 150, 132, {"comes": 70, "acknowledged": 128, "held": 186, "the service gets": 244}
    parts = [text(24, y + 5, name, of="soft", anchor="start") for name, y in rows.items()]
    for at, (number, acknowledged, held, delivered) in enumerate(ARRIVALS):
        x = left + column * at + column / 2
        parts += [
            _numbers(x, rows["comes"], (number,), "plain"),
            text(x, rows["acknowledged"] + 5, acknowledged),
            _numbers(x, rows["held"], held, "waits"),
            _numbers(x, rows["the service gets"], delivered, "good"),
        ]
    first, last = left + 2 * column, left + 4 * column
    parts += [
        text((first + last) / 2, 30, "a gap: 3 is missing", of="soft"),
        f'<path class="line" d="M{first + 6} 46v-6H{last - 6}v6"/>',
        text(last + column / 2, 30, "3 fills it", of="soft"),
        text(24, 292, "Each is stored before it is acknowledged. What is behind the gap waits.", anchor="start"),
    ]
    return picture("A gap, what is held behind it, and its replay", 830, 312, parts)


def _numbers(x: float, y: float, numbers: tuple[int, ...], of: str) -> str:
    """A box for each, around ``x``."""
    start = x - 19 * len(numbers)
    return "".join(box(start + 38 * at + 3, y - 17, 32, 34, str(number), of=of) for at, number in enumerate(numbers))


# the way of a message


def way() -> str:
    parts = [
        box(24, 60, 120, 66, "RM Source", "the partner"),
        box(244, 60, 150, 66, "read", "headers only"),
        box(474, 60, 150, 66, "commit", "message, number", of="good"),
        box(474, 196, 150, 66, "deliver", "in order, a thread"),
        box(704, 196, 130, 66, "your service", "Spyne, Django"),
        box(244, 196, 150, 66, "tried again", "1, 5, 15, 60, 300 s", of="waits"),
        box(24, 182, 150, 40, "blocked", of="bad"),
        box(24, 236, 150, 40, "dead letter", of="bad"),
        box(704, 60, 130, 66, "held", "behind a gap", of="waits"),
        arrow((144, 84), (244, 84)),
        text(194, 76, "message", of="soft"),
        arrow((394, 93), (474, 93)),
        arrow((549, 60), (549, 30), (84, 30), (84, 60)),
        text(316, 22, "acknowledgement: only when it is on disk", of="soft"),
        arrow((549, 126), (549, 196)),
        text(541, 166, "its turn", of="soft", anchor="end"),
        arrow((624, 93), (704, 93)),
        text(664, 84, "not yet", of="soft"),
        arrow((769, 126), (769, 160), (594, 160), (594, 196)),
        text(680, 152, "the gap is filled", of="soft"),
        arrow((624, 220), (704, 220)),
        arrow((704, 244), (624, 244)),
        text(664, 270, "taken", of="soft"),
        arrow((474, 220), (394, 220)),
        text(434, 212, "fails", of="soft"),
        arrow((394, 244), (474, 244)),
        arrow((244, 214), (174, 202)),
        arrow((244, 244), (174, 256)),
        text(24, 306, "A crash at any point: what is stored is delivered after the restart.", anchor="start"),
        text(24, 326, "What is not stored is not acknowledged: its source sends it again.", anchor="start"),
    ]
    return picture("The way of a message", 858, 344, parts)


# who owns a sequence

STEPS = (
    # who, what it does, what the store has then; without that it happens in the process
    ("A", "a message; its claim", "A, fence 7"),
    ("A", "runs number 1", None),
    ("A", "kill -9: A's lock is free", None),
    ("B", "A's lock is free: claim", "B, fence 8"),
    ("B", "1 again, as a redelivery", None),
    ("B", "number 1 is done", "settled"),
)


def owner() -> str:
    at, names = {"A": 140, "store": 430, "B": 720}, {"A": "process A", "store": "the store", "B": "process B"}
    bottom = 96 + 46 * len(STEPS)
    parts = [f'<path class="line" stroke-dasharray="3 5" d="M{x} 62V{bottom - 20}"/>' for x in at.values()]
    parts += [box(x - 70, 24, 140, 38, names[who]) for who, x in at.items()]
    for row, (who, said, left) in enumerate(STEPS):
        x, y = at[who], 100 + 46 * row
        if left is None:
            of = "bad" if "kill" in said else "plain"
            parts.append(box(x - 120, y - 17, 240, 34, said, of=of, bold=False))
        else:
            end = at["store"] + (60 if x > at["store"] else -60)
            parts += [
                arrow((x, y), (end, y)),
                text((x + end) / 2, y - 7, said, of="soft"),
                box(at["store"] - 60, y - 17, 120, 34, left, of="good"),
            ]
    parts += [
        text(
            24, bottom + 8, "One thread of one process runs a sequence. A lock ends with its process.", anchor="start"
        ),
        text(24, bottom + 28, "The fence has grown: what a former owner still writes is refused.", anchor="start"),
    ]
    return picture("Who owns a sequence", 870, bottom + 46, parts)


# the rooms, from the table of what each may import


def rooms() -> str:
    table = [row.split("|")[1:3] for row in ROOMS.read_text(encoding="utf-8").partition("|---|")[2].splitlines()[1:]]
    names = [(_quoted(named), may_import) for named, may_import in table]
    imports: dict[str, set[str]] = {}
    for named, may_import in names:
        found = set(imports) if may_import.strip().startswith("everything") else set(_quoted(may_import))
        imports |= dict.fromkeys(named, found)

    @cache
    def storey(room: str) -> int:
        return 1 + max((storey(one) for one in imports[room] if room not in imports.get(one, ())), default=-1)

    storeys: dict[int, list[str]] = defaultdict(list)
    for room in imports:
        storeys[storey(room)].append(room)
    optional = set([*imports][[*imports].index("serving") + 1 :])
    width, top = 24 + 116 * max(map(len, storeys.values())), 44 * len(storeys)
    parts = [
        box((width - 116 * len(row)) / 2 + 116 * at + 4, top - 44 * level, 108, 34, room, bold=False, of=of)
        for level, row in sorted(storeys.items())
        for at, room in enumerate(row)
        for of in ("waits" if room in optional else "plain",)
    ]
    parts += [
        text(24, top + 62, "A room imports only from storeys below its own.", of="soft", anchor="start"),
        text(24, top + 82, "Yellow ones are optional: no grey one imports them.", of="soft", anchor="start"),
    ]
    return picture("The rooms, in storeys", width, top + 100, parts)


def _quoted(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


PICTURES = {"gap": gap, "way": way, "owner": owner, "rooms": rooms}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (HERE / f"{name}.svg").write_text(draw(), encoding="utf-8")
