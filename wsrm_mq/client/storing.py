"""A remote node with a store of its own: what it puts waits in an outbox there, and survives a server that is down and
the death of this process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Final

import msgspec

from wsrm_mq.client.forms import Payload, Problem, asking, error_of, part, payload, read, several
from wsrm_mq.client.line import Line
from wsrm_mq.client.node import RemoteNode
from wsrm_mq.node.checks import Gone
from wsrm_mq.node.outbox import Leaving, Outbox, Sent
from wsrm_mq.queue.policies import Durability
from wsrm_mq.queue.topics import Published

_ELAPSE: Final = ("ttl", "delay")
"""Options that count from the put on, wherever the message is: seconds."""


class _Taken(msgspec.Struct):
    """The server's answer about a lane."""

    last: int
    problem: Problem | None = None


class LaneWire:
    """Messages of an outbox leave over the line to a queue server."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def last(self, lane: str) -> int:
        return read(self._line.wait(self._line.ask(asking("GET", "lanes", lane), patience=0)), _Taken).last

    def send(self, lane: str, after: int, messages: Sequence[Leaving]) -> Sent:
        asked = asking("POST", "lanes", lane, "messages", after=after)._replace(may_repeat=True)
        those = (part(Payload(one.body, one.content_type, _remaining(one)), number=one.number) for one in messages)
        taken = read(self._line.wait(self._line.ask(several(asked, those), patience=0)), _Taken)
        return Sent(taken.last, None if taken.problem is None else error_of(taken.problem))


def _remaining(one: Leaving) -> dict[str, Any]:
    elapsed: dict[str, Any] = {name: max(one.header[name] - one.waited, 0.0) for name in _ELAPSE if name in one.header}
    return {**one.header, **elapsed}


class StoringNode(RemoteNode):
    """See ``wsrm_mq.connect``. ``put``, ``put_many`` and ``publish`` answer when the message is in the outbox, with its
    position there; what a transaction has is done at the server by its commit, as all else is."""

    def __init__(
        self, where: str, name: str | None = None, *, token: str | None = None, store: str | os.PathLike[str]
    ) -> None:
        super().__init__(where, name, token=token)
        self.outbox = Outbox(store, str(self.line.where), LaneWire(self.line), self.telling)

    def close(self) -> None:
        """Leave the server. What has not been sent stays in the outbox: ``outbox.flush()`` waits for it."""
        if self.line.is_open:
            self.outbox.close()
        super().close()

    def publish(self, topic: str, body: object, *, mandatory: bool = False, **options: Any) -> Published:
        """See ``Node.publish``. It answers neither position nor queues, as no server has the message yet, unless one
        has to take it (``mandatory``), which is asked there."""
        if mandatory or self.in_transaction:
            return super().publish(topic, body, mandatory=mandatory, **options)
        one = payload(body, options)
        self.outbox.put(*_kept(one, topic=topic)).result()
        return Published(None, ())

    def _put_soon(self, queue: str, one: Payload, asked: Durability | None = None) -> Future[int]:
        return self.outbox.put(*_kept(one, queue=queue))

    def _put_all(self, queue: str, ones: Sequence[Payload], timeout: float | None, gone: Gone) -> list[int]:
        return self.outbox.put_many([_kept(one, queue=queue) for one in ones])


def _kept(one: Payload, **where: object) -> tuple[bytes, str | None, dict[str, Any]]:
    """A message as the outbox takes it."""
    return one.body, one.content_type, {**one.options, **where}
