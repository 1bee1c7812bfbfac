from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.routes.enterprise import Place, enterprise
from tests.routes.net import Net

Founded = Callable[..., dict[str, Place]]


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Net]:
    """Nodes are added to it; what is in the stores of those that are up is sound at the end."""
    one = Net(tmp_path)
    yield one
    findings = [found for node in one.nodes.values() if node.is_up for found in node.findings()]
    one.stop()
    assert findings == []


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Founded]:
    """Make an enterprise, and begin the servers of its nodes, or of those that are named."""
    pytest.importorskip("aiohttp", reason="the client needs aiohttp: pip install 'wsrm-mq[client]'")
    made: list[Place] = []

    def make(
        sites: Mapping[str, str], queues: Mapping[str, Mapping[str, str]], *begun: str, **options: Any
    ) -> dict[str, Place]:
        places, environment = enterprise(tmp_path, sites, queues, **options)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        made.extend(places.values())
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda name: places[name].begin(), begun or places))
        return places

    yield make
    for place in made:
        place.end()
