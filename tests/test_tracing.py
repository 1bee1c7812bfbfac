"""Spans: a delivery links to the receipt of its message, and without a provider there are none."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import get_current_span

from tests.support.in_process import FACTORY, TWO_WAY, InProcess, taken, until
from wsrm_mq import tracing
from wsrm_mq.tracing import making

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(scope="module")
def exporter() -> InMemorySpanExporter:
    """A provider can be set once in a process."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> Iterator[InMemorySpanExporter]:
    exporter.clear()
    tracing.look()
    yield exporter
    tracing.spans = None


class Service:
    def __init__(self) -> None:
        self.seen: list[tuple[int, str | None]] = []
        self.traces: list[int] = []
        self.fails = 0

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        environ["wsgi.input"].read()
        self.seen.append((environ["wsrm.message_number"], environ.get("HTTP_TRACEPARENT")))
        self.traces.append(get_current_span().get_span_context().trace_id)
        if self.fails:
            self.fails -= 1
            raise OSError("no")
        return taken(start_response)


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def wsrm(tmp_path: Path, service: Service) -> Iterator[InProcess]:
    wsrm = InProcess(tmp_path, service, retry=[0.01], hold_wait=5)
    yield wsrm
    wsrm.middleware.close(5)


def send(wsrm: InProcess, identifier: str, number: int, traceparent: str = PARENT, **options: Any) -> None:
    status, _ = wsrm.post(FACTORY.message(identifier, number, **options), HTTP_TRACEPARENT=traceparent)
    assert status.startswith("200")


def named(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


def test_a_delivery_links_to_the_receipt_which_is_a_child_of_the_sender_s(
    wsrm: InProcess, service: Service, spans: InMemorySpanExporter
) -> None:
    identifier = wsrm.create()
    send(wsrm, identifier, 1)
    assert until(lambda: named(spans, "settle /orders") and named(spans, "receive /orders"))
    (receive,), (process,), (settle,) = (named(spans, f"{one} /orders") for one in ("receive", "process", "settle"))
    assert receive.parent is not None
    assert trace.format_trace_id(receive.context.trace_id) == PARENT.split("-")[1]
    assert trace.format_span_id(receive.parent.span_id) == PARENT.split("-")[2]
    assert process.parent is None
    assert [link.context.span_id for link in process.links] == [receive.context.span_id]
    assert process.context.trace_id != receive.context.trace_id
    assert settle.parent is not None
    assert settle.parent.span_id == process.context.span_id
    assert service.traces == [process.context.trace_id]
    assert service.seen == [(1, PARENT)]


def test_the_names_are_those_of_the_conventions(wsrm: InProcess, spans: InMemorySpanExporter) -> None:
    identifier = wsrm.create()
    send(wsrm, identifier, 1, message_id="urn:message:one")
    assert until(lambda: named(spans, "receive /orders"))
    assert dict(named(spans, "receive /orders")[0].attributes or {}) == {
        "messaging.system": "ws-rm",
        "messaging.destination.name": "/orders",
        "messaging.operation.type": "receive",
        "messaging.operation.name": "receive",
        "messaging.message.id": "urn:message:one",
        "messaging.message.conversation_id": identifier,
        "wsrm.message_number": 1,
        "wsrm.outcome": "accepted",
    }


def test_a_held_message_links_to_its_own_receipt_after_a_restart(
    wsrm: InProcess, service: Service, spans: InMemorySpanExporter
) -> None:
    identifier = wsrm.create()
    send(wsrm, identifier, 2)
    assert until(lambda: [one.attributes["wsrm.outcome"] for one in named(spans, "receive /orders")] == ["held"])  # type: ignore[index]
    wsrm.middleware.close(5)
    wsrm.open()
    send(wsrm, identifier, 1)
    assert until(lambda: len(named(spans, "settle /orders")) == 2)
    received = {
        span.attributes["wsrm.message_number"]: span.context.span_id for span in named(spans, "receive /orders")
    }  # type: ignore[index]
    for process in named(spans, "process /orders"):
        assert [link.context.span_id for link in process.links] == [received[process.attributes["wsrm.message_number"]]]  # type: ignore[index]


def test_a_failed_attempt_says_so_and_the_next_is_the_second(
    wsrm: InProcess, service: Service, spans: InMemorySpanExporter
) -> None:
    service.fails = 1
    send(wsrm, wsrm.create(), 1)
    assert until(lambda: len(named(spans, "settle /orders")) == 2)
    first, second = named(spans, "process /orders")
    assert (first.attributes["error.type"], first.attributes["wsrm.attempt"]) == ("exception", 1)  # type: ignore[index]
    assert not first.status.is_ok
    assert (second.status.is_ok, second.attributes["wsrm.attempt"]) == (True, 2)  # type: ignore[index]


def test_a_two_way_message_has_the_same_spans(wsrm: InProcess, spans: InMemorySpanExporter) -> None:
    send(wsrm, wsrm.create(), 1, reply_to=TWO_WAY)
    assert until(lambda: len(spans.get_finished_spans()) == 3)
    assert {span.name for span in spans.get_finished_spans()} == {
        f"{one} /orders" for one in ("receive", "process", "settle")
    }


@pytest.mark.parametrize("traceparent", ["nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "x" * 5_000])
def test_a_traceparent_that_is_none_costs_nothing_but_the_parent(
    wsrm: InProcess, spans: InMemorySpanExporter, traceparent: str
) -> None:
    send(wsrm, wsrm.create(), 1, traceparent)
    assert until(lambda: len(named(spans, "settle /orders")) == 1)
    assert named(spans, "receive /orders")[0].parent is None


def test_no_request_can_forge_the_stored_span(wsrm: InProcess, spans: InMemorySpanExporter) -> None:
    identifier = wsrm.create()
    wsrm.post(FACTORY.message(identifier, 1), **{"HTTP_WSRM_TRACEPARENT": PARENT})
    assert until(lambda: len(named(spans, "settle /orders")) == 1)
    (process,) = named(spans, "process /orders")
    assert process.links[0].context.span_id == named(spans, "receive /orders")[0].context.span_id


def test_without_a_provider_nothing_is_imported_and_nothing_is_kept(tmp_path: Path) -> None:
    code = """
        import sys, json
        from pathlib import Path
        from tests.support.in_process import InProcess, taken, until
        wsrm = InProcess(Path(sys.argv[1]), lambda environ, start: taken(start))
        wsrm.put(wsrm.create(), 1)
        assert until(lambda: wsrm.rows("SELECT count(*) FROM entry WHERE outcome = 'delivered'") == [(1,)])
        (environ,) = wsrm.rows("SELECT environ FROM message")[0]
        wsrm.middleware.close(5)
        imported = [name in sys.modules for name in ("wsrm_mq.tracing.making", "opentelemetry")]
        print(json.dumps([*imported, "wsrm.traceparent" in environ]))
        """
    import textwrap

    done = subprocess.run(
        [sys.executable, "-E", "-c", textwrap.dedent(code), str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [False, False, False]


def test_a_provider_that_is_not_set_is_no_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "get_tracer_provider", trace.NoOpTracerProvider)
    tracing.look()
    assert tracing.spans is None


class Raising(SpanProcessor):
    """Raises on every nth call, of the beginning or the end of a span."""

    def __init__(self) -> None:
        self.every = 0
        self._calls = 0

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        self._raise()

    def on_end(self, span: ReadableSpan) -> None:
        self._raise()

    def _raise(self) -> None:
        self._calls += 1
        if self.every and self._calls % self.every == 0:
            raise [SystemExit, RuntimeError, KeyboardInterrupt][self._calls % 3]("from a span processor")


class Slow(SpanProcessor):
    """Takes its time for each span that ends, as an exporter may."""

    def __init__(self) -> None:
        self.threads: set[str] = set()
        self.seconds = 0.2

    def on_end(self, span: ReadableSpan) -> None:
        self.threads.add(threading.current_thread().name)
        time.sleep(self.seconds)


@pytest.mark.parametrize("reply_to", ["none", TWO_WAY], ids=["one-way", "two-way"])
def test_spans_end_in_no_thread_that_commits_or_answers(
    wsrm: InProcess, spans: InMemorySpanExporter, reply_to: str
) -> None:
    slow = Slow()
    provider: Any = trace.get_tracer_provider()
    provider.add_span_processor(slow)
    identifier = wsrm.create()
    begun = time.monotonic()
    for number in range(1, 6):
        assert wsrm.put(identifier, number, reply_to=reply_to).startswith("200")
    assert until(lambda: wsrm.rows("SELECT count(*) FROM entry WHERE outcome = 'delivered'") == [(5,)])
    assert time.monotonic() - begun < 5 * 3 * slow.seconds, "three spans a message"
    slow.seconds = 0
    assert slow.threads == {"wsrm-mq-spans"}


@pytest.mark.parametrize("reply_to", ["none", TWO_WAY], ids=["one-way", "two-way"])
@pytest.mark.parametrize("every", [1, 2, 3, 5])
def test_a_span_processor_that_raises_costs_its_spans_and_no_message(
    wsrm: InProcess,
    service: Service,
    spans: InMemorySpanExporter,
    every: int,
    reply_to: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(making, "_told_at", float("-inf"))
    raising = Raising()
    provider: Any = trace.get_tracer_provider()
    provider.add_span_processor(raising)
    raising.every = every
    service.fails = 1
    try:
        identifier = wsrm.create()
        for number in range(1, 8):
            status = wsrm.put(identifier, number, reply_to=reply_to)
            assert status.startswith("200")
        assert until(lambda: wsrm.rows("SELECT count(*) FROM entry WHERE outcome = 'delivered'") == [(7,)])
    finally:
        raising.every = 0
    assert [number for number, _ in service.seen] == [1, 1, 2, 3, 4, 5, 6, 7]
    assert wsrm.rows("SELECT sum(failures) FROM entry") == [(1,)]
    assert caplog.text.count("tracing.failed") == 1
