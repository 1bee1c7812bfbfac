"""The product against the floors: what its guarantees cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final, NamedTuple

from bench.figures import Bound, Figure, undisturbed
from bench.floor import acknowledgement
from bench.messages import UNKNOWN
from bench.parts.in_order import CONNECTIONS, case_of
from bench.samples import TIMES, WRITES, Column, Part, Sample, Scale, of_side, per_round
from bench.sides import Amount, Bare, Reliable, Side, bare, reliable

__all__ = ["PART"]

_SERVERS: Final = {"uvicorn": ("serve", "uvicorn-as-serve"), "granian WSGI": ("granian", "granian")}
"""The product's front, and that of its floor and of the server alone."""
_LEAST_RATE: Final = Bound(">=", 0.85)
_MOST_CPU: Final = Bound("<=", 1.25)


class _Round(NamedTuple):
    """One after the other."""

    product: Side
    floor: Side
    bare: Side

    @property
    def others(self) -> float:
        return max(side.others for side in self)


def _measure(scale: Scale) -> Iterator[Sample]:
    for number in range(scale.rounds):
        for server, (front, below) in _SERVERS.items():
            with ExitStack() as running:
                sides: list[Reliable | Bare] = [
                    running.enter_context(reliable(front, scale.directory / "product.db")),
                    running.enter_context(reliable(below, scale.directory / "floor.db", "--floor")),
                    running.enter_context(bare(below, acknowledgement(UNKNOWN.format(0), 1_000))),
                ]
                for side in sides:
                    side.warm_up(scale.amount)
                for connections in CONNECTIONS:
                    done = undisturbed(partial(_round, sides, number, connections, scale.amount), lambda r: r.others)
                    yield from _samples(server, case_of(connections), number, done)


def _round(sides: Sequence[Reliable | Bare], number: int, connections: int, amount: Amount) -> _Round:
    """Another side is the first in each round."""
    done = {index % 3: sides[index % 3].side(connections, amount) for index in range(number, number + 3)}
    return _Round(done[0], done[1], done[2])


def _samples(server: str, case: str, number: int, done: _Round) -> Iterator[Sample]:
    floor, bare = done.floor, done.bare
    yield Sample(case, f"{server}: the product", number, {**of_side(done.product), **_to("floor", done.product, floor)})
    yield Sample(case, f"{server}: the floor", number, {**of_side(floor), **_to("bare", floor, bare)})
    yield Sample(case, f"{server} alone", number, of_side(bare))


def _to(other: str, side: Side, than: Side) -> dict[str, float]:
    return {
        f"rate_to_{other}": side.load.rate / than.load.rate,
        f"cpu_to_{other}": side.cpu_us / than.cpu_us,
        "others": max(side.others, than.others),
    }


def _reach(samples: Sequence[Sample]) -> Iterable[Figure]:
    for server in _SERVERS:
        for case in map(case_of, CONNECTIONS):
            product, floor = (
                partial(per_round, samples, case, f"{server}: the {side}") for side in ("product", "floor")
            )
            others = product("others")
            if others:
                name = f"{server}, {case}"
                yield Figure(name, "rate to the floor's", product("rate_to_floor"), "×", _LEAST_RATE, others)
                yield Figure(name, "CPU to the floor's", product("cpu_to_floor"), "×", _MOST_CPU, others)
                yield Figure(name, "the floor's rate to the bare server's", floor("rate_to_bare"), "×")
                yield Figure(name, "the floor's CPU to the bare server's", floor("cpu_to_bare"), "×")


PART: Final = Part(
    title="Against the floors",
    about=(
        "As (a). A *floor* is the least that a stored message costs in Python: it scans the headers with expat, writes "
        "message, entry and sequence in one commit to the same schema, renders the same acknowledgement, calls the "
        "application in a thread and settles with the next commit; it has no duplicates, faults, gaps or owners. What "
        "the product needs more than its floor is what its guarantees cost. On uvicorn the product is what `wsrm-mq "
        "serve` runs, the floor an application of uvicorn with the same settings. The three of a row of rounds are "
        "measured one after the other, another one first in each round."
    ),
    measure=_measure,
    columns=(
        Column("rate", "msg/s", spread=True),
        Column("rate_to_floor", "rate to floor", "{:.2f}"),
        Column("cpu_to_floor", "CPU to floor", "{:.2f}"),
        Column("rate_to_bare", "rate to bare", "{:.2f}"),
        Column("cpu_to_bare", "CPU to bare", "{:.2f}"),
        *TIMES,
        *WRITES,
    ),
    reach=_reach,
    plotted=(("rate", "messages a second"), ("cpu_us", "CPU, µs a message")),
)
