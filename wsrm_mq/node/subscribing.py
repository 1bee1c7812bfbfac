"""A node's API for programs that subscribe: it is the same wherever the node's messages are."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from inspect import iscoroutinefunction
from typing import Any, TypeVar

from wsrm_mq.errors import ConfigurationError
from wsrm_mq.node.checks import check_number, check_who, names_of
from wsrm_mq.node.handling import Consumer
from wsrm_mq.node.message import Message, Settling
from wsrm_mq.node.payload import LATEST
from wsrm_mq.node.subscription import Acknowledging, Subscription
from wsrm_mq.queue.policies import ms
from wsrm_mq.queue.subscribing import Terms

F = TypeVar("F", bound=Callable[..., object])


class Subscribing(Settling):
    """The part of a node that begins subscriptions."""

    name: str | None

    @abstractmethod
    def begun(self, names: Sequence[str], terms: Terms, acknowledging: Acknowledging) -> Subscription:
        """Begin a subscription to queues."""

    @abstractmethod
    def subscribe_durable(self, topic: str, name: str, *, client: str | None = None, filter: str | None = None) -> str:
        """Begin a subscription to topics without consuming it; answers the name of its queue. See ``subscribe``."""

    def subscribe(
        self,
        queue: str | Sequence[str] = (),
        *,
        topic: str | None = None,
        client: str | None = None,
        name: str | None = None,
        max_backlog: int = 1,
        filter: str | None = None,
        lease: float | None = None,
        ack_batch: int | None = None,
        ack_timeout: float = 1.0,
        is_parallel: bool = False,
    ) -> Subscription:
        """Begin to consume a queue, or several with a fair part of each. ``client``: the consumer's name, ``None``: the
        node's. ``max_backlog``: so many messages it may have that are not acknowledged; what the queue allows is
        granted. ``lease``: seconds, ``None``: as the queue says. Acknowledgements are sent ``ack_batch`` together,
        ``None``: a third of the backlog, or when the oldest is ``ack_timeout`` seconds old. ``is_parallel``: several
        messages are handled at a time, those of one ordered group one after the other. Raises ``QueueBusy`` where
        another consumer alone reads a queue.

        ``topic``, instead of a queue: consume what is published to topics of this pattern and fits ``filter``. The
        subscription ``name`` of the client collects that in a queue of its own from now on, also while no program
        consumes it, until ``unsubscribe``."""
        check_who("client", client)
        if topic is not None:
            if queue or name is None:
                raise ConfigurationError("A subscription to a `topic` has a `name`, and no `queue` beside it.")
            queue, filter = self.subscribe_durable(topic, name, client=client, filter=filter), None
        if not queue:
            raise ConfigurationError("A subscription is to a `queue`, to several, or to a `topic`: give one.")
        check_number("max_backlog", max_backlog, 1)
        if ack_batch is not None:
            check_number("ack_batch", ack_batch, 1)
        if not isinstance(ack_timeout, int | float) or not 0 < ack_timeout <= LATEST:
            raise ConfigurationError(f"`ack_timeout` is {ack_timeout!r}; it is more than 0 seconds.")
        terms = Terms(client or self.name or "", name, max_backlog, lease_ms(lease), filter)
        names = names_of(queue)
        acknowledging = Acknowledging(ack_batch, ms(ack_timeout), is_parallel)
        return self.begun(names, terms, acknowledging)

    def consume(
        self,
        queue: str | Sequence[str] = (),
        function: Callable[[Message], object] | None = None,
        *,
        threads: int = 1,
        max_backlog: int | None = None,
        **options: Any,
    ) -> Consumer:
        """Have ``function`` called with each message of a queue, or of a ``topic``, by ``threads`` threads: it is
        acknowledged when that returns, and has failed when it raises. ``max_backlog``: one message a thread, if none is
        given. The other ``options`` are those of ``subscribe``."""
        check_number("threads", threads, 1)
        called = callable_of(function)
        if iscoroutinefunction(called):
            raise ConfigurationError(
                f"{called!r} is awaited, which no thread does: use `wsrm_mq.connect_async`, or a plain function."
            )
        backlog = threads if max_backlog is None else max_backlog
        subscription = self.subscribe(queue, max_backlog=backlog, is_parallel=True, **options)
        return Consumer(subscription, called, threads)


def callable_of(function: F | None) -> F:
    """The function of a consumer. Raises ``ConfigurationError`` for what cannot be called."""
    if not callable(function):
        raise ConfigurationError(
            f"`function` is {function!r}; it is called with each message: `node.consume('orders', function)`, or "
            "`node.consume(topic='db/#', name='mine', function=function)`."
        )
    return function


def lease_ms(lease: float | None) -> int | None:
    """A lease in ms; ``None``: as the queue says. Raises ``ConfigurationError``."""
    if lease is None:
        return None
    if not isinstance(lease, int | float) or not 0 < lease <= LATEST:
        raise ConfigurationError(f"`lease` is {lease!r}; it is more than 0 seconds, or None for what the queue says.")
    return ms(lease)
