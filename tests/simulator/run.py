"""Schedules by number: run them, count what was in them, and cut one that fails down to its shortest."""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import random
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from tests.simulator.world import Place, World

MEMORY: Final = Path("/dev/shm")
LEAST, MOST = 30, 90
"""Steps of a schedule."""
CHUNK: Final = 250


class Schedule(NamedTuple):
    """``start`` draws partners, processes and what the service fails at; each of the ``steps`` is drawn from its own
    number, so that it means the same when others are left out."""

    start: int
    steps: tuple[int, ...]

    @classmethod
    def numbered(cls, number: int) -> Schedule:
        draw = random.Random(number)
        return cls(draw.getrandbits(32), tuple(draw.getrandbits(32) for _ in range(draw.randint(LEAST, MOST))))


class Failure(NamedTuple):
    number: int
    schedule: Schedule
    error: str
    where: str


def temporary_home() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="wsrm-simulator-", dir=MEMORY if MEMORY.is_dir() else None)


def run_one(place: Place, schedule: Schedule, counts: Counter[str]) -> BaseException | None:
    world = World(place, schedule.start)
    try:
        world.run(schedule.steps)
    except Exception as error:
        return error
    finally:
        counts.update(world.counts)
    return None


def run_many(numbers: Iterable[int]) -> tuple[Counter[str], Failure | None]:
    """Until one fails."""
    counts: Counter[str] = Counter()
    with temporary_home() as home:
        place = Place(Path(home))
        for number in numbers:
            schedule = Schedule.numbered(number)
            counts["schedules"] += 1
            counts["steps"] += len(schedule.steps)
            error = run_one(place, schedule, counts)
            if error is not None:
                return counts, Failure(number, shortest(place, schedule), str(error), _where(error))
    return counts, None


def shortest(place: Place, schedule: Schedule) -> Schedule:
    """Leave out steps as long as the rest still fails: halves first, then ever smaller pieces."""
    size = len(schedule.steps) // 2
    while size:
        begin = 0
        while begin < len(schedule.steps):
            fewer = schedule._replace(steps=schedule.steps[:begin] + schedule.steps[begin + size :])
            if run_one(place, fewer, Counter()) is not None:
                schedule = fewer
            else:
                begin += size
        size //= 2
    return schedule


def _where(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)[-4:])


def told(failure: Failure) -> str:
    """What fails, and each step of the shortest schedule in words."""
    lines = [f"schedule {failure.number} fails: {failure.error}", failure.where, "its shortest form:"]
    with temporary_home() as home:
        place = Place(Path(home))
        world = World(place, failure.schedule.start)
        world.tell = lines.append
        try:
            world.run(failure.schedule.steps)
        except Exception as error:
            lines.append(f"  -> {error}")
    lines.append(f"replay: make simulate SEED={failure.number} SCHEDULES=1")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="number of the first schedule")
    parser.add_argument("--schedules", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=multiprocessing.cpu_count())
    known = parser.parse_args(argv)
    logging.disable(logging.CRITICAL)  # thousands of failures are told
    begun = time.monotonic()
    numbers = range(known.seed, known.seed + known.schedules)
    pieces = [numbers[at : at + CHUNK] for at in range(0, len(numbers), CHUNK)]
    counts: Counter[str] = Counter()
    failure: Failure | None = None
    if known.workers <= 1 or len(pieces) == 1:
        for piece in pieces:
            more, failure = run_many(piece)
            counts += more
            if failure is not None:
                break
    else:
        with ProcessPoolExecutor(known.workers) as pool:
            for more, failed in pool.map(run_many, pieces):
                counts += more
                failure = failure or failed
                if failure is not None:
                    pool.shutdown(cancel_futures=True)
                    break
    seconds = time.monotonic() - begun
    schedules, steps = counts.pop("schedules"), counts.pop("steps")
    print(f"{schedules} schedules, {steps} steps ({steps / max(1, schedules):.0f} each), {seconds:.0f} s")
    for kind, times in counts.most_common():
        print(f"{times:>9}  {kind}")
    if failure is not None:
        print(told(failure))
        return 1
    return 0
