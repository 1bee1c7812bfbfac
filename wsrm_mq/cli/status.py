"""``wsrm-mq status``: one screen that says how the service does, and what to do about what does not."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from wsrm_mq.cli.output import SCHEMA_VERSION, as_json, fields, is_terminal, table, write
from wsrm_mq.cli.place import Place, in_store, json_option, one_look, unconfirmed

if TYPE_CHECKING:
    from wsrm_mq.views.overview import Counted, Overview, Verdicts

__all__ = ["status"]

SAMPLE_SECONDS: Final = 1.0
SHOWN: Final = 10
"""Blocked sequences on the screen."""
CLEAR: Final = "\x1b[H\x1b[2J"


class Look(NamedTuple):
    now: int
    at: Overview
    verdicts: Verdicts
    counts: list[Counted]
    unconfirmed: str | None
    faulted_command: str
    taken: float


@click.command()
@in_store
@json_option
@click.option("--watch", "is_watching", is_flag=True, help="Go on, until Ctrl-C.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    help="Seconds from one look to the next with --watch.",
)
def status(place: Place, is_json: bool, is_watching: bool, interval: float) -> None:
    """Show how the service does. Processes, sequences, what waits and since when, rates, and what is stuck with the
    command to run next. Rates are taken from two looks a second apart, if a process lives."""
    for document, found in _documents(place, interval if is_watching else None):
        if is_json and is_watching:
            click.echo(json.dumps({"schema_version": SCHEMA_VERSION, **document}))
        elif is_json:
            as_json(**document)
        else:
            if is_watching and is_terminal():
                click.echo(CLEAR, nl=False)
            _show(document, found)


def _documents(place: Place, interval: float | None) -> Iterator[tuple[dict[str, Any], Look]]:
    from wsrm_mq.views.overview import rates

    before = _look(place)
    if interval is None and not before.at.instances:  # nothing changes
        yield _document(place, before, {}), before
        return
    while True:
        time.sleep(SAMPLE_SECONDS if interval is None else interval)
        found = _look(place)
        yield _document(place, found, rates(before.counts, found.counts, found.taken - before.taken)), found
        if interval is None:
            return
        before = found


def _look(place: Place) -> Look:
    from wsrm_mq.views.overview import counted, overview, verdicts

    now = time.time_ns() // 1_000_000
    with one_look(place) as db:
        return Look(
            now,
            overview(db, now),
            verdicts(db, now),
            counted(db),
            unconfirmed(place, db),
            place.command(_FAULTED),
            time.monotonic(),
        )


def _document(place: Place, found: Look, rates: dict[str, float]) -> dict[str, Any]:
    from wsrm_mq.views.sentences import explanation

    at = found.at
    states: dict[str, int] = {}
    for (_queue, state), count in at.sequences.items():
        states[state] = states.get(state, 0) + count
    oldest = at.oldest
    return {
        "at": found.now,
        "instances": [one._asdict() for one in at.instances],
        "dead_instances": at.dead_instances,
        "sequences": states,
        "verdicts": found.verdicts.words,
        "all_judged": found.verdicts.is_whole,
        "held": sum(one.held for one in at.waiting.values()),
        "ready": sum(one.ready for one in at.waiting.values()),
        "oldest_undelivered_ms": None if oldest is None else max(0, found.now - oldest),
        "dead_letters": at.dead_letters,
        "faulted": at.faulted,
        "faulted_in_all": at.faulted_in_all,
        "refused": [one._asdict() for one in at.refused],
        "rates": {name: round(value, 1) for name, value in rates.items()},
        "counters": [one._asdict() for one in found.counts],
        "store_bytes": at.file_bytes,
        "wal_bytes": at.wal_bytes,
        "disk_free_bytes": at.disk_free,
        "disk_full": at.is_reserve_spent,
        "unconfirmed": found.unconfirmed,
        "unserved": {
            "queues": [one._asdict() for one in at.unserved],
            "next_step": place.command("wsrm-mq store application OLD NEW") if at.unserved else None,
        },
        "blocked": [
            {
                "sequence": one.at.view.identifier,
                "sentence": why.sentence,
                "next_step": place.command(why.next_step) or None,
            }
            for one in found.verdicts.blocked
            if (why := explanation(one))
        ],
    }


def _show(document: dict[str, Any], found: Look) -> None:
    from wsrm_mq.views.sentences import moment, span

    oldest = document["oldest_undelivered_ms"]
    letters = [f"{count} of {queue}" for queue, count in document["dead_letters"].items()]
    dead = document["dead_instances"]
    faulted = [f"{count} of {queue} in 24 h" for queue, count in document["faulted"].items()]
    if document["faulted_in_all"]:
        faulted.append(f"{document['faulted_in_all']} in all: {found.faulted_command}")
    fields(
        [
            ("at", moment(document["at"])),
            ("processes", _processes(len(found.at.instances), dead, document["unconfirmed"])),
            ("sequences", _counts(document["sequences"])),
            ("verdicts", _counts(document["verdicts"]) + ("" if document["all_judged"] else " (of those looked at)")),
            ("held", document["held"]),
            ("ready", document["ready"]),
            ("oldest undelivered", "none" if oldest is None else f"{span(oldest)} old"),
            ("dead letters", letters or "none"),
            ("faulted", faulted or "none"),
            ("refused", _refused(found) or "none"),
            (
                "per second",
                ", ".join(f"{name} {value:g}" for name, value in document["rates"].items()) or "nothing runs",
            ),
            ("store", f"{_size(found.at.file_bytes)}, write-ahead log {_size(found.at.wal_bytes)}"),
            ("disk", f"{_size(found.at.disk_free)} free" + (", FULL" if document["disk_full"] else "")),
        ]
    )
    if found.at.instances:
        click.echo()
        table(
            ("instance", "host", "process", "since"),
            [(one.name, one.host, one.pid, moment(one.started_at)) for one in found.at.instances],
        )
    if document["unconfirmed"]:
        write(f"\nnot served: the store {document['unconfirmed']}", keep="\n")
    for other in found.at.unserved[:SHOWN]:
        name = other.application or "an application without a name"
        write(f"\nnot delivered: {other.queue}: messages wait for {name}, which no process serves", keep="\n")
    if found.at.unserved:
        write(f"next: start it, or, where its name has changed: {document['unserved']['next_step']}")
    for one in document["blocked"][:SHOWN]:
        write(f"\nblocked: {one['sequence']}: {one['sentence']}", keep="\n")
        if one["next_step"]:
            write(f"next: {one['next_step']}")
    if len(document["blocked"]) > SHOWN:
        write(f"\nand {len(document['blocked']) - SHOWN} more: wsrm-mq sequence list --verdict blocked", keep="\n")


_FAULTED: Final = "wsrm-mq message list --reason answered_with_fault"


def _refused(found: Look) -> list[str]:
    """Each reason with what it was last; what alarms now is said to."""
    from wsrm_mq.views.sentences import span

    lately = found.at.refused_lately(found.now)
    return [
        f"{one.times} {one.reason}"
        + (f" of {one.partner}" if one.partner else "")
        + f", last {span(found.now - one.last_at)} ago"
        + (" (!)" if one in lately else "")
        for one in found.at.refused[:SHOWN]
    ]


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {word}" for word, count in sorted(counts.items())) or "none"


def _processes(live: int, dead: int, unconfirmed: str | None) -> str:
    text = f"{live} live" + (f", {dead} dead and not noticed yet" if dead else "")
    return text if live or unconfirmed else f"{text}: start the service"


def _size(size: int) -> str:
    for unit, least in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size >= least:
            return f"{size / least:.1f} {unit}"
    return f"{size / 1e3:.1f} kB"
