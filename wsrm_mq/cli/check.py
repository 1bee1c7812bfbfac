"""``wsrm-mq check``: what ``status`` finds, as the guidelines of Nagios have it: one line, performance figures, a
status."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from wsrm_mq.cli.place import Place, in_store
from wsrm_mq.cli.status import see
from wsrm_mq.errors import WSRMError
from wsrm_mq.events.inert import inert

if TYPE_CHECKING:
    from wsrm_mq.views import attention, overview

WORDS: Final = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
"""The word of each status, by its number."""


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
        except Exception as error:
            raise _unknown(str(error) if isinstance(error, WSRMError) else repr(error)) from error

    def format_epilog(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        from wsrm_mq.views import attention

        thresholds = (
            f"{n} ({m.meaning}) {m.warning or '-'} {m.critical or '-'}" for n, m in attention.MEASURES.items()
        )
        formatter.write_paragraph()
        formatter.write_text(f"Names, with their thresholds for warning and critical: {'; '.join(thresholds)}")


def _unknown(text: str) -> click.exceptions.Exit:
    click.echo(f"WSRM UNKNOWN - {_plain(text)}")
    return click.exceptions.Exit(3)


def _plain(text: str) -> str:
    """In one line, and without the bar that begins the figures."""
    return inert(text).replace("|", "¦")


def _thresholds(
    _context: click.Context, option: click.Parameter, given: tuple[str, ...]
) -> dict[str, attention.Range | None]:
    """``name=range``; an empty range is none."""
    from wsrm_mq.views import attention

    found: dict[str, attention.Range | None] = {}
    for text in given:
        name, _, bounds = text.partition("=")
        if name not in attention.MEASURES:
            raise click.BadParameter(f"{name} is none of {', '.join(attention.MEASURES)}.", param=option)
        try:
            found[name] = attention.Range.parse(bounds) if bounds else None
        except ValueError:
            raise click.BadParameter(
                f"{bounds} is no range; write 10, 10:, ~:10, 10:20 or @10:20.", param=option
            ) from None
    return found


_THRESHOLD: Final = {"multiple": True, "metavar": "NAME=RANGE", "callback": _thresholds}


@click.command(cls=Plugin)
@partial(in_store, with_json=False)  # another program reads its words
@click.option("-w", "--warning", help="Threshold for WARNING. Repeatable; an empty range is none.", **_THRESHOLD)  # type: ignore[arg-type]
@click.option("-c", "--critical", help="Threshold for CRITICAL. Repeatable.", **_THRESHOLD)  # type: ignore[arg-type]
def check(
    place: Place,
    warning: dict[str, attention.Range | None],
    critical: dict[str, attention.Range | None],
) -> None:
    """Be a plug-in of Nagios, Icinga or Zabbix. Exit status: 0 OK, 1 WARNING, 2 CRITICAL, 3 the check itself failed.

    \b
    Example: wsrm-mq check --store /var/lib/orders/wsrm.db --warning held=100
    """
    from wsrm_mq.views import attention

    with place.looking() as db:
        sight = see(place, db)
    severity = attention.severities(sight, warning, critical)
    alarms = sorted((name for name in attention.MEASURES if severity[name]), key=lambda name: -severity[name])
    worst, said = int(max(severity.values())), [_alarm(name, sight) for name in alarms]
    if sight.obstacle is not None and sight.obstacle.is_of_asker:
        worst, said = worst if worst == attention.Severity.CRITICAL else 3, [*said, sight.obstacle.what]
    figures = [_figure(name, sight, warning, critical) for name in attention.MEASURES]
    text = "; ".join(said) or f"{len(sight.at.instances)} live, nothing is stuck"
    click.echo(f"WSRM {WORDS[worst]} - {_plain(text)} | {' '.join(figures)}")
    if worst and said:
        click.echo(_plain(place.command("wsrm-mq status") + " says more"))
    raise click.exceptions.Exit(worst)


def _alarm(name: str, sight: overview.Sight) -> str:
    from wsrm_mq.views import attention

    measure = attention.MEASURES[name]
    if measure.is_flag:
        return measure.facts(sight)[0].sentence.rstrip(".")
    return f"{measure.meaning}: {measure.value(sight):.10g}{measure.unit}"


def _figure(name: str, sight: overview.Sight, warning: attention.Thresholds, critical: attention.Thresholds) -> str:
    from wsrm_mq.views import attention

    measure = attention.MEASURES[name]
    limits = ";".join(one.text if one else "" for one in attention.bounds(name, warning, critical))
    return f"{name}={measure.value(sight):.15g}{measure.unit};{limits};0".replace(";;;0", "")
