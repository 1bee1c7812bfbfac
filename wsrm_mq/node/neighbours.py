"""The queues of other nodes, as a node has them: those that are offered, and those that are mirrored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from wsrm_mq.errors import ConfigurationError
from wsrm_mq.node.handling import Consumer
from wsrm_mq.node.message import Message
from wsrm_mq.node.subscription import Subscription
from wsrm_mq.queue.browsing import Stats
from wsrm_mq.queue.policies import Scope

Reach = Literal["site", "enterprise"]


class Offer(NamedTuple):
    """A queue that other nodes may see, and what it has. ``node``: the name of its node, as the one that
    lists it knows it. ``as_of``: when that said so; ``away_since``: since when it does not answer. Seconds since the
    epoch."""

    queue: str
    scope: Scope
    ready: int
    held: int
    leased: int
    dead: int
    oldest_at: float | None
    node: str
    as_of: float
    away_since: float | None = None


class Away(NamedTuple):
    """A node that does not answer, or refuses to. ``since``: when it was first seen so, seconds since the epoch."""

    since: float
    why: str


class Offers(list[Offer]):
    """The queues that nodes offer. ``away``: the nodes that did not answer: theirs are as they were last known."""

    def __init__(self, found: Iterable[Offer], away: dict[str, Away]) -> None:
        super().__init__(found)
        self.away = away


class Seen(list[Message]):
    """Messages that were looked at. ``as_of``: what is seen was so then. ``away``: why it is not of now: the queue's
    node does not answer; ``None``: it does."""

    def __init__(self, found: Iterable[Message], as_of: float, away: Away | None = None) -> None:
        super().__init__(found)
        self.as_of = as_of
        self.away = away


class Mirrored(Protocol):
    """A queue of another node. Its messages are leased and settled by that node."""

    def peek(self, *, after: int = ..., limit: int = ..., filter: str | None = ...) -> Seen: ...
    def receive(self, max: int = ..., **options: Any) -> Sequence[Message]: ...
    def subscribe(self, **options: Any) -> Subscription: ...
    def consume(self, function: Callable[[Message], object], **options: Any) -> Consumer: ...
    def awaited(self) -> Any: ...


class Neighbours(Protocol):
    """The other nodes that are configured."""

    def offers(self, reach: Reach) -> Offers: ...
    def mirror(self, queue: str, of: str) -> Mirrored: ...
    def close(self) -> None: ...


class Neighbouring:
    """The part of a node that knows of others."""

    neighbours: Neighbours | None = None

    def offers(self) -> list[Offer]:
        raise NotImplementedError

    def queues(self, scope: Reach = "site") -> Offers:
        """List the queues that this node and the others of its site, or of the whole enterprise, offer to one another.
        All are asked at once, and each has three seconds."""
        if scope not in ("site", "enterprise"):
            raise ConfigurationError(f"`scope` is {scope!r}; it is 'site' or 'enterprise'. `keys` has the queues here.")
        others = self._others().offers(scope)
        return Offers([*self.offers(), *others], others.away)

    def mirror(self, queue: str, *, of: str) -> Mirrored:
        """The queue of another node, whose name is ``of``: it is looked at and read here, its messages are leased and
        settled there, and while that node does not answer it is looked at as it was last known. Raises what that node
        refuses, and ``ServerUnavailable`` where it does not answer and nothing of the queue is known yet."""
        return self._others().mirror(queue, of)

    def _others(self) -> Neighbours:
        if self.neighbours is None:
            raise ConfigurationError(
                "No other nodes are known here: `connect(…, nodes='wsrm-mq.toml')` reads where they are."
            )
        return self.neighbours


def offer(queue: str, scope: Scope, had: Stats, here: str, now: float) -> Offer:
    held = sum(had.held.values())
    return Offer(queue, scope, had.ready, held, had.leased, had.dead, had.oldest_at, here, now)
