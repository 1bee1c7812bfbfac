"""What a server weighs with messages held behind a gap."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bench import gsoap
from bench.fronts import FRONTS
from bench.load import in_order, load
from bench.measure import resident_bytes
from bench.messages import message
from bench.samples import Column, Part, Sample, Scale
from bench.sides import reliable

__all__ = ["PART"]

_GSOAP_HELD: Final = 1_000


def _measure(scale: Scale) -> Iterator[Sample]:
    with gsoap.running("queue") as rival:
        empty = resident_bytes(rival.pids[0])
        load(rival.port, in_order([rival.create_sequence()], _GSOAP_HELD, first=2))
        yield _sample(_GSOAP_HELD, "gSOAP, queue", empty, resident_bytes(rival.pids[0]))
    front = scale.main_fronts[0]
    with reliable(front, scale.store()) as server:
        server.warm_up(scale.amount)
        process = server.server
        identifier, empty = process.create_sequence(), resident_bytes(process.pids[0])
        process.post(message(identifier, 2))
        for held in scale.held:
            process.hold(identifier, held + 1)
            yield _sample(held, FRONTS[front].shown, empty, resident_bytes(process.pids[0]))


def _sample(held: int, subject: str, empty: int, full: int) -> Sample:
    values = {"empty_mb": empty / 2**20, "full_mb": full / 2**20, "each": (full - empty) / held}
    return Sample(f"{held:,} held", subject, 0, values)


PART: Final = Part(
    title="Memory with messages held",
    about=(
        "Messages of 1 KB behind one gap; resident memory of the process that serves, after some traffic and with "
        "them. Measured once. The middleware keeps what is held in the store."
    ),
    measure=_measure,
    columns=(
        Column("empty_mb", "without MB"),
        Column("full_mb", "with MB"),
        Column("each", "bytes each"),
    ),
    plotted=(("full_mb", "resident MB"),),
)
