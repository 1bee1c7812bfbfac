"""The load generator: ``load.c``, compiled when it is first needed, and its one rule.

A generator that needs much of a core takes it from the server it measures; a run in which it used 30 % or more is void.
"""

from __future__ import annotations

import json
import subprocess
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bench.compiler import built, gcc
from bench.messages import MESSAGE_ID, NUMBER, http_request, template

__all__ = ["MOST_CPU_SHARE", "GeneratorTooBusy", "Load", "Plan", "RunIsVoid", "in_order", "load", "steps"]

MOST_CPU_SHARE: Final = 0.30
_SOURCE: Final = Path(__file__).with_name("load.c")


class RunIsVoid(Exception):
    """What was measured says nothing about the server."""


class GeneratorTooBusy(RunIsVoid):
    """``done`` is what it did, ``rate`` one at which it would not have been too busy."""

    def __init__(self, done: Load) -> None:
        super().__init__(
            f"the load generator used {done.cpu_share:.0%} of a core at {done.rate:,.0f} messages a second; from "
            f"{MOST_CPU_SHARE:.0%} on it is the generator that is measured"
        )
        self.done = done
        self.rate = round(done.rate * 0.8 * MOST_CPU_SHARE / done.cpu_share)


class Load(NamedTuple):
    messages: int
    """That were answered, not with 503."""
    seconds: float
    cpu_share: float
    """Of one core, the generator's."""
    p50_us: float
    p99_us: float
    answer_bytes: float
    answers: dict[str, int]
    """How many of each status: "200", "202", "503", "other"."""
    closed: int
    """How often the server closed a connection after an answer."""
    begun: int
    """When the first request was sent: CLOCK_MONOTONIC, ns."""

    @property
    def rate(self) -> float:
        return self.messages / self.seconds


class Plan(NamedTuple):
    """What is sent: on each connection one step after the other, a step being the index of an identifier and a number,
    as ``steps`` makes them."""

    identifiers: Sequence[str]
    """All of one length."""
    connections: Sequence[array[int]]
    request: bytes
    """An envelope in which the first identifier, ``NUMBER`` and ``MESSAGE_ID`` stand where each step's go; what is
    left out stays out."""

    def written(self) -> bytes:
        request = http_request(self.request)
        fields = [max(0, request.find(field.encode())) for field in (self.identifiers[0], str(NUMBER), MESSAGE_ID)]
        (width,) = {len(identifier) for identifier in self.identifiers}
        head = (len(request), *fields, width, len(self.identifiers), len(self.connections))
        parts = [" ".join(map(str, head)).encode(), b"\n", request, "".join(self.identifiers).encode()]
        for connection in self.connections:
            parts += [array("I", [len(connection) // 2]).tobytes(), connection.tobytes()]
        return b"".join(parts)


def steps(pairs: Iterable[tuple[int, int]]) -> array[int]:
    return array("I", [value for pair in pairs for value in pair])


def in_order(identifiers: Sequence[str], messages: int, *, first: int = 1, two_way: bool = False) -> Plan:
    """A connection for each of ``identifiers``, which sends ``first`` and the numbers that follow."""
    connections = []
    for index in range(len(identifiers)):
        connection = array("I", [index]) * (2 * messages)
        connection[1::2] = array("I", range(first, first + messages))
        connections.append(connection)
    return Plan(identifiers, connections, template(identifiers[0], two_way=two_way))


def compiled() -> Path:
    """The generator's binary, newer than its source."""
    return built("load", [_SOURCE], lambda target: gcc("-o", target, _SOURCE))


def load(
    port: int,
    plan: Plan,
    *,
    seconds: float = 0.0,
    most_per_second: int = 0,
    acknowledged: bool = False,
    refusals: int = 0,
) -> Load:
    """Send what is planned, or what of it can be sent in ``seconds``; all connections together no faster than
    ``most_per_second``. ``acknowledged``: every answer has to acknowledge the number that was sent. ``refusals`` is how
    many answers have to be neither 200 nor 202. ``RunIsVoid`` where something else happens."""
    numbers = map(str, (port, seconds, most_per_second))
    command = [str(compiled()), *numbers, *(["--acknowledged"] if acknowledged else [])]
    done = subprocess.run(command, input=plan.written(), capture_output=True)
    said = done.stderr.decode(errors="replace").strip()
    if done.returncode:
        raise RunIsVoid(said)
    result = Load(**json.loads(done.stdout))
    if result.answers["503"] or result.answers["other"] != refusals:
        raise RunIsVoid(f"answered with {result.answers}, of which {refusals} refusals are meant. {said}")
    if result.cpu_share >= MOST_CPU_SHARE:
        raise GeneratorTooBusy(result)
    return result
