"""Operations that put messages: into queues, to topics, by themselves, together, or once out of a client's outbox."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Final, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.responses import Response

from wsrm_mq.errors import ConfigurationError, QueueChanged, QuotaExceeded, UnknownQueue, WSRMError
from wsrm_mq.node import Node
from wsrm_mq.node.async_node import wakeup
from wsrm_mq.node.producing import BLOCKED_SECONDS
from wsrm_mq.parts import Part
from wsrm_mq.queue.topics import Published
from wsrm_mq.server import lanes
from wsrm_mq.server.acts import PutOne, Settle, require_put
from wsrm_mq.server.http.answers import as_json
from wsrm_mq.server.http.call import Call
from wsrm_mq.server.http.messages import MESSAGE, SETTLEMENT, options_of, put_of, said, settlement
from wsrm_mq.server.http.operation import Operation
from wsrm_mq.server.http.problems import Problem, problem_of
from wsrm_mq.server.rights import Principal

R = TypeVar("R")
LONGEST_WAIT: Final = 60.0
LONGEST_LANE: Final = 200
"""Characters of the name of a lane."""
Wait = Annotated[float, Meta(ge=0, le=LONGEST_WAIT)]


class Room(Struct, forbid_unknown_fields=True):
    """``timeout``: so many seconds the put waits for room, where the queue's ``overflow`` is ``block``."""

    timeout: Wait = 0.0


class Mandatory(Struct, forbid_unknown_fields=True):
    """``mandatory``: what no queue takes is an error."""

    mandatory: bool = False


class Position(Struct):
    position: int


class Positions(Struct):
    """Where the messages are, in the order in which they were sent."""

    positions: list[int]


class PublishedAt(Struct):
    """``position``: in the first of the ``queues``, ``null`` where none takes it. Those that the principal has no right
    to are not named."""

    position: int | None
    queues: list[str]


class Results(Struct):
    """One for each message, in order: its ``position``, with ``queues`` where it was published, or a ``problem``."""

    results: list[dict[str, Any]]


async def put(call: Call) -> Response:
    """Put a message into a queue, or several in one commit, all or none of them."""
    queue, room = call.queue("put"), call.query(Room)
    if call.boundary is not None:
        acts = [put_of(part, queue) for part in await call.parts()]
        require_put(call.principal, *acts)
        together = partial(asyncio.to_thread, _together, call.node, acts)
        positions = await put_with_room(call, _queues(acts), room.timeout, together)
        return as_json(Positions(positions), 201)
    act = put_of(Part(call.headers, await call.body()), queue)
    require_put(call.principal, act)
    position = await put_with_room(call, _queues([act]), room.timeout, partial(_soon, call.node, act))
    return as_json(Position(position), 201)


async def publish(call: Call) -> Response:
    """Publish a message to a topic: every queue that is bound to it gets it, or none."""
    topic, asked = call.names["topic"], call.query(Mandatory)
    options = options_of(said(call.headers.get(MESSAGE)), call.headers.get("content-type"))
    options["mandatory"] = asked.mandatory or options.get("mandatory", False)
    act = PutOne(None, topic, await call.body(), options)
    require_put(call.principal, act)
    done = await with_queues(call, _queues([act]), partial(_published, call.node, act))
    return as_json(_seen_by(call.principal, done), 201)


async def put_each(call: Call) -> Response:
    """Put messages by themselves, into queues or to topics: they share a commit, and each has a result of its own."""
    parts = await call.parts()
    results = list(await asyncio.gather(*(_one(call, part) for part in parts)))
    lacking = [at for at, one in enumerate(results) if isinstance(one, UnknownQueue)]
    if lacking:
        refused: dict[str, WSRMError] = {}
        for name in dict.fromkeys(_queues(put_of(parts[at]) for at in lacking)):
            try:
                await declare_missing(call, [name])
            except WSRMError as error:
                refused[name] = error
        again = await asyncio.gather(*(_one(call, parts[at]) for at in lacking))  # in their order too
        for at, one in zip(lacking, again, strict=True):
            why = (refused[name] for name in _queues([put_of(parts[at])]) if name in refused)
            results[at] = next(why, one)
    problems = ({"problem": problem_of(one)} if isinstance(one, WSRMError) else one for one in results)
    return as_json(Results(list(problems)))


async def _one(call: Call, part: Part) -> dict[str, Any] | WSRMError:
    try:
        act = put_of(part)
        require_put(call.principal, act)
        if act.topic is not None:
            done = _seen_by(call.principal, await _published(call.node, act))
            return {"position": done.position, "queues": done.queues}
        return {"position": await _soon(call.node, act)}
    except WSRMError as error:
        return error


async def transact(call: Call) -> Response:
    """Put and settle messages in one commit, or do nothing of it."""
    acts: list[Settle | PutOne] = []
    for part in await call.parts():
        settles = part.headers.get(SETTLEMENT)
        acts.append(put_of(part) if settles is None else settlement(settles))
    puts = [one for one in acts if isinstance(one, PutOne)]
    require_put(call.principal, *puts)
    session = call.session()
    with session.heard():
        positions = await with_queues(call, _queues(puts), lambda: session.transaction(acts))
    return as_json(Positions(positions))


class After(Struct, forbid_unknown_fields=True):
    """``after``: the number before these, which the client knows to be there."""

    after: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0


class LaneAnswer(Struct, omit_defaults=True):
    """``last``: the highest number of the lane that is here. ``problem``: why the message ``number`` never will be."""

    last: int
    number: int | UnsetType = UNSET
    problem: Problem | UnsetType = UNSET


async def put_in_lane(call: Call) -> Response:
    """Put what a client's outbox has, once and in order: what is here already is not put again, for ever."""
    after, lane = call.query(After).after, _lane(call)
    numbered = [_numbered(part) for part in await call.parts()]
    numbers = [one.number for one in numbered]
    if numbers != sorted(set(numbers)) or (numbers and numbers[0] <= after):
        raise ConfigurationError("The numbers of a lane rise from message to message, and from `after` on.")
    principal = call.principal
    taking = partial(lanes.take, call.node, lane, after, numbered, partial(require_put, principal))
    done = await asyncio.to_thread(taking)
    is_unknown = done.refused is not None and isinstance(done.refused[1], UnknownQueue)
    if is_unknown and await declare_missing(call, _queues(one.message for one in numbered)):
        done = await asyncio.to_thread(taking)
    if done.refused is None:
        return as_json(LaneAnswer(done.last))
    one, error = done.refused
    return as_json(LaneAnswer(done.last, one.number, problem_of(error)))


def _numbered(part: Part) -> lanes.Numbered:
    number = said(part.headers.get(MESSAGE)).number
    if number is None or not 0 < number < 2**63:
        raise ConfigurationError("The header Message of each part of a lane has its `number`, from 1 on.")
    return lanes.Numbered(number, put_of(part))


async def last_in_lane(call: Call) -> Response:
    """How much of a client's outbox is here."""
    lane = _lane(call)
    with call.node.store.reader() as db:
        return as_json(LaneAnswer(lanes.last_of(db, lane)))


def _lane(call: Call) -> lanes.Lane:
    name = call.names["lane"]
    if not 0 < len(name) <= LONGEST_LANE or not name.isprintable():
        raise ConfigurationError(f"The name of a lane has 1 to {LONGEST_LANE} printable characters.")
    return lanes.Lane(call.principal.name, name)


def _queues(acts: Iterable[PutOne]) -> list[str]:
    """Where messages go, and their reports."""
    return [name for one in acts for name in (one.queue, one.options.get("report_to")) if name is not None]


async def put_with_room(call: Call, queues: Sequence[str], timeout: float, act: Callable[[], Awaitable[R]]) -> R:
    """Do an act of putting ``with_queues``; where one has no room and its ``overflow`` is ``block``, it is tried again
    for ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        woken, wake = wakeup()
        if timeout:
            call.node.doorbell.when_rung(wake)
        try:
            return await with_queues(call, queues, act)
        except QuotaExceeded as error:
            left = deadline - time.monotonic()
            if left <= 0 or not error.blocks:
                raise
            await asyncio.wait([woken], timeout=min(left, BLOCKED_SECONDS))


async def with_queues(call: Call, queues: Sequence[str], act: Callable[[], Awaitable[R]]) -> R:
    """Do an act. Where a queue is not there, and the principal may declare it, it is declared, and the act is done
    again."""
    try:
        return await act()
    except UnknownQueue:
        if not await declare_missing(call, queues):
            raise
        return await act()


async def declare_missing(call: Call, queues: Sequence[str]) -> bool:
    """Declare those of these queues that are not there, where the principal may; answers whether it may any."""
    mine = [name for name in dict.fromkeys(queues) if call.principal.may("admin", name)]
    known = set(await asyncio.to_thread(call.node.keys)) if mine else set()
    for name in mine:
        if name not in known:
            await asyncio.to_thread(call.node.declare, name, actor=call.principal.name)
    return bool(mine)


async def _soon(node: Node, act: PutOne) -> int:
    while True:
        with suppress(QueueChanged):  # its durability: it is read anew
            return await asyncio.wrap_future(node.put(act.queue or "", act.body, wait=False, **act.options))


def _together(node: Node, acts: Sequence[PutOne]) -> list[int]:
    with node.transaction() as collected:
        for act in acts:
            act.collect(node)
    return collected.positions


async def _published(node: Node, act: PutOne) -> Published:
    return await asyncio.to_thread(node.publish, act.topic or "", act.body, **act.options)


def _seen_by(principal: Principal, done: Published) -> PublishedAt:
    return PublishedAt(done.position, [name for name in done.queues if is_seen(principal, name)])


def is_seen(principal: Principal, queue: str) -> bool:
    """Whether a principal has any right to a queue."""
    return any(principal.may(right, queue) for right in ("put", "consume", "peek", "admin"))


OPERATIONS: Final = (
    Operation("POST", "/queues/{queue}/messages", put, Room, "either", (Position, Positions), 201),
    Operation("POST", "/messages", put_each, None, "messages", Results),
    Operation("POST", "/transactions", transact, None, "acts", Positions),
    Operation("POST", "/lanes/{lane}/messages", put_in_lane, After, "messages", LaneAnswer),
    Operation("GET", "/lanes/{lane}", last_in_lane, None, None, LaneAnswer),
    Operation("POST", "/topics/{topic}/messages", publish, Mandatory, "message", PublishedAt, 201),
)
