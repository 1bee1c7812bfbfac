"""One-way messages to an application that takes its time: what the middleware leaves of what the application allows."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from bench.applications import Account, wsgi_null
from bench.figures import Bound, Figure
from bench.fronts import FRONTS
from bench.samples import Column, Part, Sample, Scale, of_side, per_round
from bench.sides import Amount, Side, reliable

__all__ = ["PART"]

_SEQUENCES: Final = (1, 8)
_WARM_UP: Final = Amount(3_600, 5)
_LEAST: Final = Bound(">=", 0.9)


def _case(sleep_ms: float, sequences: int) -> str:
    return f"{sleep_ms:.0f} ms, {sequences} sequence{'s' if sequences > 1 else ''}"


def _measure(scale: Scale) -> Iterator[Sample]:
    for number in range(scale.rounds):
        for front in scale.main_fronts:
            with reliable(front, scale.store()) as server:
                server.warm_up(scale.amount)
                quick = {count: server.side(count, scale.amount).delivered_rate for count in _SEQUENCES}
            for sleep_ms, messages in scale.slow.items():
                allowed = {count: _allowed(sleep_ms / 1_000, count, messages) for count in _SEQUENCES}
                with reliable(front, scale.store(), "--sleep-ms", str(sleep_ms)) as server:
                    server.side(1, _WARM_UP)
                    for count in _SEQUENCES:
                        side = server.side(count, Amount(3_600, count * messages))
                        values = _values(side, allowed[count], quick[count])
                        yield Sample(_case(sleep_ms, count), FRONTS[front].shown, number, values)


def _values(side: Side, allowed: float, quick: float) -> dict[str, float]:
    return {
        **of_side(side),
        "rate": side.delivered_rate,
        "accepted": side.load.rate,
        "allowed": allowed,
        "quick": quick,
        "to_allowed": side.delivered_rate / allowed,
        "to_lesser": side.delivered_rate / min(allowed, quick),
    }


def _allowed(sleep: float, threads: int, calls: int) -> float:
    """Calls a second of the same application by as many threads that do nothing else, ``calls`` each."""
    application = wsgi_null(Account(), b"", sleep)

    def call() -> None:
        for _ in range(calls):
            application({"wsgi.input": io.BytesIO(b"x" * 1_024)}, lambda *_: None)

    working = [threading.Thread(target=call) for _ in range(threads)]
    begun = time.monotonic()
    for thread in working:
        thread.start()
    for thread in working:
        thread.join()
    return threads * calls / (time.monotonic() - begun)


def _reach(samples: Sequence[Sample]) -> Iterable[Figure]:
    for case, subject in dict.fromkeys((sample.case, sample.subject) for sample in samples):
        values, others = (per_round(samples, case, subject, key) for key in ("to_lesser", "others"))
        yield Figure(case, f"{subject}: of what application and server allow", values, "×", _LEAST, others)


PART: Final = Part(
    title="One-way messages, a slow application",
    about=(
        "The application sleeps; a connection for each sequence, and of a sequence one message runs at a time. The "
        "rate is that of deliveries, from the first request to the end of the last call. *Allowed* is the rate at "
        "which as many threads that do nothing else call the same application; *no sleep* that of deliveries where it "
        "takes no time, which no application can exceed."
    ),
    measure=_measure,
    columns=(
        Column("rate", "delivered/s", spread=True),
        Column("allowed", "allowed/s"),
        Column("to_allowed", "to allowed", "{:.2f}"),
        Column("quick", "no sleep/s"),
        Column("to_lesser", "to the lesser", "{:.2f}"),
        Column("accepted", "accepted/s"),
        Column("cpu_us", "CPU µs/msg"),
        Column("fsync_us", "fsync µs"),
        Column("generator", "generator %", "{:.0f}"),
    ),
    reach=_reach,
    plotted=(("to_lesser", "of what application and server allow"),),
)
