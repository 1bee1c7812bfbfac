"""Commands that look need no permission to write: on a read-only file system, as another user, on a copied file."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.cli.conftest import Service
from tests.conftest import Mount
from tests.support.commands import Wsrm
from tests.support.permissions import NOBODY, files, without_permission
from wsrm_mq.store.sqlite import looking

COMMANDS = (
    ("sequence", "list"),
    ("message", "list", "--json"),
    ("message", "show", "1", "--json"),
    ("message", "body", "1"),
    ("connection", "list", "--json"),
    ("store", "verify"),
)
LOOKS = (
    *COMMANDS,
    *(("status",), ("doctor",), ("store", "info"), ("audit", "list"), ("dead-letter", "list"), ("failure", "list")),
    *(("replay", "list"), ("sequence", "explain", "SEQUENCE"), ("sequence", "show", "SEQUENCE")),
    *(("message", "attempts", 1), ("message", "headers", 1), ("connection", "show", "a:1")),
)

Looks = Callable[[Path], AbstractContextManager[None]]


@pytest.fixture
def shown(wsrm: Wsrm) -> Callable[[Path], list[str]]:
    """What the commands show of a store."""

    def show(store: Path) -> list[str]:
        results = [wsrm(*command, "--store", store) for command in COMMANDS]
        assert [result.exit_code for result in results] == [0] * len(COMMANDS), [one.output for one in results]
        return [result.stdout.replace(str(store), "STORE") for result in results]

    return show


def copied(service: Service, place: Path, *suffixes: str) -> Path:
    """The store's file, and these beside it, as they are now."""
    for suffix in ("", *suffixes):
        shutil.copy(f"{service.path}{suffix}", place / f"wsrm.db{suffix}")
    return place / "wsrm.db"


@pytest.mark.parametrize("suffixes", [(), ("-wal",), ("-wal", "-shm")], ids=["file", "log", "log and index"])
def test_another_user_sees_what_the_owner_sees_and_leaves_nothing_behind(
    service: Service, shown: Callable[[Path], list[str]], others: Path, suffixes: tuple[str, ...]
) -> None:
    service.deliver(service.sequence(1, 2, 4), 1, 2)
    if not suffixes:
        service.instance.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    expected = shown(service.path)
    store = copied(service, others, *suffixes)
    with without_permission(store):
        assert shown(store) == expected
    assert files(store) == [f"wsrm.db{suffix}" for suffix in sorted(("", *suffixes))]


def test_a_read_only_file_system_can_be_looked_at(
    service: Service, wsrm: Wsrm, shown: Callable[[Path], list[str]], mount: Mount
) -> None:
    identifier = service.sequence(1, 2, 4, connection="a:1").terms.identifier
    expected = shown(service.path)
    there = mount("--bind", "-o", "ro", str(service.path.parent)) / "wsrm.db"
    assert shown(there) == expected, "while the service runs"
    for command in LOOKS:
        words = [identifier if word == "SEQUENCE" else word for word in command]
        looked = wsrm(*words, "--store", there)
        assert looked.exit_code in (0, 1), looked.output  # doctor finds something
        assert isinstance(looked.exception, SystemExit | None)
    service.sequence(1)
    assert len(shown(there)[0]) > len(expected[0]), "what was committed since is seen"


def test_after_the_service_has_stopped_too(
    service: Service, wsrm: Wsrm, shown: Callable[[Path], list[str]], mount: Mount
) -> None:
    identifier = service.sequence(1, 2, 4, connection="a:1").terms.identifier
    service.close()
    assert not service.path.with_name("wsrm.db-shm").exists()
    expected = shown(service.path)
    there = mount("--bind", "-o", "ro", str(service.path.parent)) / "wsrm.db"
    assert shown(there) == expected
    for command in LOOKS:
        words = [identifier if word == "SEQUENCE" else word for word in command]
        looked = wsrm(*words, "--store", there)
        assert looked.exit_code in (0, 1), looked.output  # doctor finds something
        assert isinstance(looked.exception, SystemExit | None)


def test_a_copy_is_said_to_be_one_and_is_gone_afterwards(
    service: Service, wsrm: Wsrm, others: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.sequence(1)
    wsrm("message", "list", "--store", service.path)
    store = copied(service, others, "-wal")
    room = others / "room"
    room.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(room))
    with without_permission(store):
        told = wsrm("message", "list", "--store", store)
        assert os.listdir(room) == []
    assert "this is what a temporary copy of it shows" in told.stderr
    assert told.exit_code == 0


def test_a_copy_for_which_there_is_no_room_is_not_made(
    service: Service, wsrm: Wsrm, others: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.sequence(1)
    wsrm("message", "list", "--store", service.path)
    store = copied(service, others, "-wal")
    usage = shutil.disk_usage(others)
    monkeypatch.setattr(looking.shutil, "disk_usage", lambda _place: usage._replace(free=100))
    with without_permission(store):
        told = wsrm("message", "list", "--store", store)
    assert told.exit_code == 5
    assert "Say with TMPDIR where there is room" in told.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_a_log_that_may_not_be_read_is_no_store(service: Service, wsrm: Wsrm, others: Path) -> None:
    service.sequence(1)
    wsrm("message", "list", "--store", service.path)
    store = copied(service, others, "-wal", "-shm")
    with without_permission(store, "-wal", "-shm"):
        told = wsrm("message", "list", "--store", store)
    assert told.exit_code == 5
    assert "may not be read by this user: wsrm.db-wal, wsrm.db-shm. Look as the user that the" in told.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
@pytest.mark.parametrize("closed", ["there/wsrm.db", "there"], ids=["the file", "its directory"])
def test_a_store_that_may_not_be_read_is_refused_in_a_line(
    service: Service, wsrm: Wsrm, others: Path, closed: str
) -> None:
    service.sequence(1)
    wsrm("message", "list", "--store", service.path)
    there = others / "there"
    there.mkdir(0o755)
    store = copied(service, there)
    (others / closed).chmod(0o600)
    os.seteuid(NOBODY)
    try:
        told = wsrm("message", "list", "--store", store)
    finally:
        os.seteuid(0)
    assert told.exit_code in (1, 5), told.output
    assert told.stderr.startswith(f"wsrm-mq: {store}")
    assert len(told.stderr.splitlines()) == 1


ACTS = (
    *(("sequence", act, "SEQUENCE") for act in ("hold", "resume", "close", "note")),
    ("sequence", "force", "SEQUENCE", "--past", 2),
    *(("sequence", "skip", "SEQUENCE", 1), ("sequence", "terminate", "SEQUENCE", "--now")),
    *(("message", act, 1) for act in ("retry", "discard")),
    *(("message", act, "--all") for act in ("restore", "confirm")),
    *(("dead-letter", act, "--all") for act in ("redrive", "discard", "confirm")),
    *(("store", "prune", "--older-than", 0), ("store", "migrate")),
    *(("store", "vacuum"), ("store", "application", "none", "orders:app")),
    *(("replay", "run", "plan.json"), ("replay", "cancel", "plan.json")),
)
"""Each fits a sequence whose number 1 has failed for good, and whose number 3 is held behind a gap."""


def told(wsrm: Wsrm, store: Path, sequence: str) -> list[str]:
    """What dry runs of all acts say."""
    said = []
    for act in ACTS:
        words = [sequence if word == "SEQUENCE" else word for word in act]
        tried = wsrm(*words, "--dry-run", "--store", store)
        assert tried.exit_code == 0, (act, tried.output)
        said.append(tried.output.replace(str(store), "STORE"))
    return said


@pytest.fixture
def stuck(service: Service) -> str:
    """The identifier of a sequence as ``ACTS`` need it; no service lives."""
    made = service.sequence(1, 3)
    service.fail(made, 1, "OSError: no space left")
    service.close()
    return made.terms.identifier


def test_an_act_is_tried_without_permission_to_write_and_on_a_read_only_copy(
    others: Path, service: Service, stuck: str, wsrm: Wsrm, mount: Mount
) -> None:
    planned = wsrm("replay", "plan", "msg:1", "-o", "plan.json", "--reason", "why", "--store", service.path)
    assert planned.exit_code == 0, planned.output
    expected = told(wsrm, service.path, stuck)
    before = service.path.read_bytes()
    store = copied(service, others)
    with without_permission(store):
        assert told(wsrm, store, stuck) == expected
    assert files(store) == ["plan.json", "wsrm.db"]
    there = mount("--bind", "-o", "ro", str(others)) / "wsrm.db"
    assert told(wsrm, there, stuck) == expected
    adopted = wsrm("store", "adopt", "--dry-run", "--store", there)
    assert (adopted.exit_code, "Open sequences that end: 1." in adopted.stderr) == (0, True), adopted.output
    assert service.path.read_bytes() == before
