"""Stores in a directory of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from wsrm_mq.store.sqlite import schema
from wsrm_mq.store.store import Store
from wsrm_mq.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An empty store's file, which no process has open."""
    path = tmp_path / "store.db"
    schema.ensure(path)
    return path


@pytest.fixture
def store(path: Path, clock: ManualClock) -> Iterator[Store]:
    store = Store(path, clock=clock)
    store.open()
    yield store
    store.close()
