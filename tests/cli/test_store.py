"""`store init|migrate|info|verify`: made once, looked at without a trace, and found out when it is wrong."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.conftest import Service, Shell
from tests.support.commands import Wsrm, document
from wsrm_mq.cli.output import Exit
from wsrm_mq.sequence.elements import TerminateSequence
from wsrm_mq.store.invariants import INVARIANTS
from wsrm_mq.store.sqlite.schema import HEAD
from wsrm_mq.store.store import Store

LOOKING = [
    ("store", "info"),
    ("status",),
    ("store", "verify"),
    ("store", "migrate", "--dry-run"),
    ("sequence", "list"),
    ("sequence", "show", "urn:uuid:nobody"),
    ("sequence", "explain", "urn:uuid:nobody"),
    ("sequence", "resume", "urn:uuid:nobody", "--yes", "--reason", "r"),
    ("message", "list"),
    ("message", "show", "1"),
    ("message", "body", "1"),
]


def contents(directory: Path) -> dict[str, str]:
    return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in directory.rglob("*") if p.is_file()}


# init and migrate


def test_init_makes_a_store_that_only_its_owner_may_read(wsrm: Wsrm, somewhere: Path) -> None:
    result = wsrm("store", "init")
    assert result.exit_code == 0
    assert result.stderr == f"{somewhere}/wsrm.db: made, schema {HEAD}.\n"
    assert (somewhere / "wsrm.db").stat().st_mode & 0o777 == 0o600
    assert wsrm("store", "init").stderr == f"{somewhere}/wsrm.db: is there already, schema {HEAD}.\n"


def test_init_in_the_place_of_a_store_that_is_lost_says_what_is_lost(wsrm: Wsrm, somewhere: Path) -> None:
    path = somewhere / "wsrm.db"
    wsrm("store", "init")
    used = Store(path)
    used.open()
    used.close()
    path.unlink()
    for command in (*LOOKING, ("store", "adopt", "--reason", "r", "--yes")):
        refused = wsrm(*command)
        assert (refused.exit_code, path.exists()) == (Exit.STORE, False)
        assert "is missing or empty, and a store was in use here" in refused.stderr
    for without in (("--yes",), ("--reason", "the disk broke")):
        refused = wsrm("store", "init", *without)
        assert (refused.exit_code, path.exists()) == (Exit.REFUSED, False)
    result = wsrm("store", "init", "--yes", "--reason", "the disk broke")
    assert result.exit_code == Exit.OK
    assert "is lost: there is no file, or an empty one. A new one knows nothing of what that one has\n" in result.stderr
    assert f"{path}: made, schema {HEAD}." in result.stderr
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT event, reason FROM ledger").fetchall() == [("begun_anew", "the disk broke")]
    used.open()
    used.close()


def test_init_tells_a_program_what_it_made(wsrm: Wsrm, somewhere: Path) -> None:
    told = {"path": f"{somewhere}/wsrm.db", "schema": HEAD}
    assert document(wsrm("store", "init", "--json")) == {**told, "made": True}
    assert document(wsrm("store", "init", "--json")) == {**told, "made": False}


def test_the_store_comes_from_flag_environment_or_file(
    wsrm: Wsrm, somewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (somewhere / "wsrm-mq.toml").write_text('store = "file.db"')
    wsrm("store", "init")
    monkeypatch.setenv("WSRM_MQ_STORE", "env.db")
    wsrm("store", "init")
    wsrm("store", "init", "--store", "sqlite:///flag.db")
    assert sorted(p.name for p in somewhere.glob("*.db")) == ["env.db", "file.db", "flag.db"]


def test_migrate_says_from_where_to_where(wsrm: Wsrm, somewhere: Path) -> None:
    (somewhere / "wsrm.db").touch()
    assert document(wsrm("store", "migrate", "--dry-run", "--json"))["before"] is None
    assert wsrm("store", "info").exit_code == 5
    assert wsrm("store", "migrate").stderr.endswith(f"went from schema none to {HEAD}.\n")
    assert wsrm("store", "migrate").stderr.endswith(f"has schema {HEAD} already.\n")
    assert wsrm("store", "info").exit_code == 0


# what cannot be used


@pytest.mark.parametrize("command", LOOKING, ids=" ".join)
def test_a_missing_store_is_not_made_by_looking_for_it(wsrm: Wsrm, somewhere: Path, command: tuple[str, ...]) -> None:
    result = wsrm(*command)
    assert result.exit_code == 5
    assert result.stderr.startswith(f"wsrm-mq: {somewhere}/wsrm.db: there is no such store.")
    assert f"`wsrm-mq store init --store {somewhere}/wsrm.db`" in result.stderr
    assert contents(somewhere) == {}


@pytest.mark.parametrize("command", LOOKING, ids=" ".join)
def test_looking_leaves_no_trace(wsrm: Wsrm, path: Path, somewhere: Path, command: tuple[str, ...]) -> None:
    before = contents(somewhere)
    wsrm(*command)
    assert contents(somewhere) == before


@pytest.mark.parametrize("command", LOOKING, ids=" ".join)
def test_a_file_that_is_no_database_is_told_as_such(wsrm: Wsrm, somewhere: Path, command: tuple[str, ...]) -> None:
    (somewhere / "wsrm.db").write_bytes(b"This is a letter to my aunt.\n" * 40)
    result = wsrm(*command)
    assert result.exit_code == 5
    assert "file is not a database" in result.stderr
    assert "Traceback" not in result.output


def test_a_database_of_another_program_is_left_alone(wsrm: Wsrm, somewhere: Path) -> None:
    with sqlite3.connect(somewhere / "wsrm.db") as db:
        db.execute("CREATE TABLE aunt (name TEXT)")
    db.close()
    for command in (("store", "info"), ("store", "init"), ("store", "migrate")):
        result = wsrm(*command)
        assert result.exit_code == 5
        assert "not a wsrm_mq store" in result.stderr


@pytest.mark.scenario("Q-113")
@pytest.mark.parametrize("command", [*LOOKING, ("store", "init"), ("store", "migrate")], ids=" ".join)
def test_a_store_of_a_newer_version_is_refused_in_clear_words(wsrm: Wsrm, path: Path, command: tuple[str, ...]) -> None:
    with sqlite3.connect(path) as db:
        db.execute("UPDATE alembic_version SET version_num = '9999'")
    db.close()
    result = wsrm(*command)
    assert result.exit_code == 5
    assert "has schema 9999" in result.stderr
    assert "Install the version of wsrm_mq that wrote it" in result.stderr


def test_a_directory_that_takes_no_file_is_told_with_the_reason(wsrm: Wsrm) -> None:
    result = wsrm("store", "init", "--store", "/proc/wsrm.db")
    assert result.exit_code == 5
    assert result.stderr.startswith("wsrm-mq: /proc/wsrm.db: cannot be created: ")


def test_a_store_on_a_read_only_file_system_is_told_without_a_traceback(
    wsrm: Wsrm, path: Path, mount: Callable[..., Path]
) -> None:
    """Where it has to be written; what only looks works there."""
    point = mount("--bind", "-o", "ro", str(path.parent))
    for command in LOOKING:
        result = wsrm(*command, "--store", point / "wsrm.db")
        assert isinstance(result.exception, SystemExit | None), result.output
        assert result.exit_code in (Exit.OK, Exit.NOT_FOUND, Exit.STORE), command
    result = wsrm("store", "application", "none", "new", "--reason", "r", "--yes", "--store", point / "wsrm.db")
    assert result.exit_code == Exit.STORE
    assert result.stderr.startswith(f"wsrm-mq: {point}/wsrm.db: is on a read-only file system.")


def test_another_kind_of_database_is_refused(wsrm: Wsrm) -> None:
    result = wsrm("store", "info", "--store", "postgresql://db/wsrm")
    assert result.exit_code == 5
    assert "only SQLite stores exist" in result.stderr


def test_the_status_is_that_of_the_process_too(shell: Shell, somewhere: Path) -> None:
    done = shell("store", "info")
    assert done.returncode == 5
    assert done.stdout == b""
    assert b"Traceback" not in done.stderr


# info


def test_info_counts_what_is_there_and_who_is_there(wsrm: Wsrm, service: Service) -> None:
    done = service.sequence(1)
    service.deliver(done, 1)
    service.instance.end(TerminateSequence(done.terms.identifier))
    service.sequence(2, 3)
    gone = Service(service.path, service.clock.now)
    gone.close()
    told = document(wsrm("store", "info", "--json"))
    assert told["schema"] == HEAD
    assert told["sequences"] == {"created": 1, "ended": 1}
    assert told["messages"] == {"delivered": 1, "live": 2}
    assert told["oldest_undelivered"] == {"position": 2, "received_at": service.clock.now}
    assert [one["name"] for one in told["instances"]] == [service.presence.name]
    assert told["wal_size"] > 0
    text = wsrm("store", "info").stdout
    assert "(60 min ago)" in text
    assert service.presence.name in text


def test_info_of_a_new_store_has_nothing_to_tell(wsrm: Wsrm, path: Path) -> None:
    told = document(wsrm("store", "info", "--json"))
    assert told["messages"] == {}
    assert told["oldest_undelivered"] is None
    assert told["instances"] == []


# verify


def test_a_busy_store_is_found_right_while_it_works(wsrm: Wsrm, service: Service) -> None:
    service.deliver(service.sequence(1, 2, 4, 8), 1)
    blocked = service.sequence(1, 2)
    service.fail(blocked, 1, "no disk")
    wsrm("sequence", "skip", blocked.terms.identifier, 1, "--yes", "--reason", "r")
    service.instance.db.execute("BEGIN IMMEDIATE")
    result = wsrm("store", "verify")
    service.instance.db.execute("ROLLBACK")
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    assert f"nothing is wrong ({len(INVARIANTS)} invariants)" in result.stderr


OUTBOUND = (
    "INSERT INTO outbound_sequence (answers, identifier, queue, rm, soap, addressing, state, given, acknowledged,"
    " unacknowledged, is_final)"
)
DAMAGES = {
    "every acknowledged number has its entry, or was pruned": "DELETE FROM entry WHERE number = 2",
    "every entry's number is in the ranges": "UPDATE range SET upper = 2 WHERE lower = 1",
    "ranges are disjoint and do not touch": "UPDATE range SET upper = 4 WHERE lower = 1",
    "a sequence rules each lane that is a sequence's, and no other": "DELETE FROM sequence",
    "the cursor is not above the limit": 'UPDATE lane SET cursor = 9, "limit" = 4',
    "everything below the cursor is settled": "UPDATE lane SET cursor = 4",
    "nothing is delivered at or above the limit": (
        "UPDATE entry SET outcome = 'delivered', settled_at = 1 WHERE number = 5"
    ),
    "an open sequence in order delivers up to its first gap, unless an operator forced it": (
        'UPDATE lane SET "limit" = 7'
    ),
    "what came late is of a sequence that an operator forced": "UPDATE entry SET late = 1 WHERE number = 1",
    "what stops a sequence is there and not settled": "UPDATE lane SET blocked = 1",
    "a sequence is run by an instance that has not ended": "UPDATE instance SET ended_at = 1",
    "an entry has a number in a lane, or neither; only a loose one that is not settled has an owner, which lives": (
        "UPDATE entry SET owner = 1 WHERE number = 2"
    ),
    "what is leased has an owner, and waits for nothing": "UPDATE entry SET leased_until = 5 WHERE number = 2",
    "a declared queue counts what is to be consumed in it": "UPDATE queue SET policy = '{}', messages = 1",
    "a settled entry has one outcome, a time, and may be acknowledged": "UPDATE entry SET named = 0 WHERE number = 1",
    "a dead entry lies in a dead-letter queue, with reason and origin": (
        "UPDATE entry SET outcome = 'dead', settled_at = 1 WHERE number = 2"
    ),
    "a sequence of replays has ended, and its entries replay messages of one sequence": (
        "UPDATE lane SET kind = 'replay'"
    ),
    "what is replayed is settled": "INSERT INTO entry (queue, message, replay_of) VALUES (1, 2, 2)",
    "what a journal records is there, unless it is an express message, and of the same message": (
        "UPDATE entry SET journal_of = 9 WHERE number = 2"
    ),
    "an entry has its message, and its body until it is settled": "UPDATE message SET body = NULL WHERE id = 2",
    "a body is as long as it was": "UPDATE message SET body = x'00' WHERE id = 1",
    "a reply that has a number has one that was given in the sequence that it goes out in": (
        "INSERT INTO reply VALUES (1, '200 OK', '[]', 1, x'00', 1, 1, NULL)"
    ),
    "an outbound sequence counts those of its numbers that are not acknowledged": (
        f"{OUTBOUND} VALUES (NULL, 'urn:out', 1, '1.1', '1.1', '1.0', 'created', 1, '', 2, 0)"
    ),
    "an outbound sequence is of the source, and in the versions, of the sequence that it answers": (
        f"{OUTBOUND} VALUES (1, 'urn:out', 1, '1.0', '1.1', '1.0', 'created', 0, '', 0, 0)"
    ),
    "what leaves in an outbound sequence is about that, and has numbers that were given in it": (
        f"{OUTBOUND} VALUES (NULL, 'urn:out', 1, '1.1', '1.1', '1.0', 'created', 1, '', 1, 0);"
        "INSERT INTO channel VALUES (1, NULL, 1, 'http://there.example/', '[]', 1)"
    ),
    "the index of connections has every message up to its watermark, and none behind it": (
        "UPDATE watermark SET upto = 2 WHERE name = 'connection_message'"
    ),
    "the index of connections has each message under its own connection only": (
        "INSERT INTO connection_message VALUES ('b', 5)"
    ),
    "the watermark of connections is there, and not above the last position": (
        "DELETE FROM watermark WHERE name = 'connection_message'"
    ),
    "the index of sequences has every entry up to its watermark, and none behind it": (
        "UPDATE watermark SET upto = 2 WHERE name = 'lane_entry'"
    ),
    "the index of sequences has each entry under its own number only": "INSERT INTO lane_entry VALUES (1, 4, 5)",
    "the watermark of sequences is there, and not above the last position": (
        "UPDATE watermark SET upto = 99 WHERE name = 'lane_entry'"
    ),
    "a key is never used again": "UPDATE sqlite_sequence SET seq = 1 WHERE name = 'entry'",
    "the store says which it is, once": "DELETE FROM identity",
}


def test_there_is_a_damage_for_every_invariant() -> None:
    assert list(DAMAGES) == [invariant.name for invariant in INVARIANTS]


@pytest.mark.parametrize(("name", "damage"), DAMAGES.items(), ids=list(DAMAGES))
def test_verify_finds_what_contradicts(wsrm: Wsrm, service: Service, name: str, damage: str) -> None:
    service.deliver(service.sequence(1, 2, 3, 5, 6, connection="a"), 1)
    assert wsrm("store", "verify").exit_code == 0
    service.instance.db.execute("PRAGMA ignore_check_constraints = ON")
    service.instance.db.executescript(damage)
    result = wsrm("store", "verify", "--json")
    assert result.exit_code == 1
    assert f'"invariant": "{name}"' in result.stdout
    assert wsrm("store", "verify").stdout.startswith("broken\ttable\tkey\tdetail\n")


def test_a_reference_that_leads_nowhere_is_found(wsrm: Wsrm, service: Service) -> None:
    service.sequence(1)
    service.instance.db.execute("UPDATE entry SET origin = 77")
    result = wsrm("store", "verify")
    assert result.exit_code == 1
    assert "references lead somewhere\tentry\t1\tto queue" in result.stdout


def test_a_damaged_page_is_a_finding_not_a_traceback(wsrm: Wsrm, path: Path) -> None:
    service = Service(path, 1_700_000_000_000)
    for _ in range(5):
        service.sequence(*range(1, 20))
    service.instance.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    service.close()
    db = sqlite3.connect(path)
    (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'entry_live'").fetchone()
    (size,) = db.execute("PRAGMA page_size").fetchone()
    db.close()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(os.urandom(size))
    result = wsrm("store", "verify")
    assert result.exit_code == 1
    assert "the file is whole\t" in result.stdout


def test_store_verify_tells_twenty_findings_of_a_kind_and_no_more(wsrm: Wsrm, service: Service) -> None:
    service.sequence(*range(1, 60))
    service.instance.db.execute("UPDATE message SET body = x'00'")
    assert wsrm("store", "verify").stdout.count("a body is as long as it was") == 20
