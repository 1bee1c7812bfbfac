"""``wsrm-mq status``: one screen that says how the service does, and what to do about what does not."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from wsrm_mq.acts import others
from wsrm_mq.cli.output import Column, as_json, as_line, fields, is_terminal, key, prose, table, when, write
from wsrm_mq.cli.place import Place, in_store, now_ms, renamed, shorter_names
from wsrm_mq.cli.sequence import source_of, told_source
from wsrm_mq.views.words import moment, size, span

if TYPE_CHECKING:
    from wsrm_mq.queue import retention
    from wsrm_mq.server import tokens
    from wsrm_mq.store import port
    from wsrm_mq.views import attention, overview

INSTANCE: Final = (key("instance", "name"), "host", Column("process", of="pid"), when("since", "started_at"))
"""The columns of a process that uses the store."""

# The room that pruning would free: for ``store prune``, and for an operator who is told that there is none.

AGES: Final = (("P7D", 7 * 86_400_000), ("P1D", 86_400_000), ("PT1H", 3_600_000), ("PT1M", 60_000))
"""Ages to name, the longest first. What was settled in the last minute stays."""
WORTH: Final = 0.1
"""A share of the store that is worth a command: an age that frees less is passed over for a shorter one."""
LOOKED_AT: Final = 50
"""Batches of an age: an answer may not take long."""


def kept_as(place: Place, kept: retention.Kept) -> retention.KeptOf:
    """``kept`` by every partner, each as its configuration has it until it is archived."""
    return lambda partner: kept._replace(until_archived=place.policy(partner).retain_until_archived)


def expected(db: port.Database, kept: retention.KeptOf, now: int, most: int | None = None) -> retention.Pruned:
    """Find what would be pruned, in ``most`` batches; ``None``: in all."""
    from wsrm_mq.queue import retention

    found = retention.Pruned()
    for batch in islice(retention.batches(lambda: nullcontext(db), kept, now), most):
        found = found.plus(batch.expected)
    return found


def room(place: Place, db: port.Database, now: int, used: int) -> overview.Room:
    """The room that pruning would make in a store that uses ``used`` bytes, and the age that it prunes by."""
    from wsrm_mq.queue import retention
    from wsrm_mq.views import overview

    best = overview.Room()
    for text, age in AGES:
        found = expected(db, kept_as(place, retention.Kept(age, None)), now, LOOKED_AT)
        if found.size > best.size or (found.messages and not best.older_than):
            best = overview.Room(text, found.messages, found.size)
        if best.size >= used * WORTH:
            break
    return best


LOCK_SECONDS: Final = 1.0
"""How long it tries to get the write lock, in seconds: services hold it for much less."""


def see(place: Place, db: port.Database) -> overview.Sight:
    from wsrm_mq.store import driver
    from wsrm_mq.store.sqlite import connection
    from wsrm_mq.views import overview, rows

    now = now_ms()
    with driver.snapshot(db):
        at, judged, doubt, replays = (
            overview.overview(db, now),
            overview.verdicts(db, now),
            place.unconfirmed(db),
            rows.plans(db),
        )
    waits = [one.retain for one in place.settings.policies() if one.retain_until_archived and one.retain is not None]
    sight = overview.Sight(
        *(now, at, judged, connection.why_not_written(db, LOCK_SECONDS), doubt, replays, place.settings.max_store),
        archive_within=min(waits, default=None),
    )
    return sight._replace(room=room(place, db, now, at.used_bytes)) if sight.lacks_room else sight


SHOWN_OF_A_KIND: Final = 3
"""The most findings of a kind on the screen."""
# Findings that need attention, on the screen and as JSON.

TOLD: Final = 100
"""The most findings of a kind in JSON."""
MARGIN: Final = 10
STYLES: Final = {"critical": "bold red", "warning": "yellow", "notice": "cyan"}


def _first(findings: Iterable[attention.Finding], most: int) -> dict[str, list[attention.Finding]]:
    """The first of each kind, in the order of the kinds."""
    kinds: dict[str, list[attention.Finding]] = defaultdict(list)
    for one in findings:
        if len(kinds[one.kind]) < most:
            kinds[one.kind].append(one)
    return kinds


def _shorter_names(db: port.Database, findings: list[attention.Finding]) -> dict[str, str]:
    """Identifiers of sequences on the screen, by which commands know them; none in a pipe."""
    shown = (one for few in _first(findings, SHOWN_OF_A_KIND).values() for one in few)
    return shorter_names(db, (one.fact.view.identifier for one in shown if one.fact.view))


def _show_findings(place: Place, findings: list[attention.Finding], shorter: Mapping[str, str]) -> None:
    from wsrm_mq.views import attention

    if not findings:
        prose("Nothing needs attention.", "OK", margin=MARGIN, style="green")
    counts = {kind: sum(one.kind == kind for one in findings) for kind in attention.MEASURES}
    for kind, few in _first(findings, SHOWN_OF_A_KIND).items():
        for one in few:
            _show_finding(place, one, shorter)
        if counts[kind] > len(few):
            listing = attention.MEASURES[kind].listing
            command = "" if listing is None else f": {place.line(listing)}"
            write(f"{'':<{MARGIN}}and {counts[kind] - len(few)} more{command}")


def _show_finding(place: Place, finding: attention.Finding, shorter: Mapping[str, str]) -> None:
    fact, word = finding.fact, finding.severity.name.lower()
    text = fact.sentence
    if fact.view is not None:
        name = shorter.get(fact.view.identifier, fact.view.identifier)
        whence = f"to {fact.target}" if fact.target else f"from {told_source(source_of(place, fact.view))}"
        whence = f"of {fact.view.queue}" if fact.view.kind == "group" else whence
        text = f"{name} {whence}: {fact.verdict}. {text}"
    prose(text, word.upper(), margin=MARGIN, style=STYLES[word])
    for step in place.offered(fact.steps[:1]):
        write(f"{'':<{MARGIN}}next: {renamed(step.command, shorter)}")


def _finding(place: Place, finding: attention.Finding) -> dict[str, Any]:
    fact = finding.fact
    return {
        "kind": finding.kind,
        "severity": finding.severity.name.lower(),
        "sentence": fact.sentence,
        "messages": fact.messages,
        "since": fact.since,
        "queue": fact.view.queue if fact.view is not None else fact.queue,
        "sequence": fact.view.identifier if fact.view is not None else None,
        "verdict": fact.verdict,
        "source": source_of(place, fact.view) if fact.view is not None else None,
        "target": fact.target,
        "next_steps": place.offered(fact.steps),
    }


SAMPLE_SECONDS: Final = 1.0
SHOWN: Final = 10
"""Reasons of refusals on the screen, and queues."""
_OF_QUEUE: Final = ("queue", "messages", "bytes", "came", "went", "next_at")
CLEAR: Final = "\x1b[H\x1b[2J"


class Look(NamedTuple):
    sight: overview.Sight
    findings: list[attention.Finding]
    shorter: dict[str, str]
    """The short form of each identifier on the screen."""
    counts: list[overview.Counted]
    tokens: list[tokens.Token]
    taken: float

    def tokens_that(self, have_expired: bool) -> list[str]:
        """The names of tokens that have expired, or have not."""
        return [one.name for one in self.tokens if one.has_expired(self.sight.now) is have_expired]


@click.command()
@in_store
@click.option("--watch", "is_watching", is_flag=True, help="Go on, until Ctrl-C.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    help="Seconds from one look to the next with --watch.",
)
def status(place: Place, is_watching: bool, interval: float) -> None:
    """Show how the service does. First what needs attention, worst first, each with the command to run next; then
    processes, sequences, what waits and since when, and rates, from two looks a second apart where something moves.

    \b
    Example: wsrm-mq status
             wsrm-mq status --watch --interval 5
    """
    for document, found in _documents(place, interval if is_watching else None):
        if place.is_json and is_watching:
            as_line(document)
        elif place.is_json:
            as_json(**document)
        else:
            if is_watching and is_terminal():
                click.echo(CLEAR, nl=False)
            _show(place, document, found)


def _documents(place: Place, interval: float | None) -> Iterator[tuple[dict[str, Any], Look]]:
    from wsrm_mq.views import overview

    before = _look(place)
    if interval is None and not _moves(before.sight.at):
        yield _document(place, before, {}), before
        return
    while True:
        time.sleep(SAMPLE_SECONDS if interval is None else interval)
        found = _look(place)
        yield _document(place, found, overview.rates(before.counts, found.counts, found.taken - before.taken)), found
        if interval is None:
            return
        before = found


def _moves(at: overview.Overview) -> bool:
    """Whether a process of the service lives, or programs have just put or consumed."""
    return bool(at.instances) or any(one.came or one.went for one in at.consumed)


def _look(place: Place) -> Look:
    from wsrm_mq.server import tokens
    from wsrm_mq.views import attention, overview

    with place.looking() as db:
        sight = see(place, db)
        findings = attention.attention(sight, attention.severities(sight))
        return Look(
            sight, findings, _shorter_names(db, findings), overview.counters(db), tokens.listed(db), time.monotonic()
        )


def _document(place: Place, found: Look, rates: dict[str, float]) -> dict[str, Any]:
    from wsrm_mq.views import sentences, store_findings

    sight, at = found.sight, found.sight.at
    states: dict[str, int] = {}
    for (_queue, state), count in at.sequences.items():
        states[state] = states.get(state, 0) + count
    oldest = at.oldest
    return {
        "at": sight.now,
        "attention": [_finding(place, one) for few in _first(found.findings, TOLD).values() for one in few],
        "instances": at.instances,
        "dead_instances": at.dead_instances,
        "sequences": states,
        "verdicts": sight.verdicts.words,
        "all_judged": sight.verdicts.is_whole,
        "held": sum(one.held for one in at.waiting.values()),
        "ready": sum(one.ready for one in at.waiting.values()),
        "oldest_undelivered_ms": None if oldest is None else max(0, sight.now - oldest),
        "queues": [
            {**{name: getattr(one, name) for name in _OF_QUEUE}, "pace": one.pace}
            for one in at.consumed
            if one.messages and not one.is_kept
        ],
        "dead_letters": at.dead_letters,
        "dead_letters_unconfirmed": at.dead_letters_unconfirmed,
        "faulted": at.faulted,
        "faulted_in_all": at.faulted_in_all,
        "refused": at.refused,
        "rates": {name: round(value, 1) for name, value in rates.items()},
        "counters": found.counts,
        "tokens": found.tokens_that(have_expired=False),
        "tokens_expired": found.tokens_that(have_expired=True),
        "store_bytes": at.file_bytes,
        "wal_bytes": at.wal_bytes,
        "disk_free_bytes": at.disk_free,
        "disk_full": at.is_reserve_spent,
        "unconfirmed": sight.doubt,
        "unserved": {
            "queues": at.unserved,
            "next_step": next((place.line(one.steps[0]) for one in store_findings.unserved(sight)), None),
        },
        "blocked": [
            {
                "sequence": one.at.view.identifier,
                "sentence": why.sentence,
                "next_step": next((step.command for step in place.offered(why.steps[:1])), None),
            }
            for one in sight.verdicts.found
            if one.word == "blocked" and (why := sentences.explanation(one))
        ],
    }


def _show(place: Place, document: dict[str, Any], found: Look) -> None:
    """Show what needs attention, then the state of everything."""
    _show_findings(place, found.findings, found.shorter)
    obstacle = found.sight.obstacle
    if obstacle is not None and obstacle.is_of_asker:
        write(f"Not known: {obstacle.what}.")
    at = found.sight.at
    oldest = document["oldest_undelivered_ms"]
    letters = [
        f"{count} of {queue}, {at.dead_letters_unconfirmed[queue]} of them not confirmed"
        for queue, count in at.dead_letters.items()
    ]
    faulted = [f"{count} of {queue} in 24 h" for queue, count in at.faulted.items()]
    if at.faulted_in_all:
        faulted.append(f"{at.faulted_in_all} in all: {place.line(_FAULTED)}")
    write("")
    fields(
        [
            ("at", moment(document["at"])),
            ("processes", _processes(at, document["unconfirmed"])),
            ("sequences", _counts(document["sequences"])),
            ("verdicts", _counts(document["verdicts"]) + ("" if document["all_judged"] else " (of those looked at)")),
            ("held", document["held"]),
            ("ready", _ready(document["ready"], document["rates"])),
            ("oldest undelivered", "none" if oldest is None else f"{span(oldest)} old"),
            *([("queues", _queues(at))] if at.consumed else []),
            ("dead letters", letters or "none"),
            ("faulted", faulted or "none"),
            ("refused", _refused(found.sight) or "none"),
            (
                "per second",
                ", ".join(f"{name} {value:g}" for name, value in document["rates"].items()) or "nothing runs",
            ),
            *([("tokens", _tokens(document))] if found.tokens else []),
            ("store", f"{size(at.file_bytes)}, write-ahead log {size(at.wal_bytes)}"),
            ("disk", f"{size(at.disk_free)} free" + (", FULL" if at.is_reserve_spent else "")),
        ]
    )
    if at.instances:
        click.echo()
        table(INSTANCE, at.instances)


_FAULTED: Final = others.MESSAGES.step("which they are", reason="answered_with_fault")


def _refused(sight: overview.Sight) -> list[str]:
    """Each reason with when it was last; what alarms now is marked."""
    lately = [*sight.at.refused_lately(sight.now), *sight.at.not_sent_lately(sight.now)]
    return [
        f"{one.times} {one.reason}"
        + (f" of {one.partner}" if one.partner else "")
        + f", last {span(sight.now - one.last_at)} ago"
        + (" (!)" if one in lately else "")
        for one in sight.at.refused[:SHOWN]
    ]


def _ready(count: int, rates: dict[str, float]) -> str:
    """How long what waits for the application takes, where the two looks tell it."""
    from wsrm_mq.views import situation

    if count < situation.BACKLOG or not rates:
        return str(count)
    gained = rates["delivered"] - rates["accepted"]
    if gained <= 0:
        return f"{count}, and it does not get less: {rates['delivered']:g} a second are delivered"
    return f"{count}, which takes {span(int(count / gained * 1000))} at {gained:g} a second"


def _queues(at: overview.Overview) -> list[str]:
    """The fullest of those that programs consume."""
    from wsrm_mq.views import queues

    there = (one for one in at.consumed if one.messages and not one.is_kept)
    fullest = sorted(there, key=lambda one: -one.messages)[:SHOWN]
    return [f"{one.queue}: {queues.told_of(one)}" for one in fullest] or ["nothing waits"]


def _tokens(document: dict[str, Any]) -> str:
    expired = document["tokens_expired"]
    return f"{len(document['tokens'])} valid" + (f", and expired: {', '.join(expired)}" if expired else "")


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {word}" for word, count in sorted(counts.items())) or "none"


def _processes(at: overview.Overview, unconfirmed: str | None) -> str:
    if not at.is_served:
        return "no service: programs put, consume or send"
    dead = f", {at.dead_instances} dead and not noticed yet" if at.dead_instances else ""
    text = f"{len(at.instances)} live{dead}"
    return text if at.instances or unconfirmed else f"{text}: start the service"
