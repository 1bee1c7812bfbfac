"""A hundred kills at random moments, under load."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.crash.checker import problems
from tests.crash.witness import Witness, in_background, settled
from tests.support.orders import Orders, OrderSender
from tests.support.orders_server import within
from wsrm_mq.testing import shuffled_windows

SOURCES = 4
"""The last one sends two-way messages."""
UNDER_LOAD = 5
"""Acknowledgements that a life has to bring before it is time to kill it."""
AT_ITS_START = 5
"""One life in so many is killed while it begins."""


@pytest.mark.timeout(600)
@pytest.mark.spec("D-DEL-001", "D-DUR-001", versions="all")
@pytest.mark.invariant("I6", "I12")
@pytest.mark.parametrize(
    ("front", "kills"),
    [
        pytest.param("waitress", 10, marks=pytest.mark.brief),
        *(pytest.param(front, 50, marks=pytest.mark.long) for front in ("waitress", "uvicorn")),
    ],
)
def test_kills_at_random_under_load_lose_repeat_and_swap_nothing(tmp_path: Path, front: str, kills: int) -> None:
    chance = random.Random(20261121)
    witness = Witness(tmp_path, front)
    witness.start(work=0.002)
    orders = Orders()
    sources = [OrderSender(witness, orders) for _ in range(SOURCES - 1)]
    sources.append(OrderSender(witness, orders, write=lambda *message: orders.echo(*message, "two-way")))
    plans: list[Iterable[int]] = [shuffled_windows(20_000, 12, seed) for seed in range(SOURCES - 1)]
    plans.append(range(1, 20_001))  # two-way: a thread that waits for an answer sends no next message meanwhile
    over = threading.Event()
    threads = [
        in_background(lambda s=source, p=plan: s.send_all(p, resend=0, stop=over))  # type: ignore[misc]
        for source, plan in zip(sources, plans, strict=True)
    ]

    def acknowledged() -> int:
        return sum(len(source.acknowledged) for source in sources)

    for life in range(1, kills + 1):
        wanted = acknowledged() + UNDER_LOAD
        if life % AT_ITS_START:
            assert within(20, acknowledged, lambda count: count >= wanted) >= wanted, "no load"  # noqa: B023
        time.sleep(chance.uniform(0.0, 0.3))
        witness.kill()
        witness.start(work=0.002)
    over.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    for source in sources:
        number = 1
        while number <= max(source.acknowledged):  # an acknowledgement may tell of more than was answered before
            source.send_until_acknowledged(number)
            number += 1
        settled(witness, source.identifier, len(source.acknowledged), 60)
    witness.stop()
    for source in sources:
        found = problems(source.acknowledged, witness.effects(source.identifier), witness.calls(source.identifier))
        assert found == []
        assert len(source.acknowledged) > (kills if source is not sources[-1] else kills // 4)
