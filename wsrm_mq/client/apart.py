"""The dead letters and the journal of a queue at a server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from wsrm_mq.client.forms import Arrived, asking, payload, read
from wsrm_mq.node.apart import Record
from wsrm_mq.node.checks import check_positions
from wsrm_mq.node.message import Message
from wsrm_mq.queue.clearing import Cleared
from wsrm_mq.queue.declaring import check_text

if TYPE_CHECKING:
    from wsrm_mq.client.node import RemoteNode
    from wsrm_mq.node.consuming import Received


class RemoteDeadLetters:
    """See ``DeadLetters``."""

    def __init__(self, node: RemoteNode, queue: str) -> None:
        check_text(queue)
        self._node = node
        self._queue = queue
        self.name = read(node.ask("GET", "dead", queue), dict[str, str])["queue"]

    def peek(self, *, after: int = 0, limit: int = 50) -> list[Message]:
        """See ``Node.peek``."""
        return self._node.peek(self.name, after=after, limit=limit)

    def receive(self, max: int = 1, **options: Any) -> Received:
        """See ``Node.receive``."""
        return self._node.receive(self.name, max, **options)

    def redrive(self, positions: Sequence[int] | None = None, *, to: str | None = None, reset: bool = True) -> int:
        """See ``DeadLetters.redrive``."""
        return self._done("redrive", {"positions": positions, "to": to, "reset": reset})

    def edit_and_redrive(self, position: int, /, body: object = None, *, to: str | None = None, **options: Any) -> int:
        """See ``DeadLetters.edit_and_redrive``."""
        self._check([position])
        one = payload(b"" if body is None else body, options)
        keeps = {"to": to, "keeps_body": True if body is None else None}
        asked = asking("POST", "dead", self._queue, "messages", position, **keeps)
        said = json.dumps(one.options) if one.options else None
        answer = self._node.line.call(asked._replace(content_type=one.content_type, message=said, body=one.body))
        return read(answer, dict[str, int])["position"]

    def discard(self, positions: Sequence[int] | None = None) -> int:
        """See ``DeadLetters.discard``."""
        return self._done("discard", {"positions": positions})

    def _done(self, act: str, which: dict[str, object]) -> int:
        self._check(which["positions"])
        return read(self._node.ask("POST", "dead", self._queue, act, json=which), dict[str, int])["count"]

    def _check(self, positions: object) -> None:
        self._node.refuse_in_transaction("What is redriven or discarded")
        if positions is not None:
            check_positions(positions)


class RemoteJournal:
    """See ``Journal``."""

    def __init__(self, node: RemoteNode, queue: str | None) -> None:
        if queue is not None:
            check_text(queue)
        self._node = node
        self._where = ("journal",) if queue is None else ("journals", queue)
        self.name = read(node.ask("GET", *self._where), dict[str, str])["queue"]

    def peek(self, *, after: int = 0, limit: int = 50, filter: str | None = None) -> list[Record]:
        """See ``Journal.peek``."""
        return _records(self._node.seen(self._where, after, limit, filter))

    def receive(
        self,
        max: int = 1,
        *,
        max_bytes: int | None = None,
        wait: float = 0.0,
        lease: float | None = None,
        filter: str | None = None,
    ) -> list[Record]:
        """See ``Journal.receive``."""
        asked = asking("POST", *self._where, "leases", max=max, max_bytes=max_bytes, lease=lease, filter=filter)
        return _records(self._node.line.wait(self._node.leased(asked, wait)))

    def purge(self, lower: int = 0, upper: int | None = None) -> Cleared:
        """See ``Node.purge``."""
        return self._node.purge(self.name, lower, upper)


def _records(found: Sequence[Arrived]) -> list[Record]:
    return [Record(one.message, one.recorded) for one in found]
