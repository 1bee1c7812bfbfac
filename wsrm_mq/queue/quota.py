"""The room that a queue has for messages, and a node for those of all its queues."""

from __future__ import annotations

from typing import NamedTuple

from wsrm_mq.errors import ConfigurationError, QuotaExceeded
from wsrm_mq.queue.declaring import Declared
from wsrm_mq.store.transaction import Transaction


class NodeQuota(NamedTuple):
    """The most messages, and bytes of their bodies, that may be unsettled in all queues together where a node puts
    something; ``None``: no bound. Journals do not count, nor does what topics retain."""

    max_messages: int | None = None
    max_bytes: int | None = None

    def check(self) -> None:
        """Check the bounds. Raises ``ConfigurationError``."""
        for name, value in self._asdict().items():
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ConfigurationError(f"`{name}` of a node is {value!r}; it is at least 1, or None for no bound.")

    def keep(self, tx: Transaction, *, blocks: bool) -> None:
        """Raises ``QuotaExceeded`` where there is more by what this transaction has put: then it is not put.
        ``blocks``: producers of its queue wait for room."""
        if self == NO_QUOTA:
            return
        messages, size = tx.unsettled_in_all()
        for name, most, found in (("messages", self.max_messages, messages), ("bytes", self.max_bytes, size)):
            if most is not None and found > most:
                raise QuotaExceeded(
                    f"The queues of the node would have {found} {name}, and its `max_{name}` is {most}. Have them "
                    "consumed, or open the node with a larger one.",
                    blocks=blocks,
                )


NO_QUOTA = NodeQuota()


def lack_of_room(tx: Transaction, queue: Declared, size: int) -> str | None:
    """The sentence that says why a queue has no room for a message of ``size`` bytes; ``None``: it has."""
    policy = queue.policy
    if policy.max_messages is None and policy.max_bytes is None:
        return None
    messages, bytes_ = tx.unsettled_in(queue.key)
    if policy.max_messages is not None and messages >= policy.max_messages:
        return f"{queue.name} has {messages} messages, and its `max_messages` is {policy.max_messages}."
    if policy.max_bytes is not None and bytes_ + size > policy.max_bytes:
        return f"{queue.name} has {bytes_} bytes, and its `max_bytes` is {policy.max_bytes}."
    return None
