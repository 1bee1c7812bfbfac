from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import wsrm_mq
from wsrm_mq.events.telling import Events
from wsrm_mq.node import Node
from wsrm_mq.store.invariants import all_findings
from wsrm_mq.store.store import Store
from wsrm_mq.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[Store]:
    store = Store(tmp_path / "store.db", clock=clock)
    store.open()
    yield store
    store.close()


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The access of the store of ``node``."""
    return tmp_path / "queues.db"


@pytest.fixture
def node(path: Path) -> Iterator[Node]:
    """A node; behind the test its store has no fault."""
    with wsrm_mq.connect(path) as one:
        yield one
        with one.store.reader() as db:
            assert list(all_findings(db)) == []
