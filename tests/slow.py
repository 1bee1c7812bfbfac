"""The tests that ``make test`` leaves to ``--long``: they take over one second, or are marked ``again``, and no
acceptance row needs them.

``slow.txt`` names the slow ones, the slowest first. ``make slow`` runs the whole suite and writes it anew.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pytest

NAMES: Final = Path(__file__).with_name("slow.txt")
SECONDS: Final = 1.0
ROWS: Final = ("spec", "scenario", "peer", "stomp", "invariant")
_DURATION: Final = re.compile(r"([\d.]+)s (?:setup|call|teardown) +(\S.*)")


def left_out(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """The slow ones of these tests and those marked ``again``, but for those without which a row would be shown by
    none."""
    by_name = {item.nodeid: item for item in items}
    rows = {name: set(_rows(item)) for name, item in by_name.items()}
    shown = Counter(row for of_one in rows.values() for row in of_one)
    found = set()
    again = [name for name, item in by_name.items() if item.get_closest_marker("again")]
    for name in dict.fromkeys([*NAMES.read_text(encoding="utf-8").splitlines(), *again]):
        if name in by_name and all(shown[row] > 1 for row in rows[name]):
            found.add(by_name[name])
            shown.subtract(rows[name])
    return found


def _rows(item: pytest.Item) -> Iterator[str]:
    for kind in ROWS:
        for marker in item.iter_markers(kind):
            yield from marker.args


def slow_ones(lines: Iterable[str]) -> list[str]:
    """The names of slow tests in what ``--durations=0`` prints."""
    seconds: Counter[str] = Counter()
    for line in lines:
        if found := _DURATION.match(line):
            seconds[found[2].rstrip()] += float(found[1])
    return [name for name, took in seconds.most_common() if took >= SECONDS]


if __name__ == "__main__":
    NAMES.write_text("".join(f"{name}\n" for name in slow_ones(sys.stdin)), encoding="utf-8")
