"""What was measured, as plain numbers, and what a part of the bench is."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bench.figures import Figure
from bench.sides import Amount, Side

__all__ = ["RATE", "TIMES", "WRITES", "Column", "Part", "Sample", "Scale", "medians", "of_side", "per_round"]


class Sample(NamedTuple):
    """One row's values in one round."""

    case: str
    """What is the same for all that are compared: "8 connections"."""
    subject: str
    """What is compared: "uvicorn", "gSOAP, queue"."""
    round: int
    values: Mapping[str, float]


class Scale(NamedTuple):
    """How large a run is, and what of it is wanted."""

    rounds: int
    amount: Amount
    gsoap_messages: int
    """At most, in one process of gSOAP's queue: it keeps 160 KB of each."""
    open_sequences: Sequence[int]
    gsoap_open_sequences: int
    held: Sequence[int]
    mixed: int
    """Messages on each connection."""
    slow: Mapping[float, int]
    """For each sleep of the application in ms, messages for each thread."""
    fronts: Sequence[str]
    """Of the part that measures all of them."""
    main_fronts: Sequence[str]
    """Of the other parts."""
    directory: Path
    """Where stores are put."""

    @property
    def gsoap_amount(self) -> Amount:
        return self.amount._replace(messages=self.gsoap_messages)

    def store(self) -> Path:
        return self.directory / "bench.db"


class Column(NamedTuple):
    key: str
    heading: str
    form: str = "{:,.0f}"
    spread: bool = False
    """Lowest and highest of the rounds are shown too."""


RATE: Final = Column("rate", "msg/s", spread=True)
TIMES: Final = (
    Column("p50_ms", "p50 ms", "{:.2f}"),
    Column("p99_ms", "p99 ms", "{:.2f}"),
    Column("cpu_us", "CPU µs/msg"),
)
WRITES: Final = (
    Column("commits", "commits/msg", "{:.3f}"),
    Column("fsync_us", "fsync µs"),
    Column("generator", "generator %", "{:.0f}"),
    Column("others", "others", "{:.0%}"),
)
"""What of ``of_side`` most parts show, at the left, in the middle and at the right of their tables."""


class Part(NamedTuple):
    """``measure`` yields samples round by round; the tables and what has to be reached are made of them."""

    title: str
    about: str
    """How it is measured, for who reads the results."""
    measure: Callable[[Scale], Iterator[Sample]]
    columns: Sequence[Column]
    plotted: Sequence[tuple[str, str]]
    """Which values are drawn, and what is written at the axis."""
    reach: Callable[[Sequence[Sample]], Iterable[Figure]] = lambda _samples: ()


def of_side(side: Side) -> dict[str, float]:
    """What every load tells."""
    return {
        "rate": side.load.rate,
        "p50_ms": side.load.p50_us / 1_000,
        "p99_ms": side.load.p99_us / 1_000,
        "cpu_us": side.cpu_us,
        "generator": 100 * side.load.cpu_share,
        "others": side.others,
        "most": side.most_per_second,
        **({"fsync_us": side.fsync_us, "commits": side.commits} if side.fsync_us else {}),
    }


def per_round(samples: Iterable[Sample], case: str, subject: str, key: str) -> list[float]:
    return [s.values[key] for s in samples if (s.case, s.subject) == (case, subject) and key in s.values]


def medians(samples: Iterable[Sample], case: str, subject: str) -> dict[str, float]:
    rows = [s.values for s in samples if (s.case, s.subject) == (case, subject)]
    keys: Final = dict.fromkeys(key for row in rows for key in row)
    return {key: statistics.median(row[key] for row in rows if key in row) for key in keys}
