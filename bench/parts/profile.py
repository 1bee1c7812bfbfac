"""Where the CPU goes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bench.fronts import FRONTS
from bench.parts.in_order import case_of
from bench.samples import Column, Part, Sample, Scale
from bench.sides import reliable
from bench.stages import STAGES

__all__ = ["PART"]

_FRONT: Final = "uvicorn"
_CONNECTIONS: Final = (1, 8, 32)
_REST: Final = "the rest: event loop, threads' waking, kernel"


def _measure(scale: Scale) -> Iterator[Sample]:
    for number in range(scale.rounds):
        with reliable(_FRONT, scale.store(), "--stages") as server:
            server.warm_up(scale.amount)
            for connections in _CONNECTIONS:
                before = server.server.state()["stages"]
                side = server.side(connections, scale.amount)
                after = server.server.state()["stages"]
                spent = {stage: (after[stage] - before[stage]) / side.load.messages * 1e6 for stage in STAGES}
                spent[_REST] = side.cpu_us - sum(spent.values())
                for stage, us in spent.items():
                    values = {"us": us, "share": 100 * us / side.cpu_us}
                    yield Sample(case_of(connections), stage, number, values)


PART: Final = Part(
    title="Where the CPU goes",
    about=(
        f"{FRONTS[_FRONT].shown}, in-order one-way messages as in (a), with a clock in the server: the threads' CPU "
        "time in each stage of a message's way, without that of the stages within it. The clock itself costs a "
        "microsecond or two for each stage, so the sum is more than in (a)."
    ),
    measure=_measure,
    columns=(Column("us", "µs/msg", spread=True), Column("share", "%")),
    plotted=(),
)
