"""The queues of a store, for a program that puts and consumes: ``wsrm_mq.connect``."""

from __future__ import annotations

import os

from wsrm_mq.node.node import Node

__all__ = ["Node", "connect"]


def connect(where: str | os.PathLike[str], name: str | None = None, *, auto_create: bool = True) -> Node:
    """Open a store for a program that puts and consumes. ``where``: ``sqlite:///path``, a path, or a directory.
    ``name``: what its consumers are known by. ``auto_create``: a queue that is not there is declared by the first
    message that is put there."""
    return Node(where, name, auto_create=auto_create)
