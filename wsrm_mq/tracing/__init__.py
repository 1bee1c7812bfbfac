"""Spans of messages, where the application traces with OpenTelemetry.

Nothing is imported that the application has not imported, and without a provider nothing is asked: ``spans`` is
``None``, and a message costs a look at it. A provider that is set later is noticed within a second.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wsrm_mq.tracing.making import Spans

spans: Spans | None = None
"""Makes spans; ``None`` without a provider."""


def look() -> None:
    """Find out whether a provider of spans is set by now. To be called once a second, and at start."""
    global spans
    trace = sys.modules.get("opentelemetry.trace")
    if trace is not None:
        from wsrm_mq.tracing.making import spans_of

        spans = spans_of(trace)


def flush() -> None:
    """Let spans end that have nothing more to wait for, before a process does: also where the provider has gone."""
    if "wsrm_mq.tracing.making" in sys.modules:
        from wsrm_mq.tracing.making import ending

        ending.flush()
