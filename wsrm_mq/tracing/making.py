"""OpenTelemetry spans, and every name of theirs: the semantic conventions of messaging are not stable yet.

Three spans for a message: ``receive``, a child of what the request's ``traceparent`` says; ``process``, the call of
the application, in a trace of its own that *links* to the receive span (between the two there may be a gap, a crash, or
days); and ``settle``, until the outcome is stored, a child of process. What the application does is a child of process.

Spans end in a thread of their own: what a provider does with one that has ended, an export perhaps, holds up no commit.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeVar

from wsrm_mq.events.telling import tell

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

    from wsrm_mq.delivery.delivery import Delivery, Outcome

SCOPE: Final = "wsrm_mq"
SYSTEM: Final = "messaging.system"
DESTINATION: Final = "messaging.destination.name"
OPERATION: Final = "messaging.operation.type"
OPERATION_NAME: Final = "messaging.operation.name"
MESSAGE_ID: Final = "messaging.message.id"
CONVERSATION: Final = "messaging.message.conversation_id"
NUMBER: Final = "wsrm.message_number"
ATTEMPT: Final = "wsrm.attempt"
OUTCOME: Final = "wsrm.outcome"
ERROR: Final = "error.type"
OUR_SYSTEM: Final = "ws-rm"

TRACEPARENT: Final = "HTTP_TRACEPARENT"
TRACESTATE: Final = "HTTP_TRACESTATE"
RECEIVED_IN: Final = "wsrm.traceparent"
"""Key of the kept request: the receive span, as a traceparent. No peer can set it, it is no HTTP header."""

MOST_ENDING: Final = 10_000
"""Spans that may wait for their end; more are dropped."""

R = TypeVar("R")

_TOLD_EVERY_SECONDS: Final = 60.0
_told_at = float("-inf")


def spans_of(trace: Any) -> Spans | None:
    """The spans that the provider makes which is set in ``opentelemetry.trace``; ``None``: none is."""
    tracer = _quietly(lambda: _tracer(trace))
    if tracer is None:
        return None
    ending.look_after()
    return Spans(tracer)


def _tracer(trace: Any) -> Tracer | None:
    provider = trace.get_tracer_provider()
    is_set = not isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider)
    return provider.get_tracer(SCOPE) if is_set else None


def _quietly(make: Callable[[], R]) -> R | None:
    """Call ``make`` and answer its result. An error of a sampler, a processor or an exporter ends here: spans harm no
    delivery."""
    global _told_at
    try:
        return make()
    except BaseException as error:
        now = time.monotonic()
        if now - _told_at > _TOLD_EVERY_SECONDS:
            _told_at = now
            tell("tracing.failed", trouble=error)
        return None


class _Ending:
    """The thread in which spans end; it is made anew in a forked child, without the spans that its parent had to
    end."""

    def __init__(self) -> None:
        self._ended: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def look_after(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._ended = SimpleQueue()
            thread = threading.Thread(target=self._run, args=(self._ended,), name="wsrm-mq-spans", daemon=True)
            with suppress(RuntimeError):  # the system has no thread left: the next look tries again
                thread.start()
                self._thread = thread

    def put(self, end: Callable[[], object]) -> None:
        if self._ended.qsize() < MOST_ENDING:  # else the provider hangs
            self._ended.put(end)

    def flush(self, seconds: float = 1.0) -> None:
        """Wait until the spans that were put before have ended, at most so long."""
        if self._thread is not None and self._thread.is_alive():
            is_done = threading.Event()
            self._ended.put(is_done.set)
            is_done.wait(seconds)

    @staticmethod
    def _run(ended: SimpleQueue[Callable[[], object]]) -> None:
        while True:
            _quietly(ended.get())


ending: Final = _Ending()


class Receive:
    """The span of a message's receipt. ``environ`` is the kept request, which names the span."""

    __slots__ = ("_span", "environ")

    def __init__(self, span: Span, environ: str) -> None:
        self._span = span
        self.environ = environ

    def end(self, outcome: str, error: str | None = None) -> None:
        """``outcome`` as it is counted; ``error``: why nothing was stored."""
        _quietly(lambda: self._span.set_attribute(OUTCOME, outcome))
        _end(self._span, error)


class Spans:
    """The spans of messages that one tracer makes."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def receive(
        self, environ: str, destination: str, message_id: str | None, identifier: str, number: int
    ) -> Receive | None:
        """Begin the span of a message that arrives, if it can be made. ``environ`` is the kept request, as JSON."""
        return _quietly(lambda: _receive(self._tracer, environ, destination, message_id, identifier, number))

    def process(self, call: Callable[[Delivery], Outcome], delivery: Delivery) -> Outcome:
        """Answers ``call(delivery)``, which runs in a span of its own."""
        from opentelemetry import context
        from opentelemetry.trace import SpanKind, set_span_in_context

        kept = json.loads(delivery.environ)
        destination = f"{kept.get('SCRIPT_NAME', '')}{kept.get('PATH_INFO', '')}" or "/"
        span = _quietly(lambda: _processing(self._tracer, kept, destination, delivery))
        if span is None:
            return call(delivery)
        token = _quietly(lambda: context.attach(set_span_in_context(span)))
        outcome = call(delivery)
        if token is not None:
            _quietly(lambda: context.detach(token))
        _end(span, outcome.diagnosis.kind if outcome.error is not None else None)
        attributes = _attributes("settle", destination, delivery.message_id, delivery.identifier, delivery.number)
        settling = _quietly(
            lambda: self._tracer.start_span(
                f"settle {destination}", set_span_in_context(span, context.Context()), SpanKind.CLIENT, attributes
            )
        )
        outcome.settling = None if settling is None else partial(_settle, settling)
        return outcome


def _receive(
    making: Tracer, environ: str, destination: str, message_id: str | None, identifier: str, number: int
) -> Receive:
    from opentelemetry.trace import SpanKind

    kept = json.loads(environ)
    attributes = _attributes("receive", destination, message_id, identifier, number)
    span = making.start_span(f"receive {destination}", _remote(kept), SpanKind.CONSUMER, attributes)
    context = span.get_span_context()
    if context.is_valid:
        kept[RECEIVED_IN] = f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
        environ = json.dumps(kept, separators=(",", ":"))
    return Receive(span, environ)


def _processing(making: Tracer, kept: dict[str, Any], destination: str, delivery: Delivery) -> Span:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, SpanKind, get_current_span

    attributes = _attributes("process", destination, delivery.message_id, delivery.identifier, delivery.number)
    received = get_current_span(_remote(kept, RECEIVED_IN) or _remote(kept) or Context()).get_span_context()
    return making.start_span(
        f"process {destination}",
        Context(),
        SpanKind.CONSUMER,
        {**attributes, ATTEMPT: delivery.attempt},
        links=[Link(received)] if received.is_valid else [],
    )


def _settle(span: Span, error: BaseException | None) -> None:
    """End the span of a settlement: the outcome of a call is stored, or could not be."""
    _end(span, type(error).__name__ if error is not None else None)


def _attributes(
    operation: str, destination: str, message_id: str | None, identifier: str, number: int
) -> dict[str, Any]:
    attributes = {
        SYSTEM: OUR_SYSTEM,
        DESTINATION: destination,
        OPERATION: operation,
        OPERATION_NAME: operation,
        MESSAGE_ID: message_id,
        CONVERSATION: identifier,
        NUMBER: number,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def _remote(kept: dict[str, Any], key: str = TRACEPARENT) -> Context | None:
    """The context that a traceparent of the kept request names; the propagator reads it as the specification wants."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    if key not in kept:
        return None
    carrier = {"traceparent": kept[key]}
    if TRACESTATE in kept:
        carrier["tracestate"] = kept[TRACESTATE]
    return TraceContextTextMapPropagator().extract(carrier)


def _end(span: Span, error: str | None) -> None:
    if error is not None:
        _quietly(lambda: _mark(span, error))
    ending.put(partial(span.end, time.time_ns()))


def _mark(span: Span, error: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute(ERROR, error)
    span.set_status(Status(StatusCode.ERROR))
