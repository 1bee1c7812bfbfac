"""The comparison with servers of other stacks: turns, and ratios made within a round."""

from __future__ import annotations

from functools import partial

from bench.figures import interval
from bench.load import Load
from bench.peers import DURABLE, OURS, compared, figures, intervals
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
        ratios = [figure for figure in figures(connections, done) if f" to {DURABLE}" in figure.name]
        assert [figure.values for figure in ratios] == [[8.0, 4.0], [8.0, 4.0]]
        assert {figure.verdict for figure in ratios} == {verdict}


def test_a_bound_that_a_busy_machine_has_missed_is_void() -> None:
    done = {name: [side(300, others=0.5)] for name in OURS} | {DURABLE: [side(100)]}
    assert {figure.verdict for figure in figures(8, done) if f" to {DURABLE}" in figure.name} == {"VOID"}


def test_the_median_lies_between_the_order_statistics_that_the_sign_test_names() -> None:
    assert interval([1.0, 2, 3, 4, 5]) is None  # 1 - 2 / 2**5 is less than 95 %
    assert interval([6.0, 1, 5, 2, 4, 3]) == (1, 6)
    assert interval([float(value) for value in range(1, 10)]) == (2, 8)


def test_an_interval_is_told_of_what_has_to_be_reached() -> None:
    done = {name: [side(rate) for rate in range(401, 410)] for name in OURS} | {DURABLE: [side(100)] * 9}
    told = list(intervals(figures(8, done)))
    assert told == [f"8 connections, {name} to {DURABLE}: 95 % between 4.02 and 4.08 × (9 rounds)." for name in OURS]


def test_a_peer_that_goes_on_warming_is_seen() -> None:
    done = {name: [side(800)] * 5 for name in OURS} | {DURABLE: [side(rate) for rate in (100, 100, 150, 200, 200)]}
    [drift] = [figure for figure in figures(8, done) if "later rounds" in figure.name]
    assert drift.values == [2.0]
