"""Queues measured across processes: producers beside consumers, and how long a consumer that waits is asleep."""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple

from bench.dying import die_with_parent
from bench.measure import Spent
from bench.queue_rivals import Queue, Server, System

__all__ = ["Together", "together", "wake_ups"]

PRODUCERS: Final = 4
CONSUMERS: Final = 4
_PADDING: Final = b"x" * 1_016
"""The rest of a body, after the eight bytes that tell it from all others."""
_LOOK_AGAIN_SECONDS: Final = 0.002
"""The pause of a consumer that found nothing, where the queue cannot wait."""
_FORK: Final = multiprocessing.get_context("fork")
"""Nothing is connected where workers are begun, and they need not load the package again."""


class Worked(NamedTuple):
    bodies: list[int]
    """The messages that were put, or settled."""
    put_ms: list[float]
    errors: list[str]


class Together(NamedTuple):
    """4 producers and 4 consumers in 8 processes."""

    put: float
    """Messages a second."""
    settled: float
    put_p99_ms: float
    put_worst_ms: float
    failed: int
    """Calls."""
    repeated: int
    """Messages that were settled more than once."""
    others: float


def together(system: System, server: Server, seconds: float) -> Together:
    place = server.fresh()
    works = [(_produce, index) for index in range(PRODUCERS)] + [(_consume, index) for index in range(CONSUMERS)]
    with _workers(system, place, works, seconds) as (pids, connections):
        spent = Spent([*server.pids(), *pids])
        for connection in connections:
            connection.send(time.monotonic() + seconds)
        done: list[Worked] = [connection.recv() for connection in connections]
        others = spent.others
    put, settled = done[:PRODUCERS], done[PRODUCERS:]
    taken = sorted(ms for one in put for ms in one.put_ms)
    bodies = [body for one in settled for body in one.bodies]
    return Together(
        put=len(taken) / seconds,
        settled=len(bodies) / seconds,
        put_p99_ms=taken[len(taken) * 99 // 100],
        put_worst_ms=taken[-1],
        failed=sum(len(one.errors) for one in done),
        repeated=len(bodies) - len(set(bodies)),
        others=others,
    )


def wake_ups(system: System, server: Server, times: int) -> list[float]:
    """ms from before a message is put, in this process, until a consumer has it that waited in another one."""
    place = server.fresh()
    with (
        _workers(system, place, [(_await, times)], 0) as (_, (consumer,)),
        closing(system.connect(place)) as queue,
    ):
        consumer.send(0.0)
        chance = random.Random(times)
        for _ in range(times):
            time.sleep(chance.uniform(0.01, 0.03))  # it is asleep again
            queue.put([time.monotonic_ns().to_bytes(8, "big") + _PADDING])
        taken: list[float] = consumer.recv()
    return taken


@contextmanager
def _workers(
    system: System, place: str, works: Sequence[tuple[Any, int]], seconds: float
) -> Iterator[tuple[list[int], list[Connection]]]:
    """Their process ids, and the connections to them: each begins when it is sent a time, answers once, and ends at
    the end of the block."""
    processes, connections = [], []
    system.connect(place).close()  # it is made here, by one
    try:
        for work, index in works:
            ours, its = _FORK.Pipe()
            process = _FORK.Process(target=_run, args=(its, work, system, place, index), daemon=True)
            process.start()
            its.close()
            processes.append(process)
            connections.append(ours)
        for connection in connections:
            connection.recv()
        yield [process.pid for process in processes if process.pid], connections
        for connection in connections:
            connection.send("end")
        for process in processes:
            process.join(10)
    finally:
        for process in processes:
            process.kill()
            process.join()


def _run(connection: Connection, work: Any, system: System, place: str, index: int) -> None:
    die_with_parent()
    with closing(system.connect(place)) as queue:
        connection.send("ready")
        connection.send(work(queue, system, index, connection.recv()))
        connection.recv()


def _produce(queue: Queue, _system: System, index: int, end: float) -> Worked:
    done = Worked([], [], [])
    number = index << 40
    while (begun := time.monotonic()) < end:
        number += 1
        try:
            queue.put([number.to_bytes(8, "big") + _PADDING])
        except Exception as error:  # whatever it is: it is counted and shown
            done.errors.append(repr(error))
        done.put_ms.append((time.monotonic() - begun) * 1_000)
    return done


def _consume(queue: Queue, system: System, _index: int, end: float) -> Worked:
    done = Worked([], [], [])
    lease, ack = system.batch
    while time.monotonic() < end:
        try:
            leased = queue.lease(lease, 0.05)
            for first in range(0, len(leased), ack):
                queue.ack(leased[first : first + ack])
        except Exception as error:
            done.errors.append(repr(error))
            continue
        done.bodies.extend(int.from_bytes(bytes(body[:8]), "big") for body, _ in leased)
        if not leased and not system.waits:
            time.sleep(_LOOK_AGAIN_SECONDS)
    return done


def _await(queue: Queue, _system: System, times: int, _begin: float) -> list[float]:
    taken: list[float] = []
    while len(taken) < times:
        for body, token in queue.lease(1, 5.0):
            taken.append((time.monotonic_ns() - int.from_bytes(bytes(body[:8]), "big")) / 1_000_000)
            queue.ack([(body, token)])
    return taken
