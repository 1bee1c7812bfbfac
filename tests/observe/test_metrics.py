"""Metrics: the table, its page, and numbers that are right in every process."""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from werkzeug.test import Client

from tests.support.in_process import InProcess, taken, until
from tests.support.orders import Orders
from tests.support.orders_server import OrdersServer
from tests.support.source import Source
from wsrm_mq.observe import ObserveApp
from wsrm_mq.observe.metrics import METRICS
from wsrm_mq.views import overview

PAGE = Path(__file__).parents[2] / "docs" / "observability.md"
Numbers = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def service(environ: dict[str, Any], start_response: Any) -> Any:
    """Takes everything, but what comes to number 5."""
    environ["wsgi.input"].read()
    if environ["wsrm.message_number"] == 5:
        raise OSError("no")
    return taken(start_response)


@pytest.fixture
def wsrm(tmp_path: Path) -> Iterator[InProcess]:
    wsrm = InProcess(tmp_path, service, retry=[0.01])
    yield wsrm
    wsrm.middleware.close(5)


def scraped(wsrm: InProcess) -> Numbers:
    answer = Client(ObserveApp(wsrm.middleware)).get("/metrics")
    assert answer.status_code == 200
    return numbers(answer.text)


def numbers(text: str) -> Numbers:
    families = text_string_to_metric_families(text)
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for family in families for one in family.samples}


def of(found: Numbers, name: str, **labels: str) -> float | None:
    return found.get((name, tuple(sorted(labels.items()))))


def test_the_page_shows_the_table() -> None:
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in PAGE.read_text().splitlines()
        if re.match(r"\| `wsrm_\w+` \|", line)
    ]
    assert rows == [
        [f"`{one.name}`", one.kind, ", ".join(f"`{label}`" for label in one.labels), one.meaning] for one in METRICS
    ]


def test_no_metric_has_a_sequence_for_a_label_and_all_have_our_prefix() -> None:
    assert all("sequence" not in metric.labels and metric.name.startswith("wsrm_") for metric in METRICS)


def test_what_was_accepted_held_repeated_replayed_and_failed_is_counted(wsrm: InProcess) -> None:
    identifier = wsrm.create()
    for number in (1, 3, 3, 4, 2, 5, 6, 8):
        wsrm.put(identifier, number)

    def whole() -> bool:
        found = scraped(wsrm)
        return of(found, "wsrm_sequences_blocked", endpoint="/orders") == 1 and "delivered" in str(found)

    assert until(whole)
    assert until(lambda: of(scraped(wsrm), "wsrm_messages_delivered_total", endpoint="/orders") == 4)
    found = scraped(wsrm)
    received = {"endpoint": "/orders", "version": "1.1"}
    assert of(found, "wsrm_messages_received_total", outcome="accepted", **received) == 4
    assert of(found, "wsrm_messages_received_total", outcome="held", **received) == 3
    assert of(found, "wsrm_messages_received_total", outcome="duplicate", **received) == 1
    assert of(found, "wsrm_messages_replayed_total", endpoint="/orders") in (2, 3)  # 2 may be read back with them
    assert of(found, "wsrm_delivery_failures_total", endpoint="/orders", fault="exception") == 2
    assert of(found, "wsrm_delivery_duration_seconds_count", endpoint="/orders") == 6
    assert of(found, "wsrm_delivery_duration_seconds_bucket", endpoint="/orders", le="+Inf") == 6
    assert of(found, "wsrm_ledger_events_total", endpoint="/orders", event="blocked") == 1
    assert of(found, "wsrm_messages_held", endpoint="/orders") == 1
    assert of(found, "wsrm_messages_ready", endpoint="/orders") == 2
    assert of(found, "wsrm_instances", state="live") == 1
    age = of(found, "wsrm_oldest_undelivered_age_seconds", endpoint="/orders")
    assert age is not None
    assert 0 <= age < 60


def test_a_flood_of_bad_requests_is_counted_by_name(wsrm: InProcess) -> None:
    for _ in range(7):
        wsrm.post(b"<no")
    assert until(lambda: of(scraped(wsrm), "wsrm_events_total", event="request.refused") == 7)


def test_no_counter_falls_when_rows_and_the_process_are_gone(wsrm: InProcess) -> None:
    identifier = wsrm.create()
    for number in (1, 2, 4):
        wsrm.put(identifier, number)
    assert until(lambda: of(scraped(wsrm), "wsrm_messages_delivered_total", endpoint="/orders") == 2)
    before = {key: value for key, value in scraped(wsrm).items() if key[0].endswith(("_total", "_count", "_bucket"))}
    wsrm.middleware.close(5)
    for table in ("range", "reply", "ledger", "entry", "message", "sequence", "lane"):
        wsrm.rows(f"DELETE FROM {table}")
    wsrm.open()
    after = scraped(wsrm)
    assert {key: value for key, value in before.items() if after.get(key, 0) < value} == {}
    assert of(after, "wsrm_messages_held", endpoint="/orders") is None


def test_paths_that_a_peer_makes_up_are_no_time_series(wsrm: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "SHOWN", 2)
    from tests.support.in_process import FACTORY

    for number in range(5):
        wsrm.post(FACTORY.create_sequence(), PATH_INFO=f"/made/up/{number}")
    endpoints = {dict(labels).get("endpoint") for _name, labels in scraped(wsrm)}
    assert endpoints - {None, ""} == {"/made/up/0", "/made/up/1", "(other)"}
    assert of(scraped(wsrm), "wsrm_sequences", endpoint="(other)", state="created") == 3


def test_a_path_with_quotes_and_newlines_is_a_label_like_any_other(wsrm: InProcess) -> None:
    from tests.support.in_process import FACTORY

    wsrm.post(FACTORY.create_sequence(), PATH_INFO='/a"\n# HELP forged\nforged 1')
    assert of(scraped(wsrm), "forged") is None
    assert of(scraped(wsrm), "wsrm_sequences", endpoint='/a"\n%23 HELP forged\nforged 1', state="created") == 1


def test_openmetrics_is_spoken_with_who_asks_for_it(wsrm: InProcess) -> None:
    answer = Client(ObserveApp(wsrm.middleware)).get("/metrics", headers={"Accept": "application/openmetrics-text"})
    assert answer.content_type.startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/", 404), ("POST", "/metrics", 405)])
def test_there_is_nothing_else(wsrm: InProcess, method: str, path: str, status: int) -> None:
    assert Client(ObserveApp(wsrm.middleware)).open(path, method=method).status_code == status


def test_a_head_has_no_body(wsrm: InProcess) -> None:
    answer = Client(ObserveApp(wsrm.middleware)).head("/metrics")
    assert (answer.status_code, answer.data) == (200, b"")


def test_a_service_that_has_stopped_says_so(wsrm: InProcess) -> None:
    client = Client(ObserveApp(wsrm.middleware))
    wsrm.middleware.close(5)
    assert client.get("/metrics").status_code == 503
    assert client.get("/healthz").status_code == 503


# ---- two servers


class Pair:
    """Two server processes on one store, and what each of them would show."""

    def __init__(self, directory: Path) -> None:
        self.servers = [OrdersServer(directory, retry=[0.05]) for _ in range(2)]
        for server in self.servers:
            server.start()

    def counted(self, source: Source) -> dict[str, int]:
        rows = source.store.rows("select name, sum(value) from counter group by name")
        return dict(rows)

    def stop(self) -> None:
        for server in self.servers:
            server.stop()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    yield pair
    pair.stop()


def test_two_servers_count_in_one_place_and_a_kill_loses_at_most_the_last_second(pair: Pair, tmp_path: Path) -> None:
    one, other = pair.servers
    with Source(one, Orders()) as first, Source(other, Orders()) as second:
        identifier = first.create()
        for number in range(1, 41):
            (first if number % 2 else second).put(identifier, number)
        assert first.delivered(identifier) == list(range(1, 41))
        assert until(lambda: pair.counted(first).get("delivered") == 40)
        assert until(lambda: sum(pair.counted(first).get(name, 0) for name in ("accepted", "held")) == 40)
        shown = [InProcess(tmp_path, service) for _ in range(2)]
        try:

            def totals(wsrm: InProcess) -> dict[Any, float]:
                return {key: value for key, value in scraped(wsrm).items() if "_total" in key[0]}

            assert until(lambda: totals(shown[0]) == totals(shown[1])), "a server may write a count between the two"
            assert of(scraped(shown[0]), "wsrm_messages_delivered_total", endpoint="/orders") == 40
        finally:
            for wsrm in shown:
                wsrm.middleware.close(5)
        time.sleep(1.2)
        before = pair.counted(first)
        one.kill()
        one.start()
    with Source(one, Orders()) as first:
        after = pair.counted(first)
        assert {name: value for name, value in before.items() if after[name] < value} == {}
        fresh = first.create()
        for number in (1, 2, 3):
            first.put(fresh, number)
        assert until(lambda: pair.counted(first)["delivered"] == before["delivered"] + 3)


def test_the_page_of_health_is_json(wsrm: InProcess) -> None:
    answer = Client(ObserveApp(wsrm.middleware)).get("/healthz")
    assert answer.status_code == 200
    found = json.load(io.BytesIO(answer.data))
    assert found["status"] == "ok"
    assert set(found["checks"]) == {"engine", "writer", "store", "watch", "disk"}
