"""Traffic as it is: most in order, some shuffled, some sent again, some to unknown sequences."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from bench.fronts import FRONTS
from bench.load import Plan, steps
from bench.messages import UNKNOWN, template
from bench.samples import RATE, TIMES, WRITES, Column, Part, Sample, Scale, of_side
from bench.sides import Amount, Reliable, Side, reliable, unless_too_busy

__all__ = ["PART"]

_CONNECTIONS: Final = 8
_SHUFFLED, _AGAIN, _UNKNOWN = 0.20, 0.05, 0.05
_TOGETHER: Final = 20
"""Numbers that are shuffled among themselves."""
_FOR_EVER: Final = Amount(3_600)


class _Mix(NamedTuple):
    plan: Plan
    again: int
    unknown: int


def _measure(scale: Scale) -> Iterator[Sample]:
    for number in range(scale.rounds):
        for front in scale.main_fronts:
            with reliable(front, scale.store()) as server:
                server.warm_up(scale.amount)
                ordered = server.side(_CONNECTIONS, scale.amount)
                side = unless_too_busy(partial(_side, server, scale.mixed, number))
            case = f"{_CONNECTIONS} connections"
            yield Sample(case, f"{FRONTS[front].shown}, in order", number, of_side(ordered))
            values = {**of_side(side), "to_order": side.load.rate / ordered.load.rate}
            yield Sample(case, f"{FRONTS[front].shown}, mix", number, values)


def _side(server: Reliable, messages: int, seed: int, most: int) -> Side:
    known = [server.server.create_sequence() for _ in range(2 * _CONNECTIONS)]
    mix = _mixed(known, messages, random.Random(seed))
    return server.sent(mix.plan, _FOR_EVER, most=most, refusals=mix.unknown, duplicates=mix.again)


def _mixed(known: list[str], messages: int, chance: random.Random) -> _Mix:
    """``messages`` on each connection, which has two of the known sequences: one in order, one shuffled."""
    shuffled, again, unknown = (round(share * messages) for share in (_SHUFFLED, _AGAIN, _UNKNOWN))
    kinds = ["shuffled"] * shuffled + ["again"] * again + ["unknown"] * unknown
    kinds += ["in order"] * (messages - len(kinds) - 1)
    connections = []
    for connection in range(_CONNECTIONS):
        chance.shuffle(kinds)
        first = ["in order"]  # or there would be nothing to send again
        connections.append(steps(_pairs(first + kinds, connection, len(known), chance)))
    plan = Plan([*known, UNKNOWN.format(0)], connections, template(known[0]))
    return _Mix(plan, again * _CONNECTIONS, unknown * _CONNECTIONS)


def _pairs(kinds: list[str], connection: int, unknown: int, chance: random.Random) -> Iterator[tuple[int, int]]:
    ordered, shuffled = 2 * connection, 2 * connection + 1
    numbers = _shuffled(kinds.count("shuffled"), chance)
    sent = 0
    for kind in kinds:
        match kind:
            case "in order":
                sent += 1
                yield ordered, sent
            case "again":
                yield ordered, chance.randint(1, sent)
            case "shuffled":
                yield shuffled, next(numbers)
            case "unknown":
                yield unknown, 1


def _shuffled(count: int, chance: random.Random) -> Iterator[int]:
    for first in range(1, count + 1, _TOGETHER):
        numbers = list(range(first, min(count + 1, first + _TOGETHER)))
        chance.shuffle(numbers)
        yield from numbers


PART: Final = Part(
    title="A mix",
    about=(
        "70 % in order, 20 % of another sequence whose numbers are shuffled within 20, 5 % sent again, 5 % to a "
        "sequence that is not known, which are answered with a fault. Every one of the rest was delivered once and in "
        "order."
    ),
    measure=_measure,
    columns=(
        RATE,
        Column("to_order", "to in order", "{:.2f}"),
        *TIMES,
        *WRITES,
    ),
    plotted=(("rate", "messages a second"),),
)
