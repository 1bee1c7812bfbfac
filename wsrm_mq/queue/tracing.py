"""The way of a message over nodes: where it lies, or has lain, in the store of one of them."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any, Final

from wsrm_mq.errors import NotFound
from wsrm_mq.queue.hopping import Origin, message_id_of
from wsrm_mq.store import routing, tracing
from wsrm_mq.store.applications import HOP, INTAKE, SENT
from wsrm_mq.store.port import Database

DELETED: Final = "deleted"
"""The state of a message that retention has deleted, while its queue knows yet that it came."""
_TRANSMISSION: Final = f"{SENT}{HOP}"


@dataclass(frozen=True)
class Stop:
    """A place on the way. ``hop``: how many nodes had it before, where that is known; ``queue``: the one that it is
    for, as it is named there; ``lies_in``: the one that it is in; ``next_hop``: the URL of the node that it waits for,
    or that has it; ``since``: it came, or was settled, seconds since the epoch."""

    hop: int | None
    queue: str
    lies_in: str
    next_hop: str | None
    position: int | None
    state: str
    reason: str | None
    since: float
    holder: str | None
    error: str | None

    @property
    def is_in_queue(self) -> bool:
        """It has come where it is for; else it waits for its place, or for another node."""
        return self.next_hop is None and not self.lies_in.startswith(INTAKE)


def parsed(trace: str) -> Origin | None:
    """The origin that is written NODE/INCARNATION/POSITION; ``None``: it is no such text."""
    node, *rest = trace.rsplit("/", 2)
    if len(rest) != 2 or not node or not rest[1].isdecimal() or len(rest[1]) > 18:
        return None
    return Origin(node, rest[0], int(rest[1]))


def at(db: Database, position: int) -> tuple[str | None, Stop]:
    """The origin of the message at a position, as it is written, and its place; without an origin it is of this node,
    and goes to no other. Raises ``NotFound``."""
    row = db.execute(tracing.AT, {"position": position}).fetchone()
    if row is None:
        raise NotFound(f"There is no message at position {position}: retention has deleted it, or it never came.")
    return row[-1], _stop(row[:-1], {})


def stops(db: Database, origin: Origin, *, unplaced: bool = True) -> list[Stop]:
    """The places of a message in a store. ``unplaced``: also where it waits for its place, which no index knows."""
    away = {
        address: error for address, since, _next, _tries, error, _node in db.execute(routing.HOPS) if since is not None
    }
    rows = [
        *(db.execute(tracing.UNPLACED, {"message_id": message_id_of(origin)}).fetchall() if unplaced else ()),
        *db.execute(tracing.STOPS, origin.key).fetchall(),
    ]
    found = [_stop(row, away) for row in {row[4]: row for row in rows}.values()]
    there = {one.lies_in.partition("#")[0] for one in found}
    return found + [
        Stop(None, name, name, None, None, DELETED, None, came_at / 1000, None, None)
        for name, came_at in db.execute(tracing.CAME, origin.key).fetchall()
        if name not in there
    ]


def in_order(stop: Stop) -> tuple[float, float]:
    """The key of stops in the order of a way. Clocks may differ, so their times are the last to say."""
    return inf if stop.hop is None else stop.hop, stop.since


def _stop(row: Any, away: dict[str, str]) -> Stop:
    hop, target, queue, dead_of, position, state, reason, received_at, settled_at, consumer, holder, error = row
    of = dead_of or queue
    next_hop = of.removeprefix(_TRANSMISSION).partition("#")[0] if of.startswith(_TRANSMISSION) else None
    return Stop(
        hop,
        queue if target is None or not (next_hop or of == INTAKE) else target,
        queue,
        next_hop,
        position,
        state,
        reason,
        (received_at if settled_at is None else settled_at) / 1000,
        consumer or holder,
        error or (None if settled_at is not None or next_hop is None else away.get(next_hop)),
    )
