"""The journal of a queue, as a program has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from wsrm_mq.node.message import Message
from wsrm_mq.queue import declaring
from wsrm_mq.queue.clearing import Cleared
from wsrm_mq.queue.journaling import Recorded, recorded

if TYPE_CHECKING:
    from wsrm_mq.node.node import Place


class Record(NamedTuple):
    """An entry of a journal. ``message`` is the message as the journal has it, to be settled there where it was
    received; ``of`` the entry that is recorded, with the outcome as it is now."""

    message: Message
    of: Recorded


class Journal:
    """The journal of a queue, or of the node. It lies in a queue of its own, ``name``, which is received from,
    filtered, purged and looked into as any other; its filters know ``outcome`` and ``outcome_reason`` of what it
    records."""

    def __init__(self, node: Place, queue: str | None) -> None:
        self._node = node
        if queue is not None:
            declaring.check_text(queue)
        self.name = declaring.NODE_JOURNAL if queue is None else f"{queue}#journal"
        if queue is None:
            node.call(lambda tx: declaring.journal_named(tx, self.name, None))
        with node.reader() as db:
            declaring.read(db, self.name)

    def peek(self, *, after: int = 0, limit: int = 50, filter: str | None = None) -> list[Record]:
        """See ``Node.peek``."""
        return self._records(self._node.peek(self.name, after=after, limit=limit, filter=filter))

    def receive(self, max: int = 1, **options: Any) -> list[Record]:
        """See ``Node.receive``. A message whose outcome is not known yet is received too: the filter ``outcome is not
        null`` leaves it out."""
        return self._records(self._node.receive(self.name, max, **options))

    def purge(self, lower: int = 0, upper: int | None = None) -> Cleared:
        """See ``Node.purge``."""
        return self._node.purge(self.name, lower, upper)

    def _records(self, messages: Sequence[Message]) -> list[Record]:
        with self._node.reader() as db:
            found = recorded(db, [one.position for one in messages])
        return [Record(one, found[one.position]) for one in messages]
