"""Operations of consumers: leases, settlements and subscriptions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import Response

from wsrm_mq.errors import BadRequest, WSRMError
from wsrm_mq.node.checks import filter_of
from wsrm_mq.node.message import Message
from wsrm_mq.queue.clearing import Cleared
from wsrm_mq.queue.journaling import recorded
from wsrm_mq.queue.settling import Settlement
from wsrm_mq.queue.topics import queue_of
from wsrm_mq.server.acts import Settle
from wsrm_mq.server.answers import Consumer
from wsrm_mq.server.http import answers
from wsrm_mq.server.http.answers import as_json, nothing
from wsrm_mq.server.http.call import Call, whole_number
from wsrm_mq.server.http.messages import Place, Recorded, told
from wsrm_mq.server.http.operation import Operation
from wsrm_mq.server.http.putting import Wait, with_queues
from wsrm_mq.server.rights import Principal
from wsrm_mq.server.sessions import Session

MOST: Final = 10_000
"""The most messages that are leased by one request."""
MOST_BESIDE: Final = 100
"""The most that a request settles which takes messages: the results are in a header, and proxies take some 4 KB."""
SETTLED: Final = "Settled"
Count = Annotated[int, Meta(ge=1, le=MOST)]


# leases


class Terms(Struct, forbid_unknown_fields=True, kw_only=True):
    """``max``: so many messages at most, together in the answer; without it one comes, as it is. ``max_bytes``: of
    their bodies, though one that is larger comes alone. ``wait``: so many seconds, where nothing is ready. ``lease``:
    seconds, without it as the queue says."""

    max: Count | None = None
    max_bytes: Annotated[int, Meta(ge=1)] | None = None
    wait: Wait = 0.0
    lease: Annotated[float, Meta(gt=0)] | None = None
    filter: str | None = None


class TermsOfSeveral(Terms, kw_only=True):
    """See the leases of one queue; each of these queues has a fair part."""

    queue: list[str]


class TermsOfSubscription(Struct, forbid_unknown_fields=True, kw_only=True):
    max: Count | None = None
    wait: Wait = 0.0


class Wanted(Struct, forbid_unknown_fields=True):
    filter: str | None = None


class Ready(Struct):
    """How many messages are ready, counted up to 10,000."""

    ready: int


async def lease(call: Call) -> Response:
    """Lease messages of a queue; 204 where none came."""
    return await _lease(call, [call.names["queue"]], call.query(Terms))


async def lease_of_several(call: Call) -> Response:
    """Lease messages of several queues; 204 where none came."""
    terms = call.query(TermsOfSeveral)
    return await _lease(call, terms.queue, terms)


async def lease_records(call: Call) -> Response:
    """Lease messages of a journal, with what became of those that it records."""
    return await _lease(call, [journal_named(call)], call.query(Terms), with_records=True)


def journal_named(call: Call) -> str:
    """The journal of the queue that the path names, or the node's."""
    queue = call.names.get("queue")
    return "#journal" if queue is None else f"{queue}#journal"


async def _lease(call: Call, queues: Sequence[str], terms: Terms, *, with_records: bool = False) -> Response:
    if not queues:
        raise BadRequest("There is no queue to lease from: name one, or several, as `queue=`.")
    for name in queues:
        call.principal.require("consume", name)
    await call.body(0)
    session = call.session()
    options = {name: getattr(terms, name) for name in ("wait", "max_bytes", "lease", "filter")}
    receive = partial(session.receive, queues, terms.max or 1, **options)

    async def received(gone: Sequence[asyncio.Future[None]]) -> list[Message]:
        return await with_queues(call, queues, partial(receive, gone=gone))

    return await _delivered(call, session, queues, received, terms.wait, terms.max is not None, with_records)


async def _delivered(
    call: Call,
    session: Session,
    consumers: Sequence[Consumer],
    receive: Callable[[Sequence[asyncio.Future[None]]], Awaitable[list[Message]]],
    wait: float,
    are_several: bool,
    with_records: bool = False,
) -> Response:
    """Receive, and answer what came; what a client has not waited for goes back."""
    left = [asyncio.ensure_future(_left(call.request))] if wait else []
    call.server.running -= bool(left)
    try:
        with session.heard():
            await session.lost(call.lost)
            number = call.number
            if number is not None and session.answers.has_seen(number):  # a proxy sends it again: it got no answer
                await session.lost([number], for_good=False)
            with session.answers.running(number) as lost:
                found = await receive([*left, *lost, call.server.ending])
                session.answered(number, consumers, found)
                if found and (any(one.done() for one in (*left, *lost)) or call.is_revoked):
                    await session.give_back(found)
                    found = []
    finally:
        call.server.running += bool(left)
        for task in left:
            task.cancel()
    if not found:
        return nothing()
    with_heads = [(head, one.body) for head, one in zip(_heads(call, found, with_records), found, strict=True)]
    for one in found:
        if not one.is_barrier:
            one.body = b""  # its consumer has it: no session keeps bodies
    pause = call.server.limits.pause_seconds
    return answers.several(with_heads, pause) if are_several else answers.one(*with_heads[0], pause)


async def _left(request: Request) -> None:
    """Wait until the client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _heads(call: Call, found: Sequence[Message], with_records: bool) -> list[dict[str, str]]:
    if not with_records:
        return [told(one) for one in found]
    with call.node.store.reader() as db:
        known = recorded(db, [one.position for one in found])
    return [told(one, Recorded(*known[one.position]) if one.position in known else UNSET) for one in found]


async def ready(call: Call) -> Response:
    """Count what is ready in a queue."""
    queue, fits = call.queue("consume"), filter_of(call.query(Wanted).filter)
    return as_json(Ready(await asyncio.to_thread(call.node.count_ready, [queue], fits)))


# settlements


class ToSettle(Struct, forbid_unknown_fields=True):
    settlements: Annotated[list[Settle], Meta(max_length=MOST)]


class Settling(Struct, forbid_unknown_fields=True):
    """Settlements that are done before messages are taken."""

    settlements: Annotated[list[Settle], Meta(max_length=MOST_BESIDE)] = []


class Settled(Struct):
    """The result of each, in order."""

    settlements: list[Settlement]


class ByFilter(Struct, forbid_unknown_fields=True):
    filter: str
    action: Literal["ack", "expire", "reject"] = "ack"


class ClearedAnswer(Struct):
    """``skipped``: what others have leased."""

    settled: int
    skipped: int


class OneLease(Struct):
    """The ``position`` of a message and the number of its ``lease``."""

    position: int
    lease: int


class SweptAnswer(Struct):
    """``skipped``: what others have leased. ``leased``: what the session had leased of what was settled: a message of
    these that still comes is not to be handled."""

    settled: int
    skipped: int
    leased: list[OneLease]


class OneOf(Struct, forbid_unknown_fields=True):
    """A message, by its ``position`` or by its ``message_id``; or several, by their ``positions``."""

    position: Place | None = None
    message_id: str | None = None
    positions: Annotated[list[Place], Meta(max_length=MOST)] | None = None


class SettledOne(Struct):
    settlement: Settlement


def cleared(done: Cleared) -> Response:
    return as_json(ClearedAnswer(done.settled, done.skipped))


async def settle(call: Call) -> Response:
    """Settle what the session has leased, in one commit; each is answered by itself."""
    asked = await call.json(ToSettle)
    session = call.session()
    with session.heard():
        return as_json(Settled(await session.settle(asked.settlements)))


async def settle_by_filter(call: Call) -> Response:
    """Settle what fits a filter, delivered or not, in one commit. What another session has leased is skipped."""
    queue, asked = call.queue("consume"), await call.json(ByFilter)
    session = call.session()
    with session.heard():
        own = session.positions
        done = await asyncio.to_thread(call.node.settle_where, queue, asked.filter, asked.action, own=own)
        leased = [OneLease(position, fence) for position, fence in done.leased.items() if position in own]
        return as_json(SweptAnswer(*done.cleared, leased))


async def acknowledge(call: Call) -> Response:
    """Settle a message as taken, or several in one commit, in no lease's name."""
    queue, asked = call.queue("consume"), await call.json(OneOf)
    if sum(one is not None for one in (asked.position, asked.message_id, asked.positions)) != 1:
        raise BadRequest("Name the message by its `position`, or by its `message_id`, or several by `positions`.")
    if asked.positions is not None:
        return as_json(Settled(await asyncio.to_thread(call.node.ack_many, queue, asked.positions)))
    if asked.position is not None:
        return as_json(SettledOne(await asyncio.to_thread(call.node.ack_at, queue, asked.position)))
    return as_json(SettledOne(await asyncio.to_thread(call.node.received, queue, asked.message_id or "")))


# subscriptions


class Subscribe(Struct, forbid_unknown_fields=True, kw_only=True):
    """To ``queues``, or to a ``topic`` under a ``name``. ``client``: ``null``: the session's. ``lease``: seconds,
    ``null``: as the first queue says."""

    queues: list[str] = []
    topic: str | None = None
    name: str | None = None
    client: str | None = None
    max_backlog: Annotated[int, Meta(ge=1)] = 1
    filter: str | None = None
    lease: Annotated[float, Meta(gt=0)] | None = None


class Subscribed(Struct):
    """``max_backlog``: so many messages it may have at a time, as it was granted."""

    subscription: int
    max_backlog: int
    lease: float | None
    queues: list[str]


class Replace(Struct, forbid_unknown_fields=True):
    filter: str | None


class Last(Struct, forbid_unknown_fields=True):
    """``last``: a position; whether something is to come up to it is told then."""

    last: int | None = None


class Missed(Struct):
    """``last_missed``: the last position in its queues whose message is not settled. ``leased``: the positions
    of what it has up to the one that was asked for."""

    last_missed: int
    is_behind: bool | UnsetType = UNSET
    leased: list[int] | UnsetType = UNSET


class Durable(Struct, forbid_unknown_fields=True):
    topic: str
    client: str | None = None
    filter: str | None = None


class Client(Struct, forbid_unknown_fields=True):
    client: str | None = None


class Named(Struct):
    """The name of a queue."""

    queue: str


async def subscribe(call: Call) -> Response:
    """Subscribe: the server leases ahead for it, up to its backlog."""
    asked = await call.json(Subscribe)
    session = call.session(is_named=True)
    for name in asked.queues:
        call.principal.require("consume", name)
    if asked.topic is not None:
        _require_durable(call.principal, asked.client or session.client, asked.name or "", asked.topic)
    with session.heard():
        made = await with_queues(call, asked.queues, lambda: session.subscribe(**asdict(asked)))
    flow = made.flow
    seconds = None if flow.granted.lease is None else flow.granted.lease / 1000
    return as_json(Subscribed(made.key, made.max_backlog, seconds, [*flow.names]), 201)


def _require_durable(principal: Principal, client: str, name: str, topic: str) -> None:
    principal.require_topics("consume", topic)
    principal.require("consume", queue_of(client, name))


async def take(call: Call) -> Response:
    """Settle what the session has leased, as `POST /settlements` does, and take what was leased for a subscription; 204
    where none came. The header `Settled` has the result of each settlement, in order, separated by commas."""
    key, terms, asked = _key(call), call.query(TermsOfSubscription), await call.json(Settling)
    session = call.session(is_named=True)
    with session.heard():
        session.subscription(key)
        settled = await session.settle(asked.settlements)
    taking = partial(session.take, key, terms.max or 1, wait=terms.wait)
    try:
        came = await _delivered(call, session, [key], lambda gone: taking(gone=gone), terms.wait, terms.max is not None)
    except WSRMError:
        if not settled:
            raise
        came = nothing()  # an error says that nothing was done: the next request is told it
    if settled:
        came.headers[SETTLED] = ",".join(settled)
    return came


async def replace(call: Call) -> Response:
    """Have other messages come from now on: those that fit another filter."""
    key, asked = _key(call), await call.json(Replace)
    session = call.session(is_named=True)
    with session.heard():
        await asyncio.to_thread(session.subscription(key).replace, asked.filter)
    return nothing()


async def missed(call: Call) -> Response:
    """Tell what a subscription has yet to catch up with."""
    key, asked = _key(call), call.query(Last)
    session = call.session(is_named=True)
    with session.heard():
        subscription = session.subscription(key)
        last = await asyncio.to_thread(subscription.last_missed)
        found = Missed(last)
        if asked.last is not None:
            found.is_behind = await asyncio.to_thread(subscription.is_behind, asked.last)
            given = [at for one in subscription.parts for at in one.flow.handed_over()]
            found.leased = [at for at in given if at <= asked.last]
    return as_json(found)


async def unsubscribe(call: Call) -> Response:
    """End a subscription of the session; what it has leased goes back."""
    session = call.session(is_named=True)
    with session.heard():
        await session.unsubscribe(_key(call))
    return nothing()


def _key(call: Call) -> int:
    return whole_number(call.names["key"], "is no number of a subscription")


async def subscribe_durable(call: Call) -> Response:
    """Have what is published to topics of a pattern collected in a queue of its own, also while no client is there."""
    name, asked = call.names["name"], await call.json(Durable)
    session = call.session()
    client = asked.client or session.client
    _require_durable(call.principal, client, name, asked.topic)
    making = call.node.subscribe_durable
    with session.heard():
        made = await asyncio.to_thread(making, asked.topic, name, client=client, filter=asked.filter)
        session.clients.add(client)
    return as_json(Named(made))


async def unsubscribe_durable(call: Call) -> Response:
    """Nothing is collected any more, and what was is purged."""
    name, asked = call.names["name"], call.query(Client)
    client = asked.client or call.session().client
    call.principal.require("consume", queue_of(client, name))
    return cleared(await asyncio.to_thread(call.node.unsubscribe, name, client=client))


OPERATIONS: Final = (
    Operation("POST", "/queues/{queue}/leases", lease, Terms, None, "either", may_be_empty=True),
    Operation("POST", "/settlements", settle, None, ToSettle, Settled),
    Operation(
        *("POST", "/subscriptions/{key}/leases", take, TermsOfSubscription, Settling, "either"), may_be_empty=True
    ),
    Operation("POST", "/leases", lease_of_several, TermsOfSeveral, None, "either", may_be_empty=True),
    Operation("GET", "/queues/{queue}/ready", ready, Wanted, None, Ready),
    Operation("POST", "/queues/{queue}/settlements", settle_by_filter, None, ByFilter, SweptAnswer),
    Operation("POST", "/queues/{queue}/acknowledgements", acknowledge, None, OneOf, (SettledOne, Settled)),
    Operation("POST", "/subscriptions", subscribe, None, Subscribe, Subscribed, 201),
    Operation("GET", "/subscriptions/{key}", missed, Last, None, Missed),
    Operation("PATCH", "/subscriptions/{key}", replace, None, Replace, status=204),
    Operation("DELETE", "/subscriptions/{key}", unsubscribe, status=204),
    Operation("PUT", "/durable/{name}", subscribe_durable, None, Durable, Named),
    Operation("DELETE", "/durable/{name}", unsubscribe_durable, Client, None, ClearedAnswer),
    Operation("POST", "/journals/{queue}/leases", lease_records, Terms, None, "either", may_be_empty=True),
    Operation("POST", "/journal/leases", lease_records, Terms, None, "either", may_be_empty=True),
)
