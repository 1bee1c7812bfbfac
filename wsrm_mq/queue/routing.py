"""Routes: which node is next for a message to a queue that is elsewhere. And the name of this node."""

from __future__ import annotations

import re
import socket
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import urlsplit

from wsrm_mq.errors import ConfigurationError
from wsrm_mq.queue.declaring import check_text
from wsrm_mq.store import routing
from wsrm_mq.store.port import Database
from wsrm_mq.store.transaction import Transaction


class NodeName(NamedTuple):
    """The name of a node, and its incarnation: that is another one whenever its store may have gone back in time, so
    positions that are given again are those of other messages."""

    name: str
    incarnation: str


class Route(NamedTuple):
    """``strip``: the part of ``pattern`` before its first ``*`` is left out of the name that a message arrives under.
    ``away_since``: the next node does not answer since then, ms since the epoch; ``node``: its name, once it has
    answered."""

    key: int
    pattern: str
    next_hop: str
    cost: int
    strip: bool
    away_since: int | None = None
    node: str | None = None

    def covers(self, name: str) -> bool:
        return compiled(self.pattern).fullmatch(name) is not None

    def sent_as(self, name: str) -> str:
        """The name of a queue, as the next node is told it."""
        return name.removeprefix(self.pattern.partition("*")[0]) if self.strip else name


@lru_cache(1024)
def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern of names, in which ``*`` stands for any characters."""
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)


def node_name(db: Database) -> NodeName:
    """The name that the node was given, or else that of its host and the beginning of its store's id, as a host may
    have several; and the token of this run of its store."""
    name, store, token = db.execute(routing.NODE).fetchone()
    return NodeName(name or f"{socket.gethostname().partition('.')[0]}-{store[:4]}", token or "")


def name_node(tx: Transaction, name: str) -> None:
    """Give the node its name. Raises ``ConfigurationError``."""
    check_text(name)
    if not name.isprintable() or "@" in name or len(name) > 200:
        raise ConfigurationError(f"{name!r} is no name of a node: that is 1 to 200 printable characters without @.")
    tx.execute(routing.NAME_NODE, {"name": name})


def settle_name(tx: Transaction, configured: str | None = None) -> None:
    """Name the node, where it has no name yet, as it is ``configured`` or after its host: it keeps that, wherever it
    runs. Raises ``ConfigurationError`` where it has been given another name than is configured."""
    given, _store, _token = tx.execute(routing.NODE).fetchone()
    if given is None:
        name_node(tx, configured or node_name(tx).name)
    elif configured not in (None, given):
        raise ConfigurationError(
            f"node_name is {configured!r}, and the store is that of the node {given!r}: `wsrm-mq node name` renames "
            "it; what other nodes have of it keeps the name that it had."
        )


def routes(db: Database) -> list[Route]:
    """All routes, the cheapest first."""
    rows = db.execute(routing.ROUTES).fetchall()
    return [Route(key, pattern, hop, cost, bool(strip), *known) for key, pattern, hop, cost, strip, *known in rows]


def choose(among: Iterable[Route], target: str, via: Collection[str] = ()) -> Route | None:
    """The cheapest route for a name whose next node answers; where none of them does, the cheapest; ``None``: no route
    is for it. None goes back to a node that has had the message, of those in ``via``, unless there is no other."""
    covering = [one for one in among if one.covers(target)]
    onward = [one for one in covering if one.node not in via] or covering
    return min(onward, key=lambda one: (one.away_since is not None, one.cost, one.key), default=None)


def add_route(
    tx: Transaction, pattern: str, next_hop: str, cost: int = 1, *, strip: bool = False, actor: str | None = None
) -> None:
    """Add a route, or change its cost and whether it strips. Raises ``ConfigurationError``."""
    check_text(pattern)
    try:
        parts, port = urlsplit(next_hop), urlsplit(next_hop).port
    except ValueError:  # it may have a secret, too
        raise ConfigurationError("next_hop is no address of a node: write https://host:port/rm.") from None
    if parts.username is not None or parts.password is not None or parts.query:  # it may be a secret: it is not told
        raise ConfigurationError(
            "next_hop has a user name, a password or a query, and an address is told to all: write "
            "https://host:port/rm, and in [node.NAME] how that node knows this one."
        )
    is_text = isinstance(next_hop, str) and next_hop == next_hop.strip() and next_hop.isprintable()
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or parts.fragment or not is_text:
        raise ConfigurationError(f"next_hop={next_hop!r} is no address of a node: write https://host:port/rm.")
    if not isinstance(cost, int) or not 0 <= cost < 1_000_000:
        raise ConfigurationError(f"cost={cost!r}: a route costs 0 to 999999, and the cheapest is taken.")
    if strip and not pattern.partition("*")[0]:
        raise ConfigurationError(f"strip leaves out what stands before the first *, and in {pattern!r} nothing does.")
    row = {"pattern": pattern, "next_hop": next_hop, "cost": cost, "strip": int(strip), "created_at": tx.now}
    tx.execute(routing.ADD_ROUTE, row)
    tx.execute(routing.MAY_MOVE)
    told = f"{pattern} {next_hop} cost {cost}{' strip' if strip else ''}"
    tx.add_ledger("route_added", None, actor=actor, reason=told)


def drop_route(
    tx: Transaction, pattern: str, next_hop: str | None = None, *, actor: str | None = None, reason: str = ""
) -> list[str]:
    """Drop the routes of a pattern, all of them or that by one next node; answers the next nodes that they led to."""
    dropped = tx.execute(routing.DROP_ROUTE, {"pattern": pattern, "next_hop": next_hop}).fetchall()
    tx.execute(routing.MAY_MOVE)
    for (one,) in dropped:
        told = f"{pattern} {one}" + (reason and f": {reason}")
        tx.add_ledger("route_dropped", None, actor=actor, reason=told)
    return [one for (one,) in dropped]
