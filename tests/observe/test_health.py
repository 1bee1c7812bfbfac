"""Health: each check fails when its thing does, and none of them waits for ever."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from werkzeug.test import Client

from tests.support.in_process import InProcess, taken, until
from tests.support.stored import a_look_is_due, write_locked
from wsrm_mq import observe
from wsrm_mq.observe import ObserveApp


@pytest.fixture
def wsrm(tmp_path: Path) -> Iterator[InProcess]:
    wsrm = InProcess(tmp_path, lambda _environ, start_response: taken(start_response))
    yield wsrm
    wsrm.middleware.close(5)


@pytest.fixture
def client(wsrm: InProcess) -> Client:
    return Client(ObserveApp(wsrm.middleware))


def failing(client: Client) -> dict[str, Any]:
    """The checks that fail, and what they say."""
    answer = client.get("/healthz")
    checks = {name: check.get("detail") for name, check in json.loads(answer.text)["checks"].items() if not check["ok"]}
    assert answer.status_code == (503 if checks else 200)
    return checks


def test_a_service_that_works_is_healthy(client: Client) -> None:
    assert failing(client) == {}


def test_a_store_whose_lock_is_held_is_not_and_is_again_when_it_is_free(
    wsrm: InProcess, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observe, "WRITE_SECONDS", 0.3)
    with write_locked(wsrm.path):
        begun = time.monotonic()
        assert set(failing(client)) == {"store"}
        assert time.monotonic() - begun < 3
        for _ in range(5):
            begun = time.monotonic()
            assert set(failing(client)) == {"store"}
        assert time.monotonic() - begun < 3
    assert until(lambda: failing(client) == {})


def test_a_store_that_was_removed_is_told_without_its_path(wsrm: InProcess, client: Client) -> None:
    wsrm.path.rename(wsrm.path.with_name("moved.db"))
    a_look_is_due()
    found = failing(client)
    assert set(found) == {"store"}
    assert str(wsrm.path.parent) not in str(found)
    wsrm.path.with_name("moved.db").rename(wsrm.path)
    wsrm.path.with_name("store.db.rescued").unlink(missing_ok=True)
    assert until(lambda: failing(client) == {})


def test_a_disk_that_was_full_is(wsrm: InProcess, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    reserve = wsrm.path.with_name("store.db.d") / "reserve"
    monkeypatch.setattr("wsrm_mq.store.sqlite.reserve._PLENTY", 2**62)
    reserve.unlink()
    assert "disk" in failing(client)


def test_a_disk_that_had_no_room_for_the_reserve_is(
    wsrm: InProcess, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert failing(client) == {}
    wsrm.path.with_name("store.db.d").joinpath("reserve").unlink()
    monkeypatch.setattr("wsrm_mq.store.sqlite.reserve._PLENTY", 2**62)
    monkeypatch.setattr(wsrm.middleware.engine.store.writer._reserve, "size", 0)
    assert set(failing(client)) == {"disk"}


def test_a_watch_that_hangs_is(wsrm: InProcess, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observe, "WATCH_SECONDS", -1.0)
    assert set(failing(client)) == {"watch"}


def test_a_writer_that_has_ended_is(wsrm: InProcess, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observe, "WRITE_SECONDS", 0.1)
    writer = wsrm.middleware.engine.store.writer
    writer.suspend()
    try:
        assert set(failing(client)) == {"writer", "store"}
    finally:
        writer.resume()
    assert until(lambda: failing(client) == {})
