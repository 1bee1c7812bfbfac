"""Requests with a reply, which leaves when what became of the request is stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bench import gsoap
from bench.fronts import FRONTS
from bench.messages import reply
from bench.parts.in_order import COMPARED, case_of, gsoap_shown
from bench.samples import RATE, TIMES, WRITES, Column, Part, Sample, Scale, of_side
from bench.sides import bare, gsoap_side, reliable

__all__ = ["PART"]

_CONNECTIONS: Final = (1, 8)


def _measure(scale: Scale) -> Iterator[Sample]:
    for number in range(scale.rounds):
        rivals: dict[tuple[str, int], float] = {}
        for mode in gsoap.MODES:
            for connections in _CONNECTIONS:
                side = gsoap_side(mode, connections, scale.gsoap_amount, two_way=True)
                rivals[mode, connections] = side.load.rate
                yield Sample(case_of(connections), gsoap_shown(mode), number, of_side(side))
        for front in scale.main_fronts:
            with reliable(front, scale.store(), answer=reply()) as server:
                server.warm_up(scale.amount)
                ours = {c: server.side(c, scale.amount, two_way=True) for c in _CONNECTIONS}
            with bare(front, b"x" * round(ours[8].load.answer_bytes)) as server_alone:
                server_alone.warm_up(scale.amount)
                for connections, side in ours.items():
                    null = server_alone.side(connections, scale.amount, two_way=True)
                    values = {
                        **of_side(side),
                        "null_rate": null.load.rate,
                        "null_cpu_us": null.cpu_us,
                        "null_most": null.most_per_second,
                        "own_us": side.cpu_us - null.cpu_us,
                        "to_null": side.load.rate / null.load.rate,
                        **{f"to_{mode}": side.load.rate / rivals[mode, connections] for mode in gsoap.MODES},
                    }
                    yield Sample(case_of(connections), FRONTS[front].shown, number, values)


PART: Final = Part(
    title="Two-way messages",
    about=(
        "As (a), and the application answers an envelope of 1 KB. The reply leaves with the acknowledgement after the "
        "commit that stores it: two commits for each message, where gSOAP makes none."
    ),
    measure=_measure,
    columns=(
        RATE,
        *COMPARED,
        *TIMES,
        Column("own_us", "own CPU"),
        *WRITES,
    ),
    plotted=(("rate", "messages a second"),),
)
