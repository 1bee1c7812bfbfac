"""A hundred kills at random moments, under load."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest

from tests.crash.checker import problems
from tests.crash.witness import Source, Witness, in_background, settled, shuffled_windows
from tests.support.orders_server import within

SOURCES = 4
"""The last one sends two-way messages."""
UNDER_LOAD = 5
"""Acknowledgements that a life has to bring before it is time to kill it."""
AT_ITS_START = 5
"""One life in so many is killed while it begins."""


def work_through(
    source: Source, numbers: list[int], over: threading.Event, sent: set[int], *, echo: bool = False
) -> None:
    """Send the numbers in their order, each until it is acknowledged; go on until it is all over."""
    for number in numbers:
        while number not in source.acknowledged:
            if over.is_set():
                return
            if source.send(number, echo=echo):
                sent.add(number)
            else:
                time.sleep(0.01)


@pytest.mark.timeout(600)
@pytest.mark.spec("D-DEL-001", "D-DUR-001", versions="all")
@pytest.mark.invariant("I6", "I12")
@pytest.mark.parametrize(
    ("front", "kills"),
    [("waitress", 10), *(pytest.param(front, 100, marks=pytest.mark.long) for front in ("waitress", "uvicorn"))],
)
def test_kills_at_random_under_load_lose_repeat_and_swap_nothing(tmp_path: Path, front: str, kills: int) -> None:
    chance = random.Random(20261121)
    witness = Witness(tmp_path, front)
    witness.start(work=0.002)
    sources = [Source(witness) for _ in range(SOURCES)]
    plans = [list(shuffled_windows(20_000, 12, seed)) for seed in range(SOURCES - 1)]
    plans.append(list(range(1, 20_001)))  # two-way: whoever waits for an answer sends no next message meanwhile
    over = threading.Event()
    sent: list[set[int]] = [set() for _ in sources]
    threads = [
        in_background(  # type: ignore[misc]
            lambda s=source, p=plan, t=told: work_through(s, p, over, t, echo=s is sources[-1])
        )
        for source, plan, told in zip(sources, plans, sent, strict=True)
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
