"""Operations of sessions: they begin, are renewed, are seen and end."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct
from starlette.responses import Response

from wsrm_mq.server.http.answers import as_json, nothing
from wsrm_mq.server.http.call import Call
from wsrm_mq.server.http.operation import Operation

Seconds = Annotated[float, Meta(ge=1, le=3_600)]


class Begin(Struct, forbid_unknown_fields=True):
    """``client``: its name, ``null``: the principal's. ``timeout``: it ends when it was silent for so many seconds."""

    client: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    timeout: Seconds = 30.0


class Begun(Struct):
    """``session``: what the header Session of its requests says; a secret."""

    session: str
    client: str
    timeout: float


class Presence(Struct):
    client: str
    timeout: float | None
    leased: int
    subscriptions: list[int]


class Seen(Struct):
    """``idle``: seconds since it was heard. ``seen_at``: when that was, in seconds since the epoch."""

    principal: str
    client: str
    seen_at: float
    idle: float
    leased: int
    subscriptions: list[int]


class All(Struct):
    sessions: list[Seen]


async def begin(call: Call) -> Response:
    """Begin a session: the presence of a client. Any request that names it renews it; when it ends, what it has leased
    goes back at once."""
    asked = await call.json(Begin)
    session = call.server.sessions.begin(call.principal.name, asked.client, asked.timeout)
    return as_json(Begun(session.name, session.client, asked.timeout), 201)


async def present(call: Call) -> Response:
    """Renew a session, and tell what it has."""
    session = call.session(is_named=True)
    with session.heard():
        await session.lost(call.lost)
        return as_json(Presence(session.client, session.timeout, session.leased, session.subscriptions))


async def leave(call: Call) -> Response:
    """End a session."""
    await call.session(is_named=True).end()
    return nothing()


async def all_sessions(call: Call) -> Response:
    """All sessions, for principals with the right ``admin`` to all queues; the others see their own."""
    sessions, sees_all = call.server.sessions, call.principal.may("admin", "*")
    now = sessions.clock()
    seen = [
        Seen(one.principal, one.client, one.seen_at, now - one.heard_at, one.leased, one.subscriptions)
        for one in sessions.all
        if sees_all or one.principal == call.principal.name
    ]
    return as_json(All(seen))


OPERATIONS: Final = (
    Operation("POST", "/sessions", begin, None, Begin, Begun, 201),
    Operation("GET", "/sessions", all_sessions, None, None, All),
    Operation("GET", "/session", present, None, None, Presence),
    Operation("DELETE", "/session", leave, status=204),
)
