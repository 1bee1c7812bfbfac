"""A store with instances on it: what stories of the queue are told with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.queue.build import Instance, Node


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "store.db")
    yield node
    node.close()


@pytest.fixture
def one(node: Node) -> Instance:
    """The instance that most stories need only."""
    return node.start()
