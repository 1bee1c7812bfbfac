"""The bench of the network: one small run of each side, and what is made of them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="the client needs aiohttp: pip install 'wsrm-mq[client]'")
pytest.importorskip("uvicorn", reason="the server needs uvicorn: pip install 'wsrm-mq[serve]'")

from bench.network import QUICK, run

SMALL = QUICK._replace(seconds=0.5, waiting=300, consumers=10, wake_ups=3)


@pytest.mark.timeout(120)
def test_a_small_run_measures_leases_and_puts_with_and_without_waiting(tmp_path: Path) -> None:
    found = {(one.case, one.name): one for one in run(["lease", "put"], SMALL, tmp_path)}
    assert all(one.median > 0 for one in found.values())
    assert [case for case, name in found if name == "remote to local"] == [
        "lease 30, ack 10: one call after the other",
        "lease 30, ack 10: a subscription",
    ]
    ratio = found["put", "without waiting to put and wait"]
    assert ratio.values == [found["put", "without waiting"].median / found["put", "and wait"].median]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(120)
def test_a_small_run_measures_consumers_that_wait_over_http_and_over_stomp(tmp_path: Path) -> None:
    found = {one.name: one for one in run(["idle"], SMALL, tmp_path)}
    for side in ("a bare application", "ours, HTTP", "ours, STOMP"):
        assert found[f"{side}: memory of its process"].median > 10
        assert found[f"{side}: woken, median"].median > 0
    bounded = [name for name, one in found.items() if one.bound is not None]
    assert bounded == [
        "ours, HTTP, to a bare application: memory",
        "ours, HTTP, to a bare application: a consumer",
        "ours, HTTP: woken, median",
    ]
