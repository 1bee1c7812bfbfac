"""The contents of a report: numbers, and the first rows of each table that a reconciliation has written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any, Final, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from wsrm_mq.events.inert import inert
from wsrm_mq.spark.jobs.reconcile import FATES

Tables = Mapping[str, DataFrame]

SHOWN: Final = 20
"""Rows of a table; the rest is in the table itself."""
QUEUES: Final = 4
PARTNERS: Final = 12
STRIPS: Final = 15
PARTS: Final = 5_000
"""Ranges of all strips together: an eye can tell no more apart."""

_STATES: Final = ("delivered", "dead", "discarded", "purged", "unsettled")
_ALARMS: Final = {"": "SUM(messages)", "_unconfirmed": "SUM(unconfirmed)"}
SUMS: Final[dict[str, dict[str, str]]] = {
    "counts": {
        "stores": "COUNT(DISTINCT store)",
        "messages": "SUM(messages)",
        **{state: f"SUM(IF(state = '{state}', messages, 0))" for state in _STATES},
        "replays": "SUM(replays)",
        "redelivered": "SUM(redelivered)",
    },
    "sequences": {"sequences": "COUNT(*)", "duplicates": "SUM(duplicates)"},
    "gaps": {"gaps": "COUNT(*)", "missing": "SUM(missing)"},
    "lacking": {"lacking": "SUM(missing)"},
    "repeated": {"repeated": "COUNT(DISTINCT store, sequence, number)"},
    "twice": {
        "twice": "COUNT(DISTINCT message_id)",
        **{f"twice_{body}": f"COUNT(DISTINCT IF(body = '{body}', message_id, NULL))" for body in ("same", "another")},
        "twice_unknown": "COUNT(DISTINCT IF(body = 'unknown', message_id, NULL))",
    },
    "disorder": {"late": "SUM(late)", "deepest": "MAX(deepest)"},
    "faults": {f"faults{name}": total for name, total in _ALARMS.items()},
    "dead": {f"dead_letters{name}": total for name, total in _ALARMS.items()},
    "standing": {"standing": "COUNT(*)"},
    "sent": {
        "sent": "SUM(requests)",
        **{f"sent_{fate}": f"SUM(IF(fate = '{fate}', requests, 0))" for fate in FATES},
    },
}
"""Table → number → how it is counted; 0 where the table has no row. A table that was not asked for has none."""


class Finding(NamedTuple):
    number: str
    words: str
    """The words for the number."""


_FINDINGS: Final = (
    Finding("sent_lost", "Requests that were acknowledged, and are in none of these stores"),
    Finding("sent_given_up", "Requests that their sender has given up, and that were delivered"),
    Finding("repeated", "Numbers that a store has accepted twice"),
    Finding("lacking", "Numbers that a store lacks and another has"),
    Finding("missing", "Numbers that never came"),
    Finding("twice", "Messages that came more than once, and were not recognised"),
    Finding("standing", "Sequences that stand still"),
    Finding("dead_letters_unconfirmed", "Dead letters that no operator has confirmed"),
    Finding("faults_unconfirmed", "Messages answered with a fault that no operator has confirmed"),
)
"""Any of these, and something is to be looked at. The worst stands first."""


class Shown(NamedTuple):
    title: str
    note: str
    order: tuple[str, ...]
    columns: tuple[str, ...]


SECTIONS: Final[dict[str, Shown]] = {
    "astray": Shown(
        "Sent, and not as their sender says",
        "Lost: acknowledged, and in none of the stores and archives that were read. Given up: delivered all the same.",
        ("fate DESC", "received_at", "store", "message_id"),
        (
            *("message_id", "store", "queue", "number", "received_at"),
            *("outcome", "reason", "fate", "receipts", "deliveries"),
        ),
    ),
    "standing": Shown(
        "Sequences that stand still",
        "With the verdict of wsrm-mq sequence list, which explains it: wsrm-mq sequence explain SEQUENCE.",
        ("oldest_at", "store", "sequence"),
        ("store", "sequence", "queue", "partner", "verdict", "oldest_at", "held", "ready", "faults"),
    ),
    "gaps": Shown(
        "Missing numbers",
        "Before the first number, between two, or behind the last where the source has said its last number.",
        ("missing DESC", "store", "sequence", "lower"),
        ("store", "sequence", "queue", "partner", "lower", "upper", "missing", "place", "state"),
    ),
    "lacking": Shown(
        "Lacked by one store, received by another",
        "The same sequence at two stores: one of them was put back from the past, or never got what the other has.",
        ("missing DESC", "store", "sequence", "lower"),
        ("store", "sequence", "queue", "partner", "lower", "upper", "missing", "other_store"),
    ),
    "twice": Shown(
        "Came more than once",
        "The same message id in two sequences, or at two stores. Its Body was the same, another, or is not known.",
        ("deliveries DESC", "message_id", "received_at", "store", "position"),
        ("message_id", "store", "queue", "sequence", "number", "received_at", "outcome", "body", "times", "deliveries"),
    ),
    "repeated": Shown(
        "Accepted twice",
        "One number of one sequence, two messages: no store may have that.",
        ("store", "sequence", "number", "position"),
        ("store", "sequence", "number", "position", "received_at", "outcome"),
    ),
    "dead": Shown(
        "Dead letters",
        "By the queue that they come from, and why they are dead.",
        ("unconfirmed DESC", "messages DESC", "store", "queue"),
        ("store", "queue", "reason", "messages", "unconfirmed", "first_at", "last_at"),
    ),
    "faults": Shown(
        "Answered with a fault",
        "One-way messages: their source does not read the answer.",
        ("unconfirmed DESC", "messages DESC", "store", "queue"),
        ("store", "queue", "fault", "outcome", "messages", "unconfirmed", "first_at", "last_at"),
    ),
    "disorder": Shown(
        "Came out of order",
        "Put in order by the store. So far behind the highest number came the deepest.",
        ("deepest DESC", "late DESC", "store", "sequence"),
        ("store", "sequence", "queue", "partner", "messages", "late", "deepest"),
    ),
}


class Contents(NamedTuple):
    said: Mapping[str, Any]
    """The summary."""
    stores: list[tuple[str, str, int]]
    """Node, identity, messages."""
    unit: str
    latency: dict[str, list[Mapping[str, Any]]]
    """The latencies by queue, the busiest first: for each unit of time ``at`` (ms since the epoch), and the percentiles
    in ms."""
    partners: list[tuple[str, int]]
    """The number of missing messages by partner."""
    strips: list[Mapping[str, Any]]
    """Sequences with gaps: their columns, ``last``, and the ranges ``received`` and ``missing``."""
    rows: dict[str, tuple[int, list[Mapping[str, Any]]]]
    """The number of rows of each section, and the first of them."""


def summary(found: Tables, at: datetime) -> dict[str, Any]:
    """The numbers of a report, as JSON has them."""
    asked = {table: sums for table, sums in SUMS.items() if table in found}
    tables = (_counted(found[table], sums) for table, sums in asked.items())
    counted = {name: n for row in reduce(DataFrame.unionAll, tables).collect() for name, n in row.numbers.items()}
    said: dict[str, Any] = {"at": f"{at:%Y-%m-%dT%H:%M:%SZ}"}
    said |= {name: counted[name] for sums in asked.values() for name in sums}  # in this order, which Spark has not
    for row in found["latency"].where("queue IS NULL AND at IS NULL").collect():
        said |= {f"{name}_ms": row[name] for name in ("p50", "p95", "p99", "longest")}
    return {**said, "findings": [one.number for one in _FINDINGS if said.get(one.number)]}


def _counted(table: DataFrame, sums: Mapping[str, str]) -> DataFrame:
    """One row with one column, so that all tables are counted by one action."""
    numbers = (
        part for name, how in sums.items() for part in (F.lit(name), F.expr(f"CAST(COALESCE({how}, 0) AS LONG)"))
    )
    return table.agg(F.create_map(*numbers).alias("numbers"))


def read(found: Tables, said: Mapping[str, Any], unit: str) -> Contents:
    """``found`` by name; ``said`` is their summary; latencies are by ``unit``."""
    stores = found["counts"].groupBy("node", "store").agg(F.sum("messages")).orderBy("node", "store")
    partner = F.coalesce("partner", F.lit("not known"))
    partners = found["gaps"].groupBy(partner.alias("name")).agg(F.sum("missing").alias("missing"))
    return Contents(
        said,
        [(row[0], row[1], row[2]) for row in stores.collect()],
        unit,
        _latency(found["latency"]),
        [(row.name, row.missing) for row in partners.orderBy(F.desc("missing"), "name").limit(PARTNERS).collect()],
        _strips(found["gaps"], found["ranges"]),
        {name: _rows(found[name], shown) for name, shown in SECTIONS.items() if name in found},
    )


def _rows(table: DataFrame, shown: Shown) -> tuple[int, list[Mapping[str, Any]]]:
    """Count the rows and read the first of them; moments are text."""
    kinds = dict(table.dtypes)
    columns = [
        F.date_format(name, "yyyy-MM-dd HH:mm:ss").alias(name) if kinds[name] == "timestamp" else F.col(name)
        for name in shown.columns
    ]
    first = table.orderBy(*map(_order, shown.order)).limit(SHOWN).select(*columns)
    rows: list[Mapping[str, Any]] = [row.asDict() for row in first.collect()]
    return len(rows) if len(rows) < SHOWN else table.count(), rows


def _order(term: str) -> Column:
    name, _, way = term.partition(" ")
    return F.desc(name) if way else F.asc(name)


def _latency(latency: DataFrame) -> dict[str, list[Mapping[str, Any]]]:
    total = latency.where("queue IS NOT NULL AND at IS NULL").orderBy(F.desc("messages"), "queue").limit(QUEUES)
    queues = [row.queue for row in total.select("queue").collect()]
    of_them = latency.where(F.col("queue").isin(queues) & F.col("at").isNotNull())
    rows = of_them.select("queue", F.unix_millis("at").alias("at"), "p50", "p95", "p99").orderBy("at").collect()
    return {queue: [row.asDict() for row in rows if row.queue == queue] for queue in queues}


def _strips(gaps: DataFrame, ranges: DataFrame) -> list[Mapping[str, Any]]:
    """Read all ranges, at most ``PARTS``, of the sequences that lack most."""
    key = ("store", "sequence")
    worst = (
        gaps.groupBy(*key)
        .agg(F.sum("missing").alias("total"), F.first("node").alias("node"), F.first("partner").alias("partner"))
        .orderBy(F.desc("total"), *key)
        .limit(STRIPS)
    )
    found = {(row.store, row.sequence): {**row.asDict(), "received": [], "missing": []} for row in worst.collect()}
    for name, table in (("missing", gaps), ("received", ranges)):
        theirs = table.join(F.broadcast(worst.select(*key)), list(key), "left_semi")
        parts = theirs.select(*key, "lower", "upper").orderBy("store", "sequence", "lower").limit(PARTS).collect()
        for row in parts:
            found[row.store, row.sequence][name].append((row.lower, row.upper))
    for one in found.values():
        one["last"] = max(upper for _, upper in one["received"] + one["missing"])
    return list(found.values())


# The page itself: ``page.html`` and ``charts.html``, filled in. The page fetches nothing, and no script runs in it.

_PERCENTILES: Final = ("p50", "p95", "p99")
_IDS: Final = ("sequence", "message_id")
_LABELS: Final = 6
"""Moments that are named below a chart."""


def page(contents: Contents) -> bytes:
    """The report of ``contents``, as an HTML document."""
    # Peers wrote what the tables hold: it is escaped, and has no effect on a terminal either.
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, finalize=_harmless
    )
    environment.filters |= {"number": "{:,}".format, "cell": _cell, "kind": _kind}
    written = environment.get_template("page.html").render(
        contents._asdict(),
        names=_names(contents.stores),
        latency={queue: _drawn(rows, contents.unit) for queue, rows in contents.latency.items()},
        findings=_FINDINGS,
        sections=SECTIONS,
    )
    return written.encode()


def _harmless(value: Any) -> Any:
    return inert(value) if type(value) is str else value


def _cell(value: object) -> str:
    if isinstance(value, int | float):
        return f"{int(value) if value == int(value) else value:,}"
    return str(value) if value is not None else "–"


def _kind(column: str, rows: Iterable[Mapping[str, Any]]) -> str:
    """The CSS class of a column."""
    if any(isinstance(row[column], int) for row in rows):
        return "number"
    return "id" if column in _IDS else ""


def _names(stores: Sequence[tuple[str, str, int]]) -> dict[str, str]:
    """The name of each store: its node, with the beginning of its identity where a node has two."""
    nodes = [node for node, _, _ in stores]
    return {store: node if nodes.count(node) == 1 else f"{node} ({store[:6]})" for node, store, _ in stores}


class Curve(NamedTuple):
    name: str
    points: list[tuple[float, float, str]]
    """Each with the text that is shown where it is pointed at."""
    named_at: float
    """The height of its name."""


class Drawn(NamedTuple):
    """A chart of latencies over time, on a logarithmic scale from 1 ms."""

    grid: list[tuple[float, str]]
    moments: list[tuple[float, str]]
    curves: list[Curve]
    left: int = 64
    right: int = 708
    """The names of curves stand behind it."""
    top: int = 10
    bottom: int = 156
    height: int = 180


def _drawn(rows: Sequence[Mapping[str, Any]], unit: str) -> Drawn:
    """The chart of ``rows``, each a ``unit`` of time, with ``at`` in ms since the epoch and percentiles in ms."""
    drawn = Drawn([], [], [])
    powers = max(2, math.ceil(math.log10(max(1.0, *(row[name] for row in rows for name in _PERCENTILES)))))
    first, span = rows[0]["at"], rows[-1]["at"] - rows[0]["at"]

    def x(row: Mapping[str, Any]) -> float:
        share = (row["at"] - first) / span if span else 0.5
        return round(drawn.left + share * (drawn.right - drawn.left), 1)

    def y(ms: float) -> float:
        return round(drawn.bottom - math.log10(max(1.0, ms)) / powers * (drawn.bottom - drawn.top), 1)

    drawn.grid.extend((y(10**power), _duration(10**power)) for power in range(powers + 1))
    drawn.moments.extend((x(row), _moment(row["at"], unit)) for row in rows[:: max(1, math.ceil(len(rows) / _LABELS))])
    named_at = 2.0 * drawn.height
    for name in sorted(_PERCENTILES, key=lambda one: rows[-1][one]):
        points = [(x(row), y(row[name]), f"{_moment(row['at'], unit)}: {name} {row[name]:g} ms") for row in rows]
        named_at = round(min(points[-1][1] + 4, named_at - 12), 1)
        drawn.curves.append(Curve(name, points, named_at))
    return drawn


def _duration(ms: int) -> str:
    return f"{ms} ms" if ms < 1_000 else f"{ms // 1_000:,} s"


def _moment(at: int, unit: str) -> str:
    moment = datetime.fromtimestamp(at / 1_000, UTC)
    return f"{moment:%d %b}" if unit == "day" else f"{moment:%d %b %H:%M}"
