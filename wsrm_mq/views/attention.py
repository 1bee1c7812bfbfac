"""The findings that need attention in a store: one list, worst first. ``status`` begins with it, ``check`` judges by
it.

Each kind is measured by a number, and thresholds on that say how bad it is; ``findings`` has what each kind is about,
and what to do. Times are ms since the epoch.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from wsrm_mq.acts import Step, others
from wsrm_mq.views import findings, store_findings
from wsrm_mq.views.overview import Fact, Sight

# Thresholds in Nagios' own notation.


class Range(NamedTuple):
    """``10`` (0 to 10), ``10:``, ``~:10``, ``10:20``, ``@10:20``. What lies outside alarms; with ``@`` what lies
    inside."""

    text: str
    lower: float
    upper: float
    is_inside: bool

    @classmethod
    def parse(cls, text: str) -> Range:
        """Raises ``ValueError``."""
        found = re.fullmatch(r"(@?)(?:(~|-?[\d.]+)?:)?(-?[\d.]+)?", text)
        if found is None or not text.strip("@"):
            raise ValueError(text)
        inside, start, end = found.groups()
        lower = float("-inf") if start == "~" else float(start or 0)
        return cls(text, lower, float("inf") if end is None else float(end), bool(inside))

    def alarms(self, value: float) -> bool:
        return (self.lower <= value <= self.upper) is self.is_inside


class Severity(enum.IntEnum):
    """How bad it is, in the words of Nagios; a notice alarms nobody."""

    NOTICE = 0
    WARNING = 1
    CRITICAL = 2


class Finding(NamedTuple):
    """``kind``: the name of its measure."""

    kind: str
    severity: Severity
    fact: Fact


class Measure(NamedTuple):
    """A meaning that begins with ``1:`` is of what is or is not. ``unit`` as Nagios has it: ``s``, ``B`` or nothing;
    ``warning`` and ``critical``: the usual thresholds, ``""`` is none; ``listing``: a command for all of them."""

    meaning: str
    facts: Callable[[Sight], list[Fact]]
    number: Callable[[Sight], float] | None = None
    """The number that it is measured by; ``None``: that of its facts."""
    unit: str = ""
    warning: str = "0"
    critical: str = ""
    listing: Step | None = None
    """A proposal that shows all of them."""

    @property
    def is_flag(self) -> bool:
        return self.meaning.startswith("1:")

    def value(self, sight: Sight) -> float:
        return float(len(self.facts(sight)) if self.number is None else self.number(sight))


def _age(sight: Sight) -> float:
    oldest = sight.at.oldest
    return 0.0 if oldest is None else max(0.0, (sight.now - oldest) / 1000)


def _judged(word: str) -> Step:
    return others.EXPLAIN.step("", f"verdict:{word}")


def _alarm(
    meaning: str,
    facts: Callable[[Sight], list[Fact]],
    number: Callable[[Sight], float] | None = None,
    listing: Step | None = None,
) -> Measure:
    """A measure that is critical wherever it is not 0."""
    return Measure(meaning, facts, number, warning="", critical="0", listing=listing)


MEASURES: Final = {
    "locked": _alarm("1: the store cannot be written", store_findings.locked, lambda s: s.is_locked),
    "over_max_store": _alarm(
        "1: max_store is reached, as it is configured here",
        store_findings.over_max_store,
        lambda s: s.is_over,
    ),
    "not_adopted": _alarm(
        "1: the store is not served before an operator adopts it",
        store_findings.doubt,
        lambda s: bool(s.doubt),
    ),
    "reserve_spent": _alarm("1: the disk is full", store_findings.reserve_spent, lambda s: s.at.is_reserve_spent),
    "nothing_taken": _alarm(
        "reasons in 5 minutes why no message is taken at all (max_store, disk_full, store_locked, "
        "store_unavailable, overloaded)",
        store_findings.nothing_taken,
    ),
    "recovered": Measure(
        "1: no message was taken within the last 5 minutes, for a reason that is over",
        store_findings.recovered,
        lambda s: bool(store_findings.recovered(s)),
    ),
    "deadly": _alarm(
        "messages that two or more processes in a row have died with",
        findings.deadly,
        listing=_judged("blocked,running"),
    ),
    "instances": Measure(
        "processes of the service that live",
        store_findings.instances,
        lambda s: len(s.at.instances) or int(not s.at.is_served),
        warning="",
        critical="1:",
    ),
    "unserved": _alarm("queues of applications that no process serves", store_findings.unserved),
    "disk_free": Measure(
        "free space beside the store",
        store_findings.disk_free,
        lambda s: s.at.disk_free,
        unit="B",
        warning="100000000:",
        critical="10000000:",
    ),
    "blocked": Measure(
        "sequences stopped by a message",
        findings.blocked,
        lambda s: sum(s.at.blocked.values()),
        critical="10",
        listing=_judged("blocked"),
    ),
    "refused": Measure(
        "limits, or hooks at fault, that refused messages in 5 minutes",
        store_findings.refused,
        listing=others.FAILURES.step(""),
    ),
    "turned_away": Measure(
        "partners that were refused a sequence in 24 h, and have no newer one",
        store_findings.turned_away,
        listing=others.FAILURES.step("", "reason:CreateSequenceRefused"),
    ),
    "unsent": _alarm("1: something waits for a minute to be sent, and no process takes it up", store_findings.unsent),
    "not_sent": Measure(
        "kinds of acknowledgements and faults that their addresses did not take in 5 minutes", store_findings.not_sent
    ),
    "faulted": Measure(
        "messages answered with a fault in 24 h, not confirmed",
        findings.faulted,
        lambda s: sum(s.at.faulted.values()),
        listing=others.FAILURES.step("", "event:answered_with_fault", "confirmed:no"),
    ),
    "running": Measure("sequences whose operation has run for 5 minutes", findings.running, listing=_judged("running")),
    "waiting": Measure("sequences that have waited for 5 minutes", findings.waiting, listing=_judged("waiting")),
    "silent": Measure(
        "sequences with numbers missing whose source is silent", findings.silent, listing=_judged("silent")
    ),
    "expiring": Measure(
        "sequences that end soon with something undelivered", findings.expiring, listing=_judged("expiring")
    ),
    "incomplete": Measure(
        "sequences that lack numbers which are not waited for, or have discarded ones; of those that ended, in 24 h",
        findings.incomplete,
        listing=_judged("incomplete"),
    ),
    "unacknowledged": Measure(
        "sequences whose source has acknowledged no reply for 5 minutes, and goes on", findings.unacknowledged
    ),
    "on_hold": Measure("sequences that an operator holds", findings.on_hold, listing=_judged("held")),
    "dead_letters": Measure(
        "dead letters, not confirmed",
        findings.dead_letters,
        lambda s: sum(s.at.dead_letters_unconfirmed.values()),
        critical="100",
        listing=others.LETTERS.step("", "confirmed:no"),
    ),
    "replays": Measure("replays that have stopped", findings.replays, listing=others.PLANS.step("")),
    "unarchived": Measure(
        "how long what no archive holds is kept beyond its retain",
        findings.unarchived,
        lambda s: s.overdue / 1000,
        unit="s",
        warning="86400",
        critical="604800",
    ),
    "oldest": Measure(
        "age of the oldest undelivered message", findings.oldest, _age, unit="s", warning="300", critical="3600"
    ),
    "full": Measure(
        "queues that take no message: max_messages or max_bytes is reached",
        findings.full,
        listing=others.QUEUES.step(""),
    ),
    "unkept": Measure(
        "queues that are declared as express, and whose messages no process keeps",
        findings.unkept,
        listing=others.QUEUES.step(""),
    ),
    "half_deleted": Measure(
        "queues that are deleted, and of which something is left that no process gives up", findings.half_deleted
    ),
    "absent": Measure(
        "durable subscriptions for which a message has waited for 5 minutes, and that nothing consumes",
        findings.absent,
        listing=others.SUBSCRIPTIONS.step(""),
    ),
    "growing": Measure(
        "queues of 1,000 messages and more that get more than is consumed",
        findings.growing,
        listing=others.QUEUES.step(""),
    ),
    "lost_leases": Measure(
        "messages that were given back three times in an hour, as a lease ended or its consumer died; else consumers",
        findings.lost_leases,
        listing=others.FAILURES.step("", "event:lease_ended"),
    ),
    "unconsumed": Measure(
        "age of the message that is next in a queue which programs consume",
        findings.unconsumed,
        lambda s: max((one.waited(s.now) / 1000 for one in s.at.consumed), default=0.0),
        unit="s",
        warning="3600",
    ),
    "requests": Measure(
        "destinations that have not taken a request of this side for 5 minutes",
        findings.requests,
        listing=others.REQUESTS.step(""),
    ),
    "next_nodes": Measure(
        "next nodes of routes that are away for a minute, that no process sends to though something waits, or that "
        "have forgotten messages within 24 h",
        findings.next_nodes,
        listing=others.NODE.step(""),
    ),
    "unplaced": Measure("1: what another node has handed over waits for its place for a minute", findings.unplaced),
    "dead_instances": Measure(
        "processes that died unnoticed", store_findings.dead_instances, lambda s: s.at.dead_instances
    ),
    "strangers_turned_away": Measure(
        "1: a source that fits no partner was refused a sequence in 24 h, and none has a newer one",
        store_findings.strangers_turned_away,
        warning="",
    ),
    "retrying": Measure(
        "sequences whose message is tried again", findings.retrying, warning="", listing=_judged("blocked")
    ),
    "held": Measure(
        "messages behind a gap",
        findings.gaps,
        lambda s: sum(one.held for one in s.at.waiting.values()),
        warning="",
        listing=_judged("waiting"),
    ),
    "ready": Measure(
        "messages that wait for the application",
        findings.backlog,
        lambda s: sum(one.ready for one in s.at.waiting.values()),
        warning="",
        listing=_judged("running"),
    ),
}
"""Worst first: the order of findings that are equally severe."""

Thresholds = Mapping[str, Range | None]


def severities(
    sight: Sight, warning: Thresholds | None = None, critical: Thresholds | None = None
) -> dict[str, Severity]:
    """How bad each measure is; the thresholds given stand in place of the usual ones, ``None`` is none."""
    found = {}
    for name, measure in MEASURES.items():
        value = measure.value(sight)
        warns, alerts = bounds(name, warning or {}, critical or {})
        is_critical = alerts is not None and alerts.alarms(value)
        warned = warns is not None and warns.alarms(value)
        found[name] = Severity.CRITICAL if is_critical else Severity.WARNING if warned else Severity.NOTICE
    return found


def bounds(name: str, warning: Thresholds, critical: Thresholds) -> tuple[Range | None, Range | None]:
    """The thresholds of a measure that hold."""
    usual = MEASURES[name]
    return (
        warning[name] if name in warning else Range.parse(usual.warning) if usual.warning else None,
        critical[name] if name in critical else Range.parse(usual.critical) if usual.critical else None,
    )


def attention(sight: Sight, severity: Mapping[str, Severity]) -> list[Finding]:
    """All that is to be told, worst first. What only counts is told where it alarms."""
    found = [
        Finding(kind, severity[kind], fact)
        for kind, measure in MEASURES.items()
        if severity[kind] or not (measure.warning or measure.critical)
        for fact in measure.facts(sight)
    ]
    return sorted(found, key=lambda one: -one.severity)
