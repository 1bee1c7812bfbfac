"""The queues of a store, for a program that puts and consumes: ``wsrm_mq.connect``."""

from __future__ import annotations

import os

from wsrm_mq.node.node import Node
from wsrm_mq.queue.quota import NodeQuota

__all__ = ["Node", "connect"]


def connect(
    where: str | os.PathLike[str],
    name: str | None = None,
    *,
    auto_create: bool = True,
    max_messages: int | None = None,
    max_bytes: int | None = None,
) -> Node:
    """Open a store for a program that puts and consumes. ``where``: ``sqlite:///path``, a path, or a directory.
    ``name``: what its consumers are known by. ``auto_create``: a queue that is not there is declared by the first
    message that is put there. ``max_messages``, ``max_bytes``: what would make more of them unsettled in all queues
    together is refused to this program as ``QuotaExceeded``."""
    return Node(where, name, auto_create=auto_create, quota=NodeQuota(max_messages, max_bytes))
