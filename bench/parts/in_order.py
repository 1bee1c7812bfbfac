"""In-order one-way messages: every front, with the middleware and without, and gSOAP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bench import gsoap
from bench.fronts import FRONTS
from bench.samples import RATE, TIMES, WRITES, Column, Part, Sample, Scale, of_side
from bench.sides import Side, bare, gsoap_side, reliable

__all__ = ["COMPARED", "CONNECTIONS", "PART", "case_of", "gsoap_shown"]

CONNECTIONS: Final = (1, 8, 32)
COMPARED: Final = (
    Column("to_queue", "to queue", "{:.2f}"),
    Column("to_plain", "to plain", "{:.2f}"),
    Column("null_rate", "null msg/s"),
    Column("to_null", "to null", "{:.2f}"),
)
"""With gSOAP, and with the same server alone."""


def case_of(connections: int) -> str:
    return f"{connections} connection{'s' if connections > 1 else ''}"


def gsoap_shown(mode: gsoap.Mode) -> str:
    return f"gSOAP, {mode}"


def _measure(scale: Scale) -> Iterator[Sample]:
    for number in range(scale.rounds):
        rivals: dict[tuple[gsoap.Mode, int], Side] = {}
        for mode in gsoap.MODES:
            for connections in CONNECTIONS:
                side = rivals[mode, connections] = gsoap_side(mode, connections, scale.gsoap_amount)
                yield Sample(case_of(connections), gsoap_shown(mode), number, of_side(side))
        for front in scale.fronts:
            for connections, (ours, null) in _round(front, scale).items():
                ratios = {
                    "to_null": ours.load.rate / null.load.rate,
                    **{f"to_{mode}": ours.load.rate / rivals[mode, connections].load.rate for mode in gsoap.MODES},
                }
                others = {"null_rate": null.load.rate, "null_cpu_us": null.cpu_us, "null_most": null.most_per_second}
                values = {**of_side(ours), **others, "own_us": ours.cpu_us - null.cpu_us, **ratios}
                yield Sample(case_of(connections), FRONTS[front].shown, number, values)


def _round(front: str, scale: Scale) -> dict[int, tuple[Side, Side]]:
    """With the middleware and without, by connections."""
    with reliable(front, scale.store()) as server:
        server.warm_up(scale.amount)
        ours = {connections: server.side(connections, scale.amount) for connections in CONNECTIONS}
    answer = b"x" * round(ours[8].load.answer_bytes)
    with bare(front, answer) as null:
        null.warm_up(scale.amount)
        return {c: (side, null.side(c, scale.amount)) for c, side in ours.items()}


PART: Final = Part(
    title="In-order one-way messages",
    about=(
        "Closed loop, one request in flight on each keep-alive connection, a sequence on each; envelopes of 1 KB. "
        "With the middleware every message is stored and synced before it is answered. *Null* is the same server "
        "with an application that does nothing and answers as many bytes; *own CPU* is what the middleware adds to "
        "it. gSOAP keeps all in memory, and its process is a fresh one each time: *plain* checks the number and keeps "
        "nothing, *queue* is the two-loop queue of its mq plug-in, repaired (below). CPU is that of the server's "
        "processes until the last message was delivered and settled."
    ),
    measure=_measure,
    columns=(
        RATE,
        *COMPARED,
        *TIMES,
        Column("null_cpu_us", "null CPU"),
        Column("own_us", "own CPU"),
        *WRITES,
    ),
    plotted=(("rate", "messages a second"), ("own_us", "the middleware's own CPU, µs a message")),
)
