"""Acts of clients: a message is put, or one that was leased is settled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec

from wsrm_mq.errors import ConfigurationError
from wsrm_mq.node import Node
from wsrm_mq.node.message import Action, Message, verb_of
from wsrm_mq.queue import settling
from wsrm_mq.queue.expiring import holder_left
from wsrm_mq.queue.policies import ms
from wsrm_mq.queue.settling import Lease, Settlement
from wsrm_mq.server.rights import Principal
from wsrm_mq.store.transaction import Transaction as Unit

ENDS: Final[tuple[Action, ...]] = ("ack", "release", "nack", "reject", "expire")
"""Actions by which a consumer is done with a message."""


class Settle(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message is settled. ``lease``: the number that came with it. ``reason``: the error of ``nack`` and
    ``reject``. ``seconds``: the lease of ``renew``, ``None``: as long as before."""

    position: int
    lease: int
    action: Action
    reason: str = ""
    seconds: float | None = None


class PutOne(NamedTuple):
    """A message that is put into a queue, or published to a topic. ``options``: those of ``Node.put``, or of
    ``Node.publish``."""

    queue: str | None
    topic: str | None
    body: bytes
    options: Mapping[str, Any]

    def collect(self, node: Node) -> None:
        """Put or publish it in the transaction of this thread."""
        if self.topic is not None:
            node.publish(self.topic, self.body, **self.options)
        else:
            node.put(self.queue or "", self.body, **self.options)


def require_put(principal: Principal, *puts: PutOne) -> None:
    """See that a principal may put messages where they go, and their reports too. Raises ``UnknownQueue`` and
    ``RightMissing``."""
    for one in puts:
        if one.topic is not None:
            principal.require_topics("put", one.topic)
        else:
            principal.require("put", one.queue or "")
        report_to = one.options.get("report_to")
        if report_to is not None:
            principal.require("put", report_to)


def settled(acts: Sequence[Settle], tx: Unit) -> list[Settlement]:
    """The verb that settles what one store has, in the order given."""
    answers: list[Settlement] = []
    for (action, reason, seconds), group in groupby(acts, attrgetter("action", "reason", "seconds")):
        leases = [Lease(act.position, act.lease) for act in group]
        verb = hand_back if action == "hand_back" else verb_of(action, reason, None if seconds is None else ms(seconds))
        answers += verb(tx, leases)
    return answers


def hand_back(tx: Unit, leases: Sequence[Lease]) -> list[Settlement]:
    """Leases go back. A message that is delivered at most once does not come again, and that is on record."""
    holder_left(tx, leases, "its consumer has not got it, or not begun it")
    return settling.hand_back(tx, leases)


def collect(act: Settle, message: Message) -> None:
    """Settle a message in the transaction of this thread."""
    if act.action not in ENDS:
        raise ConfigurationError(f"`action` is {act.action!r}; in a transaction it is one of {', '.join(ENDS)}.")
    reasons = (act.reason,) if act.action in ("nack", "reject") else ()
    getattr(message, act.action)(*reasons)
