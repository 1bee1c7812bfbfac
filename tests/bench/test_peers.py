"""The comparison with servers of other stacks: turns, and ratios made within a round."""

from __future__ import annotations

from functools import partial

from bench.load import Load
from bench.peers import DURABLE, OURS, compared, figures
from bench.sides import Amount, Side

NAMES = [*OURS, DURABLE]


def side(rate: int, others: float = 0.0) -> Side:
    load = Load(rate, 1.0, 0.1, 1.0, 2.0, 500.0, {"200": rate, "202": 0, "503": 0, "other": 0}, 0, 0)
    return Side(load, cpu_us=100.0, others=others)


def test_another_server_begins_each_round() -> None:
    order: list[str] = []

    def measured(name: str, connections: int, amount: Amount) -> Side:
        order.append(name)
        return side(connections)

    done = compared({name: partial(measured, name) for name in NAMES}, 8, Amount(0.1), 3)
    first, second, third = NAMES
    assert order == [first, second, third, second, third, first, third, first, second]
    assert {name: len(sides) for name, sides in done.items()} == dict.fromkeys(NAMES, 3)


def test_a_ratio_is_of_one_round_and_bounded_at_eight_connections_alone() -> None:
    done = {name: [side(800), side(1_000)] for name in OURS} | {DURABLE: [side(100), side(250)]}
    for connections, verdict in ((8, "kept"), (1, "")):
        ratios = [figure for figure in figures(connections, done) if figure.unit == "×"]
        assert [figure.values for figure in ratios] == [[8.0, 4.0], [8.0, 4.0]]
        assert {figure.verdict for figure in ratios} == {verdict}


def test_a_bound_that_a_busy_machine_has_missed_is_void() -> None:
    done = {name: [side(300, others=0.5)] for name in OURS} | {DURABLE: [side(100)]}
    assert {figure.verdict for figure in figures(8, done) if figure.unit == "×"} == {"VOID"}
