"""Whatever is wrong with a store, a command says it in a line and a status; a traceback is shown with ``--debug``."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import click
import pytest

from tests.cli.conftest import Service
from tests.conftest import Mount
from tests.support.commands import Wsrm
from tests.support.disk import MIB, Disk
from wsrm_mq.cli import COMMANDS
from wsrm_mq.cli.output import Exit
from wsrm_mq.store import driver
from wsrm_mq.store.sqlite import connection

PAGE = 4096
LOOKS = (
    *(("status",), ("check",), ("doctor",), ("sequence", "list"), ("sequence", "explain", "SEQUENCE")),
    *(("message", "list"), ("message", "show", "1"), ("failure", "list"), ("dead-letter", "list"), ("audit", "list")),
    *(("replay", "list"), ("connection", "list"), ("store", "info"), ("store", "verify")),
)
ACTS = (
    ("sequence", "resume", "SEQUENCE"),
    ("sequence", "terminate", "SEQUENCE", "--now"),
    ("message", "discard", "1"),
    ("store", "prune", "--older-than", "0"),
)
SURE = ("--reason", "why", "--yes")


@pytest.fixture
def stuck(service: Service) -> str:
    """A sequence that is blocked, in a store of one file."""
    made = service.sequence(1, 2, 4)
    service.deliver(made, 1)
    service.fail(made, 2, "OSError: no space left")
    service.instance.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return made.terms.identifier


def ends(wsrm: Wsrm, command: tuple[str, ...], sequence: str) -> tuple[int, str]:
    """A command's status and what it says; no traceback."""
    done = wsrm(*(sequence if word == "SEQUENCE" else word for word in command))
    assert isinstance(done.exception, SystemExit | None), (command, done.exception)
    assert "Traceback" not in done.output
    return done.exit_code, done.stderr


def zeroed(data: bytes, page: int) -> bytes:
    return data[: page * PAGE] + bytes(PAGE) + data[(page + 1) * PAGE :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "a table that is gone": lambda data: data.replace(b"CREATE VIEW", b"CREATE VXEW"),
    "a schema that is no UTF-8": lambda data: data.replace(b"sequence_id", b"sequence\x91id"),
    "half of it": lambda data: data[: len(data) // 2],
    **{f"page {page} is zero": partial(zeroed, page=page) for page in (1, 7, 25)},
}


@pytest.mark.parametrize("damage", DAMAGE, ids=str)
def test_a_damaged_store_is_told_in_a_line(service: Service, stuck: str, wsrm: Wsrm, damage: str) -> None:
    service.close()
    whole = service.path.read_bytes()
    for command in (*LOOKS, *((*act, *SURE) for act in ACTS)):
        service.path.write_bytes(DAMAGE[damage](whole))
        for suffix in ("-wal", "-shm"):
            Path(f"{service.path}{suffix}").unlink(missing_ok=True)
        status, said = ends(wsrm, command, stuck)
        assert status in tuple(Exit), command
        assert "unexpected" not in said


def test_a_locked_store_is_looked_at_and_an_act_says_what_it_met(
    service: Service, stuck: str, wsrm: Wsrm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wsrm_mq.cli.status.LOCK_SECONDS", 0.05)
    for module in (connection, driver):
        monkeypatch.setattr(module, "BUSY_TIMEOUT_MS", 50)
    with closing(sqlite3.connect(service.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for command in LOOKS:
            assert ends(wsrm, command, stuck)[0] in (Exit.OK, Exit.FAILED, 2), command
        for act in ACTS[:3]:
            status, said = ends(wsrm, (*act, *SURE), stuck)
            assert (status, "lock" in said, said.count("\n")) == (Exit.STORE, True, 1), said


def test_a_full_disk_is_told_in_a_line_and_nothing_is_changed(
    stuck: str, service: Service, wsrm: Wsrm, mount: Mount
) -> None:
    there = Disk(mount("-t", "tmpfs", "-o", f"size={4 * MIB}", "tmpfs"))
    store = there.point / "wsrm.db"
    store.write_bytes(service.path.read_bytes())
    assert wsrm("store", "adopt", "--current", *SURE, "--store", store).exit_code == Exit.OK
    there.fill()
    for command in (*LOOKS, *((*act, *SURE) for act in ACTS)):
        status, said = ends(wsrm, (*command, "--store", str(store)), stuck)
        assert status in tuple(Exit), command
        assert "unexpected" not in said
    there.make_room()
    assert "blocked" in wsrm("sequence", "list", "--store", store).stdout


@click.command()
def odd() -> None:
    """Has a mistake."""
    raise ValueError("first\nsecond")


def test_a_mistake_of_ours_is_a_line_and_with_debug_a_traceback(wsrm: Wsrm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "odd", (__name__, "Has a mistake."))
    done = wsrm("odd")
    assert done.exit_code == Exit.FAILED
    assert done.stderr.startswith(f"wsrm-mq: unexpected: ValueError: first ({__file__}, line ")
    assert (done.stderr.count("\n"), done.stderr.count("--debug")) == (1, 1)
    told = wsrm("--debug", "odd")
    assert "Traceback (most recent call last)" in told.stderr
    assert told.exit_code == Exit.FAILED


def test_what_sqlite_says_that_no_rule_knows_is_the_stores_fault(service: Service, wsrm: Wsrm) -> None:
    service.close()
    with closing(sqlite3.connect(service.path)) as db:
        db.execute("DROP VIEW messages")
        db.commit()
    done = wsrm("message", "list")
    assert (done.exit_code, done.stderr.count("\n")) == (Exit.STORE, 1)
    assert done.stderr.startswith("wsrm-mq: the store: no such table: messages. ")


@pytest.mark.parametrize(
    "words",
    [
        ("sequence", "list", "queue:\udcff"),
        ("sequence", "note", "SEQUENCE", "--reason", "\udcff", "--yes"),
        ("audit", "list", "--actor", "\udcff"),
    ],
    ids=str,
)
def test_bytes_that_are_not_utf_8_are_told_in_a_line(stuck: str, wsrm: Wsrm, words: tuple[str, ...]) -> None:
    """What Python makes of the byte FF in an argument."""
    status, said = ends(wsrm, words, stuck)
    assert (status, said.count("\n")) == (Exit.USAGE, 1)
    assert said.endswith("has bytes that are not UTF-8; write it in UTF-8.\n")


def test_an_option_without_its_value_is_named(wsrm: Wsrm) -> None:
    assert "'--tail' requires an argument" in wsrm("message", "list", "--tail").stderr
