"""The rate with many sequences open."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple

from bench import gsoap
from bench.figures import Bound, Figure
from bench.fronts import FRONTS
from bench.load import Plan, in_order, load, steps
from bench.messages import FACTORY, MESSAGE_ID, PATH, UNKNOWN, create_sequence, template
from bench.samples import RATE, TIMES, WRITES, Column, Part, Sample, Scale, of_side, per_round
from bench.sides import Amount, Side, reliable, sent, unless_too_busy
from wsrm_mq.config import Settings
from wsrm_mq.queue.arrival import Sender
from wsrm_mq.queue.creation import create
from wsrm_mq.sequence.elements import CreateSequence, EndpointReference
from wsrm_mq.store.sqlite.files import beside
from wsrm_mq.store.store import Store
from wsrm_mq.store.transaction import Transaction

__all__ = ["PART"]

_CONNECTIONS: Final = 8
_TOGETHER: Final = 1_000
_LIFETIME: Final = 24 * 3_600_000
_FIRST_PEER: Final = int(ip_address("10.0.0.0"))
_LEAST: Final = Bound(">=", 0.8)
_OLDEST, _IN_TURN = "the oldest, 1 connection", "all in turn, 8 connections"


class _Prepared(NamedTuple):
    path: Path
    identifiers: list[str]
    """In the order in which they were created."""


def _measure(scale: Scale) -> Iterator[Sample]:
    prepared = {count: _prepare(scale.directory, count) for count in scale.open_sequences}
    for number in range(scale.rounds):
        rates: dict[str, float] = {}

        def sample(count: int, subject: str, side: Side, rates: dict[str, float] = rates) -> Sample:
            rate = side.load.rate
            values = {**of_side(side), "to_one": rate / rates.setdefault(subject, rate)}
            return Sample(f"{count:,} open", subject, number, values)  # noqa: B023 - called in its round

        for count in (1, scale.gsoap_open_sequences):
            side = unless_too_busy(partial(_gsoap, count, scale.gsoap_amount))
            yield sample(count, f"gSOAP queue, {_OLDEST}", side)
        for front in scale.main_fronts:
            for count, store in prepared.items():
                for subject, side in unless_too_busy(partial(_sides, front, store, scale)).items():
                    yield sample(count, f"{FRONTS[front].shown}, {subject}", side)


def _sides(front: str, store: _Prepared, scale: Scale, most: int) -> dict[str, Side]:
    """By subject, on a copy of the store."""
    shutil.copyfile(store.path, scale.store())
    shutil.copytree(beside(store.path), beside(scale.store()))  # what says that this is its newest state
    with reliable(front, scale.store()) as server:
        server.warm_up(scale.amount)
        plans = _plans(store.identifiers, scale.amount)
        return {subject: server.sent(plan, scale.amount, most=most) for subject, plan in plans.items()}


def _plans(identifiers: Sequence[str], amount: Amount) -> dict[str, Plan]:
    """No sequence is in both: their numbers begin with 1."""
    oldest, others = identifiers[0], identifiers[1:]
    assert len(others) % _CONNECTIONS == 0  # or two connections would have the same sequence
    turns = amount.planned(_CONNECTIONS)
    places = [range(connection, turns * _CONNECTIONS, _CONNECTIONS) for connection in range(_CONNECTIONS)]
    in_turn = [steps((place % len(others), place // len(others) + 1) for place in of_one) for of_one in places]
    return {
        _OLDEST: in_order([oldest], amount.planned(1)),
        _IN_TURN: Plan(others, in_turn, template(others[0])),
    }


def _prepare(directory: Path, count: int) -> _Prepared:
    """A store with ``count`` open sequences, made by the store's own transactions."""
    store = Store(directory / f"open-{count}.db")
    store.open()
    identifiers: list[str] = []
    wanted = 1 + max(count, _CONNECTIONS)
    try:
        for first in range(0, wanted, _TOGETHER):
            identifiers += store.call(partial(_create, range(first, min(wanted, first + _TOGETHER))))
    finally:
        store.close()
    return _Prepared(store.path, identifiers)


def _create(indices: range, tx: Transaction) -> list[str]:
    """Of a peer each: how many one peer may open is not what is measured."""
    request = CreateSequence(EndpointReference(FACTORY.anonymous), expires=_LIFETIME)
    policy = Settings().policy()
    identifiers = []
    for index in indices:
        peer = str(ip_address(_FIRST_PEER + index))
        sender = Sender(PATH, FACTORY.rm, FACTORY.soap, FACTORY.addressing, peer=peer)
        receipt = create(tx, sender, request, f"urn:example:{index}", policy)
        if receipt.created is None:
            raise RuntimeError(f"sequence {index:,} was refused: {receipt.fault}")
        identifiers.append(receipt.created.terms.identifier)
    return identifiers


def _gsoap(count: int, amount: Amount, most: int) -> Side:
    """Messages on the first of ``count`` sequences of a fresh process."""
    with gsoap.running("queue") as server:
        oldest = server.create_sequence()
        of_each = (count - 1) // _CONNECTIONS
        others = [steps((c, n) for n in range(of_each)) for c in range(_CONNECTIONS)]
        unknown = [UNKNOWN.format(c) for c in range(_CONNECTIONS)]
        if of_each:
            load(
                server.port,
                Plan(unknown, others, create_sequence(MESSAGE_ID)),
                most_per_second=min(most or 5_000, 5_000),
            )
        return sent(server.port, server.pids, in_order([oldest], amount.planned(1)), amount, most)


def _reach(samples: Sequence[Sample]) -> Iterable[Figure]:
    ours = [sample for sample in samples if not sample.subject.startswith("gSOAP")]
    last = ours[-1].case if ours else ""
    for subject in dict.fromkeys(sample.subject for sample in ours):
        values, others = (per_round(ours, last, subject, key) for key in ("to_one", "others"))
        yield Figure(last, f"{subject}: to the rate with 1", values, "×", _LEAST, others)


PART: Final = Part(
    title="Many open sequences",
    about=(
        "The stores are prepared, and opened by a fresh server. *The oldest*: one connection, one sequence, the first "
        "that was created. *All in turn*: eight connections, each message to another sequence; eight sequences where "
        "one is open."
    ),
    measure=_measure,
    columns=(
        RATE,
        Column("to_one", "to 1 open", "{:.2f}"),
        *TIMES,
        *WRITES,
    ),
    reach=_reach,
    plotted=(("rate", "messages a second"), ("to_one", "of the rate with one open")),
)
