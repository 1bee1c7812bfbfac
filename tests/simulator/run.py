"""Schedules by number: run them, count what was in them, and cut one that fails down to its shortest."""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
import os
import random
import re
import tempfile
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.simulator import rest
from tests.simulator.faults import all_faults, plant
from tests.simulator.machine import replaced
from tests.simulator.place import BEGINNING, Place
from tests.simulator.world import STEPS, World
from wsrm_mq.testing import ManualClock

MEMORY: Final = Path("/dev/shm")
LEAST, MOST = 22, 60
"""Steps of a schedule."""
ENOUGH: Final = 100_000
FINDS_WITHIN: Final = 20_000
"""Schedules in which a planted mistake has to be found."""
CHUNK: Final = 250
CHUNK_TO_FIND: Final = 50
"""What lies behind a schedule that fails in the same and the next two chunks is run in vain."""


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
    told: str


class Outcome(NamedTuple):
    """Of many schedules. ``checksum`` is the same whenever the same happened."""

    counts: Counter[str]
    checksum: int
    seconds: float
    """Of CPU."""
    failure: Failure | None


@contextmanager
def a_place() -> Iterator[Place]:
    home = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="wsrm-simulator-", dir=home) as directory:
        clock = ManualClock(BEGINNING)
        place = Place(Path(directory) / "services", clock)
        place.outbox = Place(Path(directory) / "outbox", clock)
        with replaced(place.clock):
            yield place


def run_one(place: Place, schedule: Schedule, tell: Callable[[str], object] | None = None) -> tuple[World, str]:
    """Answers the world as it is in the end, and what is wrong with it."""
    world = World(place, schedule.start)
    if tell is not None:
        world.tell = tell
    try:
        rest.run(world, schedule.steps)
    except Exception as error:
        return world, f"{error}\n{''.join(traceback.format_exception(error)[-4:])}"
    return world, ""


def run_many(numbers: Iterable[int]) -> Outcome:
    """Until one fails."""
    gc.collect()  # only here: what it looks at else is mostly the product's modules, again and again
    gc.freeze()
    gc.disable()
    logging.disable(logging.CRITICAL)  # thousands of failures are told
    begun = time.process_time()
    counts: Counter[str] = Counter()
    checksum = 0
    failure: Failure | None = None
    with a_place() as place:
        for number in numbers:
            schedule = Schedule.numbered(number)
            world, error = run_one(place, schedule)
            counts += world.counts + Counter(schedules=1, steps=len(schedule.steps))
            of_queues = world.queues and world.queues.jobs.summary()
            of_source = world.sending and world.sending.calls.summary()
            happened = f"{number} {world.counts} {world.oracle.summary()} {of_queues} {of_source}"
            checksum ^= zlib.crc32(happened.encode())
            if error:
                failure = _failure(place, number, schedule, error)
                break
    return Outcome(counts, checksum, time.process_time() - begun, failure)


def _failure(place: Place, number: int, schedule: Schedule, error: str) -> Failure:
    kind = _kind(error)
    short = shortest(schedule, lambda fewer: _kind(run_one(place, fewer)[1]) == kind)
    return Failure(number, short, told(place, number, short, error))


def _kind(error: str) -> str:
    """What fails, whatever the names and numbers."""
    return re.sub(r"urn:uuid:[-0-9a-f]+|[0-9]+", "", error.partition("\n")[0])


def shortest(schedule: Schedule, fails: Callable[[Schedule], bool]) -> Schedule:
    """Leave out steps as long as the rest still fails: halves first, then ever smaller pieces, until no step can be
    spared."""
    size = len(schedule.steps) // 2
    while size:
        begin, is_shorter = 0, False
        while begin < len(schedule.steps):
            fewer = schedule._replace(steps=schedule.steps[:begin] + schedule.steps[begin + size :])
            if fails(fewer):
                schedule, is_shorter = fewer, True
            else:
                begin += size
        size = size if size == 1 and is_shorter else size // 2
    return schedule


def told(place: Place, number: int, schedule: Schedule, error: str) -> str:
    """What fails, and each step of the shortest schedule in words."""
    lines: list[str] = []
    _world, short_error = run_one(place, schedule, lines.append)
    return "\n".join(
        [
            f"schedule {number} fails: {error}",
            f"its shortest form has {len(schedule.steps)} steps:",
            *lines,
            f"  -> {short_error.partition(chr(10))[0]}",
            f"replay: make simulate SEED={number} SCHEDULES=1",
        ]
    )


def run_all(numbers: range, workers: int, fault: str | None = None) -> Outcome:
    """In so many processes, until one schedule fails. ``fault``: a mistake that is planted in each."""
    size = CHUNK if fault is None else CHUNK_TO_FIND
    pieces = [numbers[at : at + size] for at in range(0, len(numbers), size)]
    whole = Outcome(Counter(), 0, 0.0, None)
    context = multiprocessing.get_context("spawn")  # each imports the product anew
    with ProcessPoolExecutor(min(workers, len(pieces)), context, plant, (fault,)) as pool:
        for piece in pool.map(run_many, pieces):
            whole = Outcome(
                whole.counts + piece.counts,
                whole.checksum ^ piece.checksum,
                whole.seconds + piece.seconds,
                piece.failure,
            )
            if piece.failure is not None:
                pool.shutdown(cancel_futures=True)
                break
    return whole


def find_each(names: Iterable[str], numbers: range, workers: int) -> int:
    """Tell which schedule finds each of these mistakes, and how. Answers the exit status: 1 where one is not found."""
    missed = 0
    with ThreadPoolExecutor(workers) as pool:
        failures = pool.map(lambda name: (name, run_all(numbers, 1, name).failure), names)
        for name, failure in failures:
            if failure is None:
                print(f"NOT FOUND in {len(numbers)} schedules: {name}", flush=True)
                missed += 1
            else:
                first = failure.told.partition(chr(10))[0]
                print(f"{name}: {first} ({len(failure.schedule.steps)} steps are enough)", flush=True)
    return int(missed > 0)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="number of the first schedule")
    parser.add_argument("--schedules", type=int, help=f"{ENOUGH}; for a mistake {FINDS_WITHIN}")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--plant", choices=[*all_faults(), "each"], help="a mistake that is to be found; each of them")
    known = parser.parse_args(argv)
    schedules = known.schedules or (FINDS_WITHIN if known.plant else ENOUGH)
    numbers = range(known.seed, known.seed + schedules)
    if known.plant == "each":
        return find_each(all_faults(), numbers, known.workers)
    begun = time.monotonic()
    done = run_all(numbers, known.workers, known.plant)
    schedules, steps = done.counts.pop("schedules"), done.counts.pop("steps")
    print(
        f"{schedules} schedules, {steps} steps ({steps / schedules:.0f} each), {time.monotonic() - begun:.0f} s, "
        f"{done.seconds:.0f} s of CPU ({1000 * done.seconds / schedules:.1f} ms each), checksum {done.checksum:08x}"
    )
    for title, is_among in (("steps", STEPS.__contains__), ("and in them", lambda kind: kind not in STEPS)):
        print(f"{title}:")
        for kind, times in done.counts.most_common():
            if is_among(kind):
                print(f"{times:>9}  {kind}")
    if done.failure is not None:
        print(done.failure.told)
    return int(done.failure is not None)
