"""Operations on queues themselves, on topics, dead letters and journals, and what is looked at there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct
from msgspec.structs import asdict
from starlette.responses import Response

from wsrm_mq.errors import BadRequest, NotFound
from wsrm_mq.node.apart import DeadLetters
from wsrm_mq.node.message import Message
from wsrm_mq.queue import declaring, tracing
from wsrm_mq.queue.policies import QueuePolicy, Scope, refuse_unknown
from wsrm_mq.queue.tracing import Stop
from wsrm_mq.server.bounds import Bounds
from wsrm_mq.server.http import answers
from wsrm_mq.server.http.answers import as_json, nothing
from wsrm_mq.server.http.call import Call, whole_number
from wsrm_mq.server.http.consuming import ClearedAnswer, Named, cleared, journal_named
from wsrm_mq.server.http.messages import MESSAGE, Place, Recorded, options_of, said, told
from wsrm_mq.server.http.operation import Operation
from wsrm_mq.server.http.putting import Position, is_seen, with_queues
from wsrm_mq.store.applications import INTAKE

MOST: Final = 1_000
"""The most messages that are looked at by one request."""


MOST_POSITIONS: Final = 10_000
"""The most positions that are told by one request."""


class Page(Struct, forbid_unknown_fields=True):
    """``after``: a position; messages behind it are looked at, ``limit`` of them."""

    after: Place = 0
    limit: Annotated[int, Meta(ge=1, le=MOST)] = 50
    filter: str | None = None


class Replayed(Struct, forbid_unknown_fields=True):
    """From a ``position`` on, that one included, or from a ``time``, in seconds since the epoch; else from the first
    on."""

    position: Place | None = None
    time: Annotated[float, Meta(ge=0, le=253_402_300_799)] | None = None
    limit: Annotated[int, Meta(ge=1, le=MOST)] = 50
    filter: str | None = None


class Queues(Struct):
    queues: list[str]


class Counts(Struct):
    """See ``Stats``: messages by state. Times in seconds, those of the day since the epoch."""

    ready: int
    held: dict[str, int]
    leased: int
    dead: int
    messages: int
    bytes: int
    oldest_at: float | None
    oldest_age: float | None
    last_position: int | None
    last_put_at: float | None
    put_rate: float
    gone_rate: float
    keeper: dict[str, Any] | None


class OfferSeen(Struct):
    """A queue whose scope is more than its ``node``, the one that answers; what it has, as ``Stats`` counts it."""

    node: str
    queue: str
    scope: Scope
    ready: int
    held: int
    leased: int
    dead: int
    oldest_at: float | None


class OffersSeen(Struct):
    offers: list[OfferSeen]


class Traced(Struct):
    stops: list[Stop]


class Live(Struct, forbid_unknown_fields=True):
    """``after``: a position; ``limit``: so many behind it."""

    after: Place = 0
    limit: Annotated[int, Meta(ge=1, le=MOST_POSITIONS)] = MOST_POSITIONS


class LivePositions(Struct):
    positions: list[int]


class Edit(Struct, forbid_unknown_fields=True):
    """``to``: another queue than that which it came from. ``keeps_body``: the body stays as it was."""

    to: str | None = None
    keeps_body: bool = False


class Recover(Struct, forbid_unknown_fields=True):
    """``queue``: ``null``: all."""

    queue: str | None = None


class Delete(Struct, forbid_unknown_fields=True):
    if_empty: bool = False
    if_unused: bool = False
    force: bool = False


class Purge(Struct, forbid_unknown_fields=True):
    """Between two positions, both included."""

    lower: Place = 0
    upper: Place | None = None


class Bind(Struct, forbid_unknown_fields=True):
    pattern: str
    queue: str
    filter: str | None = None


class Unbind(Struct, forbid_unknown_fields=True):
    pattern: str
    queue: list[str]


class Bindings(Struct):
    """How many there were."""

    bindings: int


class Retain(Struct, forbid_unknown_fields=True):
    """For so many seconds; ``null``: for ever, 0: no longer."""

    retain: float | None


class EventSeen(Struct):
    """``last_at``: seconds since the epoch."""

    name: str
    messages: int
    last_at: float


class Events(Struct):
    events: list[EventSeen]


class ClientSeen(Struct):
    """See ``Node.clients``."""

    name: str
    pid: int
    state: Literal["live", "gone"]
    seen_at: float
    queues: list[str]
    patterns: list[str]


class Clients(Struct):
    clients: list[ClientSeen]


class Redrive(Struct, forbid_unknown_fields=True):
    """``positions``: ``null``: all. ``to``: another queue than that which they came from."""

    positions: Annotated[list[Place], Meta(max_length=10_000)] | None = None
    to: str | None = None
    reset: bool = True


class Discard(Struct, forbid_unknown_fields=True):
    positions: Annotated[list[Place], Meta(max_length=10_000)] | None = None


class Count(Struct):
    count: int


# queues


async def queues(call: Call) -> Response:
    """The queues to which the principal has a right."""
    names = await asyncio.to_thread(call.node.keys)
    return as_json(Queues([name for name in names if is_seen(call.principal, name)]))


async def offers(call: Call) -> Response:
    """The queues that other nodes may see, as far as the principal may look at them, and what they have."""

    def counted() -> list[OfferSeen]:
        may = call.principal.may
        offered = call.node.offers(lambda name: may("peek", name) or may("consume", name))
        return [OfferSeen(*(getattr(one, name) for name in OfferSeen.__struct_fields__)) for one in offered]

    return as_json(OffersSeen(await asyncio.to_thread(counted)))


async def trace(call: Call) -> Response:
    """The places where this node has a message that goes over nodes, or has had it: as far as the principal may peek
    the queue that it is for."""
    origin = tracing.parsed(call.names["trace"])
    if origin is None:
        raise BadRequest("The origin of a message is written NODE/INCARNATION/POSITION.")

    on_its_way = call.principal._replace(offered=None)  # scopes are of queues

    def look() -> list[Stop]:
        with call.node.reader() as db:
            return tracing.stops(db, origin, unplaced=on_its_way.may("peek", INTAKE))

    found = await asyncio.to_thread(look)
    return as_json(
        Traced([one for one in found if (call.principal if one.is_in_queue else on_its_way).may("peek", one.queue)])
    )


async def declare(call: Call) -> Response:
    """Make a queue, or change the policy of one: options that are not named stay. Answers its policy."""
    queue, options = call.queue("admin"), await call.json(dict[str, Any])
    refuse_unknown(options)  # the names of arguments are none
    return _policy(await asyncio.to_thread(call.node.declare, queue, **options, actor=call.principal.name))


async def policy(call: Call) -> Response:
    """The policy of a queue."""
    queue = call.queue("peek")

    def read() -> QueuePolicy:
        with call.node.reader() as db:
            return declaring.read(db, queue).policy

    return _policy(await asyncio.to_thread(read))


def _policy(policy: QueuePolicy) -> Response:
    return as_json({name: getattr(policy, name) for name in QueuePolicy.__struct_fields__})


async def stats(call: Call) -> Response:
    """Count the messages of a queue, by state."""
    found = await asyncio.to_thread(call.node.stats, call.queue("peek"))
    keeper = None if found.keeper is None else found.keeper._asdict()
    return as_json(Counts(**{**found._asdict(), "keeper": keeper}))


async def delete(call: Call) -> Response:
    """Delete a queue; what it has is purged."""
    queue, asked = call.queue("admin"), call.query(Delete)
    return cleared(await asyncio.to_thread(call.node.delete, queue, **asdict(asked), actor=call.principal.name))


async def purge(call: Call) -> Response:
    """Give up what is not leased."""
    queue, asked = call.queue("admin"), call.query(Purge)
    return cleared(await asyncio.to_thread(call.node.purge, queue, **asdict(asked), actor=call.principal.name))


async def peek(call: Call) -> Response:
    """Look at messages, whatever their state; nothing changes. 204 where there is none."""
    queue, page = call.queue("peek"), call.query(Page)
    return _seen(call, await asyncio.to_thread(call.node.peek, queue, **asdict(page)))


async def positions(call: Call) -> Response:
    """The positions of the messages that are not settled, in order."""
    queue, asked = call.queue("peek"), call.query(Live)
    return as_json(LivePositions(await asyncio.to_thread(call.node.positions, queue, **asdict(asked))))


async def get(call: Call) -> Response:
    """Look at the message at a position."""
    queue, position = call.queue("peek"), _position(call)
    found = await asyncio.to_thread(call.node.get, queue, position)
    if found is None:
        raise NotFound(f"There is no message at position {position} of {queue}, or it is settled.")
    return answers.one(told(found), found.body, call.server.limits.pause_seconds)


def _seen(call: Call, messages: Sequence[Message]) -> Response:
    if not messages:
        return nothing()
    return answers.several([(told(one), one.body) for one in messages], call.server.limits.pause_seconds)


def _position(call: Call) -> int:
    return whole_number(call.names["position"], "is no position")


# topics


async def bind(call: Call) -> Response:
    """From now on what is published to topics of a pattern goes into a queue too."""
    asked = await call.json(Bind)
    call.principal.require("admin", asked.queue)
    call.principal.require_topics("consume", asked.pattern)
    who = call.principal.name
    binding = partial(asyncio.to_thread, call.node.bind, asked.pattern, asked.queue, filter=asked.filter, actor=who)
    await with_queues(call, [asked.queue], binding)
    return nothing()


async def unbind(call: Call) -> Response:
    """Nothing of a pattern goes into a queue any more."""
    asked = call.query(Unbind)
    if len(asked.queue) != 1:
        raise BadRequest("Name one queue.")
    call.principal.require("admin", asked.queue[0])
    who = call.principal.name
    return as_json(Bindings(await asyncio.to_thread(call.node.unbind, asked.pattern, asked.queue[0], actor=who)))


async def retain(call: Call) -> Response:
    """Keep what is published to topics of a pattern for a while, to be replayed."""
    pattern, asked = call.names["topic"], await call.json(Retain)
    call.principal.require_topics("admin", pattern)
    await asyncio.to_thread(call.node.declare_topic, pattern, retain=asked.retain, actor=call.principal.name)
    return nothing()


async def replay(call: Call) -> Response:
    """Look again at what was published to topics of a pattern and is retained, in order. 204 where there is none."""
    pattern, asked = call.names["topic"], call.query(Replayed)
    call.principal.require_topics("peek", pattern)
    if asked.position is not None and asked.time is not None:
        raise BadRequest("Replay from a `position` on, or from a `time` on.")
    since = next((one for one in (asked.position, asked.time) if one is not None), "first")

    def page() -> list[Message]:
        return list(islice(call.node.replay(pattern, since=since, filter=asked.filter), asked.limit))  # type: ignore[arg-type]

    return _seen(call, await asyncio.to_thread(page))


async def events(call: Call) -> Response:
    """The events of a bucket, of which something is retained."""
    bucket = call.names["bucket"]
    call.principal.require_topics("peek", f"{bucket}/#")
    found = await asyncio.to_thread(call.node.events, bucket)
    return as_json(Events([EventSeen(*one) for one in found]))


async def clients(call: Call) -> Response:
    """Who has subscribed, as far as the principal may look at what they are subscribed to."""
    seen = []
    for one in await asyncio.to_thread(call.node.clients):
        its_queues = [name for name in one.queues if call.principal.may("peek", name)]
        patterns = [pattern for pattern in one.patterns if call.principal.may_topics("peek", pattern)]
        if its_queues or patterns:
            state: Literal["live", "gone"] = "live" if one.state == "live" else "gone"
            seen.append(ClientSeen(one.name, one.pid, state, one.seen_at, its_queues, patterns))
    return as_json(Clients(seen))


async def metrics(call: Call) -> Response:
    """The figures of this process of the server, for Prometheus: sessions, subscriptions, consumers that wait, leases,
    bytes that are on their way, and requests that run."""
    call.principal.require("admin", "*")
    now = call.server.sessions.counts
    gauges = {**{name: now[name] for name in Bounds._fields}, "running": call.server.running}
    lines = (
        f"# TYPE wsrm_queue_server_{name} gauge\nwsrm_queue_server_{name} {count}\n" for name, count in gauges.items()
    )
    return Response("".join(lines), media_type="text/plain; version=0.0.4")


# dead letters and journals


async def dead(call: Call) -> Response:
    """The queue that has the dead letters of a queue: they are looked at and leased there."""
    queue = call.names["queue"]
    call.principal.require("peek", f"{queue}#dead")
    return as_json(Named((await asyncio.to_thread(call.node.dead, queue)).name))


async def redrive(call: Call) -> Response:
    """Put dead letters back, as if they had never been tried."""
    queue, asked = call.queue("admin"), await call.json(Redrive)
    if asked.to is not None:
        call.principal.require("put", asked.to)
    return as_json(Count(await asyncio.to_thread(lambda: _letters(call, queue).redrive(**asdict(asked)))))


async def edit_and_redrive(call: Call) -> Response:
    """Put a message in the place of a dead letter: with another body, or other options; what is not named is as it
    was. Answers its position."""
    queue, position, asked = call.queue("admin"), _position(call), call.query(Edit)
    options = options_of(said(call.headers.get(MESSAGE)), call.headers.get("content-type"))
    given = {name: value for name, value in options.items() if value is not None}
    for name in (asked.to, given.get("report_to")):
        if name is not None:
            call.principal.require("put", name)
    body = None if asked.keeps_body else await call.body()

    def edit() -> int:
        return _letters(call, queue).edit_and_redrive(position, body, to=asked.to, **given)

    return as_json(Position(await asyncio.to_thread(edit)))


async def recover_express(call: Call) -> Response:
    """Have express messages delivered that were lost with the process that kept them, as the journal of their queue has
    them. Answers how many."""
    asked = await call.json(Recover)
    call.principal.require("admin", "*" if asked.queue is None else asked.queue)
    return as_json(Count(await asyncio.to_thread(call.node.recover_express, asked.queue)))


async def discard(call: Call) -> Response:
    """Give dead letters up."""
    queue, asked = call.queue("admin"), await call.json(Discard)
    return as_json(Count(await asyncio.to_thread(lambda: _letters(call, queue).discard(asked.positions))))


def _letters(call: Call, queue: str) -> DeadLetters:
    """The dead letters of a queue, as its principal has them."""
    return DeadLetters(call.node, queue, call.principal.name)


async def journal(call: Call) -> Response:
    """The journal of a queue, or that of the node."""
    call.principal.require("peek", journal_named(call))
    found = await asyncio.to_thread(call.node.journal, call.names.get("queue"))
    return as_json(Named(found.name))


async def peek_journal(call: Call) -> Response:
    """Look at a journal, with what became of the messages that it records. 204 where there is none."""
    page = call.query(Page)
    call.principal.require("peek", journal_named(call))

    def looked() -> list[tuple[dict[str, str], bytes]]:
        records = call.node.journal(call.names.get("queue")).peek(**asdict(page))
        return [(told(one.message, Recorded(*one.of)), one.message.body) for one in records]

    found = await asyncio.to_thread(looked)
    return answers.several(found, call.server.limits.pause_seconds) if found else nothing()


OPERATIONS: Final = (
    Operation("GET", "/queues", queues, None, None, Queues),
    Operation("GET", "/offers", offers, None, None, OffersSeen),
    Operation("GET", "/traces/{trace}", trace, None, None, Traced),
    Operation("PUT", "/queues/{queue}", declare, None, dict[str, Any], QueuePolicy),
    Operation("GET", "/queues/{queue}", stats, None, None, Counts),
    Operation("GET", "/queues/{queue}/policy", policy, None, None, QueuePolicy),
    Operation("DELETE", "/queues/{queue}", delete, Delete, None, ClearedAnswer),
    Operation("GET", "/queues/{queue}/messages", peek, Page, None, "messages", may_be_empty=True),
    Operation("GET", "/queues/{queue}/positions", positions, Live, None, LivePositions),
    Operation("DELETE", "/queues/{queue}/messages", purge, Purge, None, ClearedAnswer),
    Operation("GET", "/queues/{queue}/messages/{position}", get, None, None, "message"),
    Operation("PUT", "/bindings", bind, None, Bind, status=204),
    Operation("DELETE", "/bindings", unbind, Unbind, None, Bindings),
    Operation("PUT", "/topics/{topic}", retain, None, Retain, status=204),
    Operation("GET", "/topics/{topic}/messages", replay, Replayed, None, "messages", may_be_empty=True),
    Operation("GET", "/buckets/{bucket}/events", events, None, None, Events),
    Operation("GET", "/clients", clients, None, None, Clients),
    Operation("GET", "/metrics", metrics, None, None, "text"),
    Operation("GET", "/dead/{queue}", dead, None, None, Named),
    Operation("POST", "/dead/{queue}/redrive", redrive, None, Redrive, Count),
    Operation("POST", "/dead/{queue}/discard", discard, None, Discard, Count),
    Operation("POST", "/dead/{queue}/messages/{position}", edit_and_redrive, Edit, "message", Position),
    Operation("POST", "/express/recoveries", recover_express, None, Recover, Count),
    Operation("GET", "/journals/{queue}", journal, None, None, Named),
    Operation("GET", "/journal", journal, None, None, Named),
    Operation("GET", "/journals/{queue}/messages", peek_journal, Page, None, "messages", may_be_empty=True),
    Operation("GET", "/journal/messages", peek_journal, Page, None, "messages", may_be_empty=True),
)
