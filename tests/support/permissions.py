"""Stores that another user looks at, who may write nothing beside them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NOBODY = 65_534


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory that any user may look into, and is in."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o755)
        with monkeypatch.context() as moved:
            moved.chdir(place)
            yield place
        place.chmod(0o755)


@contextmanager
def without_permission(store: Path, *shut: str) -> Iterator[None]:
    """As a user who may read the store, but its files with the suffixes ``shut``, and write nothing beside it. What has
    to be imported was."""
    for file in store.parent.iterdir():
        file.chmod(0o777 if file.is_dir() else 0 if file.name.endswith(shut) else 0o444)
    if os.geteuid() == 0:
        os.seteuid(NOBODY)
        try:
            yield
        finally:
            os.seteuid(0)
    else:
        store.parent.chmod(0o555)
        yield


def files(store: Path) -> list[str]:
    return sorted(file.name for file in store.parent.iterdir())
