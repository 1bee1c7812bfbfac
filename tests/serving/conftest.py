"""`serve`'s server in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.bounded_server import Run, Running
from wsrm_mq.serving import uvicorn_server


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Start `serve`'s server in this process: ``run(app, connections=5)``."""
    monkeypatch.setattr(uvicorn_server, "_SWEEP_TICKS", 1)
    monkeypatch.setattr(uvicorn_server, "_LOOK_TICKS", 1)
    running: list[Running] = []

    def start(*arguments: Any, **options: Any) -> Running:
        running.append(Running(*arguments, **options))
        return running[-1]

    yield start
    for one in running:
        one.stop()
