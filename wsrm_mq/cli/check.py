"""``wsrm-mq check``: a plug-in of Nagios, as its guidelines have it. One line, performance figures, a status."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from wsrm_mq.cli.place import Place, in_store, looking
from wsrm_mq.errors import WSRMError
from wsrm_mq.events.inert import inert

if TYPE_CHECKING:
    from wsrm_mq.views.overview import Overview

__all__ = ["MEASURES", "Range", "check"]

WORDS: Final = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
"""By status."""


class Range(NamedTuple):
    """A threshold in Nagios' own notation: ``10`` (0 to 10), ``10:``, ``~:10``, ``10:20``, ``@10:20``. What lies
    outside alarms; with ``@`` what lies inside."""

    text: str
    lower: float
    upper: float
    is_inside: bool

    @classmethod
    def parse(cls, text: str) -> Range:
        found = re.fullmatch(r"(@?)(?:(~|-?[\d.]+)?:)?(-?[\d.]+)?", text)
        if found is None or not text.strip("@"):
            raise ValueError(text)
        inside, start, end = found.groups()
        lower = float("-inf") if start == "~" else float(start or 0)
        return cls(text, lower, float("inf") if end is None else float(end), bool(inside))

    def alarms(self, value: float) -> bool:
        return (self.lower <= value <= self.upper) is self.is_inside


class Measure(NamedTuple):
    """``unit`` as Nagios has it: ``s``, ``B`` or nothing. ``""`` is no threshold."""

    meaning: str
    unit: str
    warning: str
    critical: str
    value: Callable[[Overview, int], float]


def _age(at: Overview, now: int) -> float:
    return 0.0 if at.oldest is None else max(0.0, (now - at.oldest) / 1000)


LOCK_SECONDS: Final = 1.0
"""So long it tries to get the write lock: services hold it for much less."""

MEASURES: Final = {
    "instances": Measure("processes that live", "", "", "1:", lambda at, _: len(at.instances)),
    "dead_instances": Measure("processes that died unnoticed", "", "0", "", lambda at, _: at.dead_instances),
    "blocked": Measure("sequences stopped by a message", "", "0", "10", lambda at, _: sum(at.blocked.values())),
    "unserved": Measure("queues of applications that no process serves", "", "", "0", lambda at, _: len(at.unserved)),
    "dead_letters": Measure("dead letters", "", "0", "100", lambda at, _: sum(at.dead_letters.values())),
    "faulted": Measure("messages answered with a fault in 24 h", "", "0", "", lambda at, _: sum(at.faulted.values())),
    "refused": Measure(
        "limits, or hooks at fault, that refused messages in 5 minutes",
        "",
        "0",
        "",
        lambda at, now: len(at.refused_lately(now)),
    ),
    "nothing_taken": Measure(
        "reasons in 5 minutes why no message is taken at all (max_store, disk_full, store_locked, "
        "store_unavailable, overloaded)",
        "",
        "",
        "0",
        lambda at, now: len(at.takes_nothing(now)),
    ),
    "oldest": Measure("age of the oldest undelivered message", "s", "300", "3600", _age),
    "held": Measure("messages behind a gap", "", "", "", lambda at, _: sum(one.held for one in at.waiting.values())),
    "ready": Measure(
        "messages that wait for the application",
        "",
        "",
        "",
        lambda at, _: sum(one.ready for one in at.waiting.values()),
    ),
    "disk_free": Measure("free space beside the store", "B", "100000000:", "10000000:", lambda at, _: at.disk_free),
    "reserve_spent": Measure("1: the disk is full", "", "", "0", lambda at, _: at.is_reserve_spent),
}


class Plugin(click.Command):
    """Whatever goes wrong with the check itself is UNKNOWN, on standard output: Nagios reads no other."""

    def make_context(self, *args: Any, **more: Any) -> click.Context:
        try:
            return super().make_context(*args, **more)
        except click.ClickException as error:
            raise _unknown(error.format_message()) from error

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.Abort):
            raise
        except click.ClickException as error:
            raise _unknown(error.format_message()) from error
        except WSRMError as error:
            raise _unknown(str(error)) from error
        except Exception as error:
            raise _unknown(repr(error)) from error


def _unknown(text: str) -> click.exceptions.Exit:
    click.echo(f"WSRM UNKNOWN - {_plain(text)}")
    return click.exceptions.Exit(3)


def _plain(text: str) -> str:
    """In one line, and without the bar that begins the figures."""
    return inert(text).replace("|", "¦")


def _thresholds(_context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> dict[str, Range | None]:
    """``name=range``; an empty range is none."""
    found: dict[str, Range | None] = {}
    for text in given:
        name, _, bounds = text.partition("=")
        if name not in MEASURES:
            raise click.BadParameter(f"{name} is none of {', '.join(MEASURES)}.", param=option)
        try:
            found[name] = Range.parse(bounds) if bounds else None
        except ValueError:
            raise click.BadParameter(
                f"{bounds} is no range; write 10, 10:, ~:10, 10:20 or @10:20.", param=option
            ) from None
    return found


_THRESHOLD: Final = {"multiple": True, "metavar": "NAME=RANGE", "callback": _thresholds}


@click.command(
    cls=Plugin,
    epilog="Names, with their thresholds for warning and critical: "
    + "; ".join(f"{n} ({m.meaning}) {m.warning or '-'} {m.critical or '-'}" for n, m in MEASURES.items()),
)
@in_store
@click.option("-w", "--warning", help="Threshold for WARNING. Repeatable; an empty range is none.", **_THRESHOLD)  # type: ignore[arg-type]
@click.option("-c", "--critical", help="Threshold for CRITICAL. Repeatable.", **_THRESHOLD)  # type: ignore[arg-type]
@click.pass_context
def check(
    context: click.Context, place: Place, warning: dict[str, Range | None], critical: dict[str, Range | None]
) -> None:
    """Be a plug-in of Nagios, Icinga or Zabbix. Exit status: 0 OK, 1 WARNING, 2 CRITICAL, 3 the check itself failed."""
    from wsrm_mq.store.database import snapshot, why_not_written
    from wsrm_mq.views.overview import overview

    now = time.time_ns() // 1_000_000
    with looking(place) as db:
        with snapshot(db):
            at = overview(db, now)
        obstacle = why_not_written(db, LOCK_SECONDS)
    worst, alarms, figures = 0, [], []
    if at.is_over(place.max_store):
        worst, alarms = 2, [f"max_store is reached: {at.used_bytes} of {place.max_store} bytes"]
    if obstacle is not None and not obstacle.is_of_asker:
        worst, alarms = 2, [obstacle.what]
    for name, measure in MEASURES.items():
        value = float(measure.value(at, now))
        warns = warning[name] if name in warning else _range(measure.warning)
        alerts = critical[name] if name in critical else _range(measure.critical)
        level = 2 if alerts and alerts.alarms(value) else 1 if warns and warns.alarms(value) else 0
        worst = max(worst, level)
        if level:
            alarms.append(f"{measure.meaning}: {value:.10g}{measure.unit}")
        bounds = ";".join(one.text if one else "" for one in (warns, alerts))
        figures.append(f"{name}={value:.15g}{measure.unit};{bounds};0".replace(";;;0", ""))
    if obstacle is not None and obstacle.is_of_asker:
        worst, alarms = worst if worst == 2 else 3, [*alarms, obstacle.what]
    said = "; ".join(alarms) or f"{len(at.instances)} live, nothing is stuck"
    click.echo(f"WSRM {WORDS[worst]} - {_plain(said)} | {' '.join(figures)}")
    if worst and alarms:
        click.echo(_plain(place.command("wsrm-mq status") + " says more"))
    context.exit(worst)


def _range(text: str) -> Range | None:
    return Range.parse(text) if text else None
