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
    value: Callable[[Sight], float]
    facts: Callable[[Sight], list[Fact]] = lambda _sight: []
    unit: str = ""
    warning: str = ""
    critical: str = ""
    listing: Step | None = None
    """A proposal that shows all of them."""

    @property
    def is_flag(self) -> bool:
        return self.meaning.startswith("1:")


def _age(sight: Sight) -> float:
    oldest = sight.at.oldest
    return 0.0 if oldest is None else max(0.0, (sight.now - oldest) / 1000)


MEASURES: Final = {
    "locked": Measure("1: the store cannot be written", lambda s: s.is_locked, store_findings.locked, critical="0"),
    "over_max_store": Measure(
        "1: max_store is reached, as it is configured here",
        lambda s: s.is_over,
        store_findings.over_max_store,
        critical="0",
    ),
    "not_adopted": Measure(
        "1: the store is not served before an operator adopts it",
        lambda s: bool(s.doubt),
        store_findings.doubt,
        critical="0",
    ),
    "reserve_spent": Measure(
        "1: the disk is full", lambda s: s.at.is_reserve_spent, store_findings.reserve_spent, critical="0"
    ),
    "nothing_taken": Measure(
        "reasons in 5 minutes why no message is taken at all (max_store, disk_full, store_locked, "
        "store_unavailable, overloaded)",
        lambda s: len(store_findings.nothing_taken(s)),
        store_findings.nothing_taken,
        critical="0",
    ),
    "recovered": Measure(
        "1: no message was taken within the last 5 minutes, for a reason that is over",
        lambda s: bool(store_findings.recovered(s)),
        store_findings.recovered,
        warning="0",
    ),
    "deadly": Measure(
        "messages that two or more processes in a row have died with",
        lambda s: len(findings.deadly(s)),
        findings.deadly,
        critical="0",
        listing=others.EXPLAIN.step("", "verdict:blocked,running"),
    ),
    "instances": Measure(
        "processes of the service that live",
        lambda s: len(s.at.instances) or int(not s.at.is_served),
        store_findings.instances,
        critical="1:",
    ),
    "unserved": Measure(
        "queues of applications that no process serves",
        lambda s: len(s.at.unserved),
        store_findings.unserved,
        critical="0",
    ),
    "disk_free": Measure(
        "free space beside the store",
        lambda s: s.at.disk_free,
        store_findings.disk_free,
        unit="B",
        warning="100000000:",
        critical="10000000:",
    ),
    "blocked": Measure(
        "sequences stopped by a message",
        lambda s: sum(s.at.blocked.values()),
        findings.blocked,
        warning="0",
        critical="10",
        listing=others.EXPLAIN.step("", "verdict:blocked"),
    ),
    "refused": Measure(
        "limits, or hooks at fault, that refused messages in 5 minutes",
        lambda s: len(store_findings.refused(s)),
        store_findings.refused,
        warning="0",
        listing=others.FAILURES.step(""),
    ),
    "turned_away": Measure(
        "partners that were refused a sequence in 24 h, and have no newer one",
        lambda s: len(store_findings.turned_away(s)),
        store_findings.turned_away,
        warning="0",
        listing=others.FAILURES.step("", "reason:CreateSequenceRefused"),
    ),
    "unsent": Measure(
        "1: something waits for a minute to be sent, and no process takes it up",
        lambda s: int(s.at.unsent is not None and bool(s.at.instances)),
        store_findings.unsent,
        critical="0",
    ),
    "not_sent": Measure(
        "kinds of acknowledgements and faults that their addresses did not take in 5 minutes",
        lambda s: len(s.at.not_sent_lately(s.now)),
        store_findings.not_sent,
        warning="0",
    ),
    "faulted": Measure(
        "messages answered with a fault in 24 h, not confirmed",
        lambda s: sum(s.at.faulted.values()),
        findings.faulted,
        warning="0",
        listing=others.FAILURES.step("", "event:answered_with_fault", "confirmed:no"),
    ),
    "running": Measure(
        "sequences whose operation has run for 5 minutes",
        lambda s: len(findings.running(s)),
        findings.running,
        warning="0",
        listing=others.EXPLAIN.step("", "verdict:running"),
    ),
    "waiting": Measure(
        "sequences that have waited for 5 minutes",
        lambda s: len(findings.waiting(s)),
        findings.waiting,
        warning="0",
        listing=others.EXPLAIN.step("", "verdict:waiting"),
    ),
    "silent": Measure(
        "sequences with numbers missing whose source is silent",
        lambda s: len(findings.silent(s)),
        findings.silent,
        warning="0",
        listing=others.EXPLAIN.step("", "verdict:silent"),
    ),
    "expiring": Measure(
        "sequences that end soon with something undelivered",
        lambda s: len(findings.expiring(s)),
        findings.expiring,
        warning="0",
        listing=others.EXPLAIN.step("", "verdict:expiring"),
    ),
    "incomplete": Measure(
        "sequences that lack numbers which are not waited for, or have discarded ones; of those that ended, in 24 h",
        lambda s: len(findings.incomplete(s)),
        findings.incomplete,
        warning="0",
        listing=others.EXPLAIN.step("", "verdict:incomplete"),
    ),
    "unacknowledged": Measure(
        "sequences whose source has acknowledged no reply for 5 minutes, and goes on",
        lambda s: len(s.at.unacknowledged),
        findings.unacknowledged,
        warning="0",
    ),
    "on_hold": Measure(
        "sequences that an operator holds",
        lambda s: len(findings.on_hold(s)),
        findings.on_hold,
        warning="0",
        listing=others.EXPLAIN.step("", "verdict:held"),
    ),
    "dead_letters": Measure(
        "dead letters, not confirmed",
        lambda s: sum(s.at.dead_letters_unconfirmed.values()),
        findings.dead_letters,
        warning="0",
        critical="100",
        listing=others.LETTERS.step("", "confirmed:no"),
    ),
    "replays": Measure(
        "replays that have stopped",
        lambda s: len(findings.stopped_plans(s)),
        findings.replays,
        warning="0",
        listing=others.PLANS.step(""),
    ),
    "unarchived": Measure(
        "how long what no archive holds is kept beyond its retain",
        lambda s: s.overdue / 1000,
        findings.unarchived,
        unit="s",
        warning="86400",
        critical="604800",
    ),
    "oldest": Measure(
        "age of the oldest undelivered message", _age, findings.oldest, unit="s", warning="300", critical="3600"
    ),
    "full": Measure(
        "queues that take no message: max_messages or max_bytes is reached",
        lambda s: len(findings.full(s)),
        findings.full,
        warning="0",
        listing=others.QUEUES.step(""),
    ),
    "unkept": Measure(
        "queues that are declared as express, and whose messages no process keeps",
        lambda s: len(s.at.unkept),
        findings.unkept,
        warning="0",
        listing=others.QUEUES.step(""),
    ),
    "absent": Measure(
        "durable subscriptions for which a message has waited for 5 minutes, and that nothing consumes",
        lambda s: len(findings.absent(s)),
        findings.absent,
        warning="0",
        listing=others.SUBSCRIPTIONS.step(""),
    ),
    "growing": Measure(
        "queues of 1,000 messages and more that get more than is consumed",
        lambda s: len(findings.growing(s)),
        findings.growing,
        warning="0",
        listing=others.QUEUES.step(""),
    ),
    "lost_leases": Measure(
        "messages that were given back three times in an hour, as a lease ended or its consumer died; else consumers",
        lambda s: len(s.at.lost_leases),
        findings.lost_leases,
        warning="0",
        listing=others.FAILURES.step("", "event:lease_ended"),
    ),
    "unconsumed": Measure(
        "age of the message that is next in a queue which programs consume",
        lambda s: max((one.waited(s.now) / 1000 for one in s.at.consumed), default=0.0),
        findings.unconsumed,
        unit="s",
        warning="3600",
    ),
    "requests": Measure(
        "destinations that have not taken a request of this side for 5 minutes",
        lambda s: len(findings.requests(s)),
        findings.requests,
        warning="0",
        listing=others.REQUESTS.step(""),
    ),
    "next_nodes": Measure(
        "next nodes of routes that are away for a minute, that no process sends to though something waits, or that "
        "have forgotten messages within 24 h",
        lambda s: len(findings.next_nodes(s)),
        findings.next_nodes,
        warning="0",
        listing=others.NODE.step(""),
    ),
    "unplaced": Measure(
        "1: what another node has handed over waits for its place for a minute",
        lambda s: len(findings.unplaced(s)),
        findings.unplaced,
        warning="0",
    ),
    "dead_instances": Measure(
        "processes that died unnoticed", lambda s: s.at.dead_instances, store_findings.dead_instances, warning="0"
    ),
    "strangers_turned_away": Measure(
        "1: a source that fits no partner was refused a sequence in 24 h, and none has a newer one",
        lambda s: len(store_findings.strangers_turned_away(s)),
        store_findings.strangers_turned_away,
    ),
    "retrying": Measure(
        "sequences whose message is tried again",
        lambda s: len(findings.retrying(s)),
        findings.retrying,
        listing=others.EXPLAIN.step("", "verdict:blocked"),
    ),
    "held": Measure(
        "messages behind a gap",
        lambda s: sum(one.held for one in s.at.waiting.values()),
        findings.gaps,
        listing=others.EXPLAIN.step("", "verdict:waiting"),
    ),
    "ready": Measure(
        "messages that wait for the application",
        lambda s: sum(one.ready for one in s.at.waiting.values()),
        findings.backlog,
        listing=others.EXPLAIN.step("", "verdict:running"),
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
        value = float(measure.value(sight))
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
