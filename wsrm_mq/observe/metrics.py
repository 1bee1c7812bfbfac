"""Prometheus metrics, read from the store at scrape: the same numbers whichever process is asked.

The page ``docs/observability.md`` shows the table; a test holds it against this one. The sequence is never a label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from wsrm_mq.store.applications import sent_queue, source_queue
from wsrm_mq.store.counting import BOUNDS, RECEIVED
from wsrm_mq.store.driver import snapshot
from wsrm_mq.store.port import Database
from wsrm_mq.views.overview import OTHER, Counted, Overview, counters, overview, shown_queues
from wsrm_mq.views.requests import Requests


class Scrape(NamedTuple):
    """One look at the store."""

    now: int
    at: Overview
    counts: list[Counted]
    shown: frozenset[str]
    """Names of the queues that are told apart."""

    def endpoint(self, queue: str) -> str:
        return queue if queue in self.shown else OTHER


Samples = Iterable[tuple[tuple[str, ...], float]]


class Metric(NamedTuple):
    """A metric under the name that Prometheus knows it by."""

    name: str
    meaning: str
    samples: Callable[[Scrape], Samples]
    labels: tuple[str, ...] = ("endpoint",)

    @property
    def kind(self) -> str:
        """The name says it, as Prometheus wants that."""
        if self.name.endswith("_duration_seconds"):
            return "histogram"
        return "counter" if self.name.endswith("_total") else "gauge"


def _received(scrape: Scrape) -> Samples:
    return (((one.queue, one.label, one.name), one.value) for one in scrape.counts if one.name in RECEIVED)


def _counts(*names: str) -> Callable[[Scrape], Samples]:
    """The counters ``names`` of each queue, whatever their labels."""
    return lambda scrape: (((one.queue,), one.value) for one in scrape.counts if one.name in names)


def _labelled(name: str) -> Callable[[Scrape], Samples]:
    return lambda scrape: (((one.queue, one.label), one.value) for one in scrape.counts if one.name == name)


def _took(scrape: Scrape) -> Samples:
    """The durations of successful and of failed deliveries, by bucket."""
    timed = (one for one in scrape.counts if one.name in ("delivered", "took") and one.label)
    return (((one.queue, one.label), one.value) for one in timed)


def _by_queue(values: Callable[[Scrape], Mapping[str, float]]) -> Callable[[Scrape], Samples]:
    return lambda scrape: (((queue,), value) for queue, value in values(scrape).items())


def _age(scrape: Scrape) -> dict[str, float]:
    """In seconds; 0 where all is delivered. A clock that was stepped back makes nothing younger than new."""
    ages = dict.fromkeys(scrape.shown, 0.0)
    for queue, waiting in scrape.at.waiting.items():
        name, oldest = scrape.endpoint(queue), waiting.oldest
        ages[name] = max(ages.get(name, 0.0), (scrape.now - oldest) / 1000 if oldest is not None else 0.0)
    return ages


def _requests(
    value: Callable[[Requests, int], float], together: Callable[[Iterable[float]], float] = max
) -> Callable[[Scrape], Samples]:
    """Make the samples of a metric of requests, one for each destination: the values of its sequences, which
    ``together`` makes one."""

    def samples(scrape: Scrape) -> Samples:
        found: dict[str, list[float]] = {}
        for one in scrape.at.requests:
            endpoint = scrape.endpoint(sent_queue(source_queue(one.to)))
            found.setdefault(endpoint, []).append(value(one, scrape.now))
        return (((endpoint,), together(values)) for endpoint, values in found.items())

    return samples


METRICS: Final = (
    Metric(
        "wsrm_messages_received_total",
        "Messages with a Sequence header, and with version `none` those that `queue_one_way` stores, by what became of "
        f"them: {', '.join(RECEIVED)}",
        _received,
        ("endpoint", "version", "outcome"),
    ),
    Metric(
        "wsrm_messages_delivered_total",
        "Messages that the application has taken, or a consumer has acknowledged",
        _counts("delivered"),
    ),
    Metric(
        "wsrm_messages_replayed_total",
        "Those of them that were read back from the store: held, tried again, or found at a start",
        _counts("replayed"),
    ),
    Metric(
        "wsrm_delivery_failures_total",
        "Attempts that failed: exception, http_error, soap_fault, answered_with_fault, refused, unstorable, not_sent, "
        "not_told, never_answered, too_large, not_let_in, nacked, holder_died, broke_off",
        _labelled("failed"),
        ("endpoint", "fault"),
    ),
    Metric(
        "wsrm_delivery_duration_seconds",
        "How long the application ran, whatever came of it",
        _took,
    ),
    Metric(
        "wsrm_ledger_events_total",
        "Rows of the ledger: created, ended, dead, blocked, resumed, skipped and so on",
        _labelled("ledger"),
        ("endpoint", "event"),
    ),
    Metric(
        "wsrm_events_total",
        "Events told, by name; see the table of events",
        lambda scrape: (((one.label,), one.value) for one in scrape.counts if one.name == "event"),
        ("event",),
    ),
    Metric(
        "wsrm_messages_put_total",
        "Messages that came into a queue that programs consume; what they acknowledge is delivered",
        _counts("put"),
        ("queue",),
    ),
    Metric(
        "wsrm_queue_messages",
        "Messages of a queue that programs consume that are not settled",
        _by_queue(lambda scrape: {one.queue: one.messages for one in scrape.at.consumed}),
        ("queue",),
    ),
    Metric(
        "wsrm_queue_next_age_seconds",
        "Age of the message that its next consumer gets; 0 where none is ready",
        lambda scrape: (((one.queue,), one.waited(scrape.now) / 1000) for one in scrape.at.consumed),
        ("queue",),
    ),
    Metric(
        "wsrm_sequences",
        "Sequences in the store, by protocol state",
        lambda scrape: ((key, count) for key, count in scrape.at.sequences.items()),
        ("endpoint", "state"),
    ),
    Metric(
        "wsrm_sequences_blocked",
        "Sequences that a message has stopped: they wait for an operator",
        _by_queue(lambda scrape: scrape.at.blocked),
    ),
    Metric(
        "wsrm_messages_held",
        "Messages that wait behind a gap",
        _by_queue(lambda scrape: {queue: one.held for queue, one in scrape.at.waiting.items()}),
    ),
    Metric(
        "wsrm_messages_ready",
        "Messages that wait for the application: next, running, to be tried again, or behind such a one",
        _by_queue(lambda scrape: {queue: one.ready for queue, one in scrape.at.waiting.items()}),
    ),
    Metric(
        "wsrm_dead_letters",
        "Messages in the dead letters of the endpoint",
        _by_queue(lambda scrape: scrape.at.dead_letters),
    ),
    Metric(
        "wsrm_dead_letters_unconfirmed",
        "Those of them that no operator has confirmed: what to be alarmed by",
        _by_queue(lambda scrape: scrape.at.dead_letters_unconfirmed),
    ),
    Metric(
        "wsrm_replies_unacknowledged",
        "Replies in offered sequences that their sources have not acknowledged",
        _by_queue(lambda scrape: scrape.at.unacknowledged_replies),
    ),
    Metric(
        "wsrm_requests_waiting",
        "Requests of an RM Source that are not acknowledged, or not replied to",
        _requests(lambda one, _now: one.waiting, sum),
    ),
    Metric(
        "wsrm_requests_oldest_age_seconds",
        "Age of the oldest of them; 0 without one",
        _requests(lambda one, now: 0 if one.since is None else max(0, now - one.since) / 1000),
    ),
    Metric(
        "wsrm_requests_in_vain",
        "1 while they wait and the last attempt was in vain: the destination is away or refuses, or none can sign",
        _requests(lambda one, _now: bool(one.waiting) and one.error is not None),
    ),
    Metric(
        "wsrm_posts_repeated_total",
        "How often what this side sends has left once more, as it was not acknowledged or replied to in time",
        _counts("repeated"),
    ),
    Metric(
        "wsrm_posts_unanswered_total",
        "How often it was sent, or could not be, without an answer, or with one that the host takes nothing now",
        _counts("unanswered"),
    ),
    Metric(
        "wsrm_messages_faulted",
        "One-way messages that the application took and answered with a fault in the last 24 hours, not confirmed",
        _by_queue(lambda scrape: scrape.at.faulted),
    ),
    Metric(
        "wsrm_refusals_total",
        "Requests that were refused, by the limit or error that they met",
        lambda scrape: (((one.reason, one.partner), one.times) for one in scrape.at.refused),
        ("reason", "partner"),
    ),
    Metric(
        "wsrm_oldest_undelivered_age_seconds",
        "Age of the oldest message that is not settled; 0 without one",
        _by_queue(_age),
    ),
    Metric(
        "wsrm_unarchived_age_seconds",
        "How long ago the first of the messages was settled that no archive holds; 0 without one",
        lambda scrape: (((), max(0, scrape.now - (scrape.at.unarchived or scrape.now)) / 1000),),
        (),
    ),
    Metric(
        "wsrm_instances",
        "Processes that use the store: live, or dead and not noticed yet",
        lambda scrape: ((("live",), len(scrape.at.instances)), (("dead",), scrape.at.dead_instances)),
        ("state",),
    ),
    Metric(
        "wsrm_store_bytes",
        "Size of the store's file and of its write-ahead log: store, wal",
        lambda scrape: ((("store",), scrape.at.file_bytes), (("wal",), scrape.at.wal_bytes)),
        ("file",),
    ),
    Metric(
        "wsrm_disk_free_bytes",
        "Free space on the disk of the store",
        lambda scrape: (((), scrape.at.disk_free),),
        (),
    ),
    Metric(
        "wsrm_store_reserve_spent",
        "1 while the disk is full and the reserve is in use: nothing new is accepted",
        lambda scrape: (((), scrape.at.is_reserve_spent),),
        (),
    ),
)


class StoreCollector(Collector):
    """Collects ``METRICS`` from a store. ``reader`` lends a read-only connection; ``clock`` answers ms."""

    def __init__(self, reader: Callable[[], AbstractContextManager[Database]], clock: Callable[[], int]) -> None:
        self._reader = reader
        self._clock = clock

    def describe(self) -> Iterable[Family]:
        return ()

    def collect(self) -> Iterator[Family]:
        with self._reader() as db, snapshot(db):
            shown = shown_queues(db)
            now = self._clock()
            scrape = Scrape(now, overview(db, now), counters(db), shown)
        for metric in METRICS:
            yield (_histogram if metric.kind == "histogram" else _plain)(metric, scrape)


def _summed(metric: Metric, scrape: Scrape) -> dict[tuple[str, ...], float]:
    """The samples; those of queues that are not told apart are one."""
    total: dict[tuple[str, ...], float] = {}
    for labels, value in metric.samples(scrape):
        if metric.labels[:1] in (("endpoint",), ("queue",)) and labels[0]:
            labels = (scrape.endpoint(labels[0]), *labels[1:])
        total[labels] = total.get(labels, 0.0) + value
    return total


def _plain(metric: Metric, scrape: Scrape) -> Family:
    family = _PLAIN[metric.kind](metric.name, metric.meaning, labels=metric.labels)
    for labels, value in _summed(metric, scrape).items():
        family.add_metric(labels, value)
    return family


def _histogram(metric: Metric, scrape: Scrape) -> Family:
    family = HistogramMetricFamily(metric.name, metric.meaning, labels=metric.labels)
    found = _summed(metric, scrape)
    sums = {one.queue: one.value / 1e6 for one in scrape.counts if one.name == "took_us"}
    for endpoint in dict.fromkeys(labels[0] for labels in found):
        so_far, buckets = 0.0, []
        for bound in (*BOUNDS, float("inf")):
            so_far += found.get((endpoint, f"{bound:g}"), 0.0)
            buckets.append(("+Inf" if bound == float("inf") else f"{bound:g}", so_far))
        family.add_metric((endpoint,), buckets, sums.get(endpoint, 0.0))
    return family


_PLAIN: Final[dict[str, type[CounterMetricFamily | GaugeMetricFamily]]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
}
