"""The end of a schedule: nothing breaks any more, all comes to rest, and the oracle looks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Final

from tests.simulator.oracle import Violation
from tests.simulator.partner import HIGHEST, Partner
from tests.simulator.process import Process
from tests.simulator.queues import Queues
from tests.simulator.sending import Sending
from tests.simulator.world import World

MOMENT: Final = 200
"""Milliseconds in which no watch looks by itself that has looked just before: what happens comes of commits and
doorbells."""
RETRY: Final = 1_100
"""Milliseconds in which a retry is due."""
ROUNDS: Final = 40
"""More than the ladders of retries of all messages that a partner sends take, one after the other."""
TURNS: Final = 1_000
DRAINS: Final = 8
"""More than the turns that consumers and the application take at a sequence that is pulled."""
LEASE_MS: Final = 11_000
"""Milliseconds in which a lease ends."""


def run(world: World, steps: Sequence[int]) -> None:
    """Take the steps, let everything come to rest, and check that all is well. Raises ``Violation``."""
    try:
        for slot in range(len(world.processes)):
            world.start(slot)
        for number in steps:
            world.step(number)
        _heal(world)
        _check_told(world)
        if world.queues is not None:
            _drain(world, world.queues)
        elif world.sending is not None:
            _send_all(world, world.sending)
        else:
            _check_wake_ups(world)
        world.oracle.check_store()
        world.oracle.check_end()
    finally:
        for process in world.live():
            process.kill()


def _check_told(world: World) -> None:
    for process in world.live():
        world.check_told(process)


def _heal(world: World) -> None:
    """A process lives, and sources repeat what is not acknowledged as long as that changes something."""
    world.heals = True
    world.loses_words = False
    world.frozen = {}
    for slot, process in enumerate(world.processes):
        if process is not None and process.name not in process.neighbours.alive:
            world.kill(slot)
    for first, behind in ((0, world.services), (world.services, len(world.processes))):
        if not any(world.processes[first:behind]) and first < behind:
            world.start(first)
    if world.sending is not None:
        world.takes_all = True
        world.sending.heal(world.live())
    for process in world.live():
        process.look()
    known = None
    for _ in range(ROUNDS):
        told = [len(partner.acknowledged) for partner in world.partners]
        wanted = [(partner, number) for partner in world.partners for number in _wanted(world, partner)]
        is_first, waits = known is None, world.stored.next_retry() is not None
        if not (is_first or waits) and (known == told or not wanted):
            return
        for partner, number in wanted:
            partner.send(world.live()[0], number)
        _settle(world, RETRY if waits else MOMENT)
        known = told


def _wanted(world: World, partner: Partner) -> list[int]:
    """Numbers that it sends, perhaps again."""
    if partner.identifier is None:
        return []
    fills = world.fills_gaps and not partner.is_over
    return sorted([*partner.unacknowledged, *(partner.missing if fills else ())])


def _check_wake_ups(world: World) -> None:
    """What comes now is answered and delivered without the net: by what was committed and who was woken."""
    world.takes_all = True
    for process, partner in zip(cycle(world.live()), world.partners):
        partner.unanswered = 0
        unsent = sorted(set(range(1, HIGHEST + 1)) - partner.sent)
        if unsent and partner.identifier is not None and not partner.is_over:
            partner.send(process, unsent[0])
    _settle(world, MOMENT)
    _check_told(world)
    if unanswered := [partner.name for partner in world.partners if partner.unanswered]:
        raise Violation(f"the partners {unanswered} wait for an answer")
    world.oracle.check_nothing_is_left(world.clock())


def _drain(world: World, queues: Queues) -> None:
    """Consumers take all that there is, while leases of others end and retries are due."""
    for _ in range(DRAINS):
        world.pass_time(LEASE_MS)
        world.live()[0].look_at_queues()
        _settle(world, MOMENT)
        for process in world.live():
            queues.jobs.drain(process)
        _settle(world, MOMENT)
        if queues.jobs.is_over:
            break
    _check_told(world)
    queues.check_end(world.live()[0])


def _send_all(world: World, sending: Sending) -> None:
    """All requests come to their end, while retries are due."""
    for _ in range(ROUNDS):
        _settle(world, MOMENT)
        is_waited_at = any(process.door and process.door.is_waited_at for process in world.live())
        if not (sending.calls.waiting or is_waited_at or world.stored.next_retry() is not None):
            break
        world.pass_time(RETRY)
    _check_told(world)
    if is_waited_at:
        raise Violation("a request still holds its thread (I16)")
    sending.check_end(world.live()[-1])


def _settle(world: World, milliseconds: int) -> None:
    """Run all that can run, for so long on the clock."""
    until = world.clock() + milliseconds
    for _ in range(TURNS):
        if any([*(_goes_on(process) for process in world.live()), world.carry(world.draw)]):
            continue
        at = min(process.tasks.next_at for process in world.live())
        world.pass_time(max(0, min(int(at) + 1, until) - world.clock()))
        if at > until:
            return
    raise Violation("the processes never come to rest")


def _goes_on(process: Process) -> bool:
    """Everything that is ready runs, words arrive; then a request looks for its answer. Answers whether something
    happened."""
    is_busy = process.is_ready or bool(process.bell.under_way)
    if process.bell.under_way:
        process.bell.arrive()
    process.run_on()
    if process.requests and not (is_busy or process.has_writes):
        process.answer_one(0)
        return True
    return is_busy
