"""A node's API for programs that put: it is the same wherever the node's messages go. Times are in seconds."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any, Generic, Literal, TypeVar, overload

from wsrm_mq.errors import ConfigurationError
from wsrm_mq.node.checks import Gone, check_bodies, check_waits
from wsrm_mq.node.transactions import Begun, Transacting
from wsrm_mq.queue.declaring import check_text
from wsrm_mq.queue.policies import Durability

B = TypeVar("B", bound=Begun)
P = TypeVar("P")


class Putting(Transacting[B], Generic[B, P]):
    """The part of a node that puts messages into queues; ``P`` is a message that is to be put."""

    @abstractmethod
    def _made(self, body: object, options: dict[str, Any], asked: Durability | None) -> P:
        """Make a message. Raises ``ConfigurationError`` for what is no option or no value of one."""

    @abstractmethod
    def _put(
        self, queue: str, many: Sequence[P], timeout: float | None, asked: Durability | None, gone: Gone
    ) -> list[int]:
        """Put messages together, or into the transaction of this thread; answers their positions."""

    @abstractmethod
    def _put_soon(self, queue: str, one: P, asked: Durability | None) -> Future[int]:
        """Put a message that is not waited for; answers its confirmation."""

    @overload
    def put(
        self,
        queue: str,
        body: object,
        *,
        wait: Literal[True] = True,
        timeout: float | None = None,
        durability: Durability | None = None,
        gone: Gone = "raise",
        **options: Any,
    ) -> int: ...
    @overload
    def put(
        self, queue: str, body: object, *, wait: Literal[False], durability: Durability | None = None, **options: Any
    ) -> Future[int]: ...
    def put(
        self,
        queue: str,
        body: object,
        *,
        wait: bool = True,
        timeout: float | None = None,
        durability: Durability | None = None,
        gone: Gone = "raise",
        **options: Any,
    ) -> int | Future[int]:
        """Put a message; answers its position, once it is as safe as its ``durability`` says, ``None``: that of its
        queue. ``options`` are ``type``, ``message_id``, ``properties``, ``content_type``, ``priority``, ``ttl``,
        ``deliver_at``, ``delay``, ``group``, ``receive_by``, ``journal``, ``report_to`` and ``report``. Within a
        transaction it answers 0: the transaction has the position when it is committed. Where the queue has no room and
        its ``overflow`` is ``block``, it waits up to ``timeout`` seconds; ``None``: for ever. Raises ``QuotaExceeded``.
        ``gone``: where the process is gone that kept the express messages of the queue, ``KeeperGone`` is raised, or
        the put waits as long until one declares it again. Without ``wait`` it answers a confirmation at once, whose
        ``result()`` is the position, or raises: several of them share a commit. One that was refused and is never asked
        is told as ``put.refused``."""
        check_text(queue)
        check_waits(gone, timeout)
        one = self._made(body, options, durability)
        if wait:
            return self._put(queue, [one], timeout, durability, gone)[0]
        if gone == "wait":
            raise ConfigurationError('`gone="wait"` has a put wait for a process: leave out `wait=False`, or `gone`.')
        if self.in_transaction:
            raise ConfigurationError("`wait=False` is for a put by itself: a transaction is waited for at its end.")
        return self._put_soon(queue, one, durability)

    def put_many(
        self,
        queue: str,
        bodies: Iterable[object],
        *,
        timeout: float | None = None,
        durability: Durability | None = None,
        gone: Gone = "raise",
        **options: Any,
    ) -> list[int]:
        """Put messages together, all or none of them; answers their positions. See ``put``. At a server each thousand
        is a commit of its own."""
        check_text(queue)
        check_bodies(bodies)
        check_waits(gone, timeout)
        return self._put(queue, [self._made(body, options, durability) for body in bodies], timeout, durability, gone)
