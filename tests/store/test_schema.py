from __future__ import annotations

import os
import re
import signal
import sqlite3
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import wsrm_mq
from tests.support.processes import Python
from wsrm_mq.errors import SchemaMismatch, StoreCorrupt, StoreLocked, StoreUnavailable
from wsrm_mq.store.sqlite import schema
from wsrm_mq.store.sqlite.connection import connect_reader, connect_writer
from wsrm_mq.store.sqlite.presence import Presence
from wsrm_mq.store.store import Store, store_path


def described(path: Path) -> dict[tuple[str, str], Any]:
    """All that SQLite knows of the tables of a schema, but white space and quotation marks."""
    db = sqlite3.connect(path)
    kinds = ("table_xinfo", "index_list", "foreign_key_list")
    found: dict[tuple[str, str], Any] = {}
    for kind, name, sql in db.execute("SELECT type, name, sql FROM sqlite_master WHERE type <> 'view'").fetchall():
        if name == "alembic_version" or name.startswith("sqlite_"):
            continue
        pragmas = kinds if kind == "table" else ("index_xinfo",)
        details = {pragma: sorted(db.execute(f"PRAGMA {pragma}('{name}')").fetchall()) for pragma in pragmas}
        if kind == "table":
            details["index_list"] = sorted(row[1:] for row in details["index_list"])  # without the order of making
            details["table_list"] = db.execute(f"PRAGMA table_list('{name}')").fetchall()
        found[kind, name] = re.sub(r'[\s"]', "", sql or ""), details
    db.close()
    return found


def tables(path: Path) -> set[str]:
    db = sqlite3.connect(path)
    names = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    db.close()
    return names - {"sqlite_sequence"}


def set_revision(path: Path, revision: str) -> None:
    db = sqlite3.connect(path)
    db.execute("UPDATE alembic_version SET version_num = ?", (revision,))
    db.commit()
    db.close()


def first_rows(path: Path) -> dict[str, list[Any]]:
    """All rows of an empty store, but its identity."""
    db = sqlite3.connect(path)
    names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found = {name: sorted(db.execute(f"SELECT * FROM {name}").fetchall()) for name in names}
    db.close()
    [(identity, *rest)] = found["identity"]
    assert re.fullmatch("[0-9a-f]{32}", identity)
    return found | {"identity": [rest]}


def test_the_migrations_lead_to_what_a_new_store_is_made_with(
    path: Path, older_store: Callable[[str], Path], tmp_path: Path
) -> None:
    new = path.rename(tmp_path / "new.db")
    migrated = older_store("0019")
    schema.migrate(migrated)
    here, there = described(migrated), described(new)
    assert set(here) == set(there)
    for what in there:
        assert here[what][1] == there[what][1], what
        assert sorted(here[what][0]) == sorted(there[what][0]), what
    assert first_rows(migrated) == first_rows(new)


def test_ensure_is_idempotent_and_leaves_a_store_at_the_head(path: Path) -> None:
    schema.ensure(path)
    assert schema.migrate(path) == (schema.HEAD, schema.HEAD)


@pytest.mark.scenario("Q-113")
@pytest.mark.parametrize("opening", [schema.ensure, schema.migrate, lambda path: Store(path).open()])
def test_a_store_of_a_newer_version_is_refused_in_clear_words_and_left_as_it_is(path: Path, opening: Any) -> None:
    set_revision(path, "9999")
    before = path.read_bytes()
    with pytest.raises(SchemaMismatch, match=f"has schema 9999, this version knows up to {schema.HEAD}") as refused:
        opening(path)
    assert "newer" in refused.value.hint
    assert path.read_bytes() == before


def test_a_store_of_a_version_that_was_never_released_is_refused_with_what_to_do(
    older_store: Callable[[str], Path],
) -> None:
    path = older_store("0014")
    before = path.read_bytes()
    for opening in (schema.ensure, schema.migrate, lambda path: Store(path).open()):
        with pytest.raises(SchemaMismatch, match="has schema 0014, of a version that was never released") as refused:
            opening(path)
        assert "begin with a new store" in refused.value.hint
    assert path.read_bytes() == before


@pytest.mark.scenario("Q-113")
def test_a_migration_that_fails_leaves_what_was_there(older_store: Callable[[str], Path]) -> None:
    """A table in the way of one of its last statements: none of those before it may stay."""
    path = older_store("0019")
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE arrived (x)")
    db.commit()
    db.close()
    before = tables(path)
    with pytest.raises(Exception, match="arrived already exists"):
        schema.ensure(path)
    assert tables(path) == before


def killed_at(python: Python, path: Path, statement: int, hook: str) -> None:
    """Have a process bring the store to the head that is killed at its CREATE TABLE number ``statement``."""
    process = python(
        f"""
        import os, signal, sys
        from pathlib import Path
        from wsrm_mq.store.sqlite import creating, schema

        left = int(sys.argv[2])

        def kill(statement):
            global left
            if statement.strip().startswith("CREATE TABLE") and "alembic" not in statement:
                left -= 1
                if not left:
                    os.kill(os.getpid(), signal.SIGKILL)

        {hook}
        schema.ensure(Path(sys.argv[1]))
        """,
        path,
        statement,
    )
    assert process.communicate(timeout=30) == ("", "")
    assert process.returncode == -signal.SIGKILL


@pytest.mark.scenario("Q-113")
@pytest.mark.parametrize("statement", [1, 4])
def test_a_process_killed_within_a_migration_leaves_the_old_schema(
    older_store: Callable[[str], Path], python: Python, statement: int
) -> None:
    path = older_store("0019")
    before = tables(path)
    killed_at(
        *(python, path, statement),
        "from wsrm_mq.store.sqlite import migrations; "
        "made = migrations.STEPS.items(); "
        "migrations.STEPS = {to: (one for one in its if not kill(one)) for to, its in made}",
    )
    assert tables(path) == before
    schema.ensure(path)
    assert "arrived" in tables(path)


@pytest.mark.scenario("Q-113")
@pytest.mark.parametrize("statement", [1, 8])
def test_a_process_killed_as_it_makes_a_store_leaves_an_empty_file(
    tmp_path: Path, python: Python, statement: int
) -> None:
    path = tmp_path / "store.db"
    killed_at(
        *(python, path, statement),
        "made = creating.statements; "
        "creating.statements = lambda revision: (one for one in made(revision) if not kill(one))",
    )
    assert tables(path) == set()
    schema.ensure(path)
    assert "entry" in tables(path)


def test_a_store_that_a_process_of_an_older_version_uses_is_not_brought_forward_under_it(
    older_store: Callable[[str], Path],
) -> None:
    path = older_store("0019")
    presence = Presence(path)
    for opening in (schema.ensure, schema.migrate):
        with pytest.raises(SchemaMismatch, match="0019, and 1 running process of an older version") as refused:
            opening(path)
        assert "Stop the old service first" in refused.value.hint
    assert "arrived" not in tables(path)
    presence.close()
    assert schema.migrate(path) == ("0019", schema.HEAD)


def test_a_store_that_a_newer_version_brings_forward_before_this_process_can_be_seen_is_not_opened(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has looked at the schema; the upgrade has the lock before it can be seen, and takes its time."""
    upgrade = connect_writer(path)

    def upgraded() -> None:
        upgrade.execute("UPDATE alembic_version SET version_num = '9999'")
        upgrade.execute("COMMIT")
        upgrade.close()

    def overtaken(store: Path) -> Presence:
        upgrade.execute("BEGIN IMMEDIATE")
        threading.Timer(0.3, upgraded).start()
        return Presence(store)

    monkeypatch.setattr("wsrm_mq.store.sqlite.presence.Presence", overtaken)
    with pytest.raises(SchemaMismatch, match="has schema 9999"):
        Store(path).open()
    db = sqlite3.connect(path)
    assert db.execute("SELECT count(*) FROM instance").fetchone() == (0,)
    db.close()


def test_processes_that_start_at_once_bring_an_older_store_forward_once_and_all_open_it(
    older_store: Callable[[str], Path], python: Python
) -> None:
    path = older_store("0019")
    opening = """
        import sys
        from pathlib import Path
        from wsrm_mq.store.store import Store
        store = Store(Path(sys.argv[1]))
        store.open()
        print("open", flush=True)
        sys.stdin.read()
    """
    processes = [python(opening, path) for _ in range(4)]
    assert all(process.communicate(timeout=30)[0].startswith("open") for process in processes)


def test_processes_that_create_the_same_store_at_once_all_open_it(tmp_path: Path, python: Python) -> None:
    path = tmp_path / "store.db"
    code = """
        import sys
        from pathlib import Path
        from wsrm_mq.store.store import Store
        import wsrm_mq.store.sqlite.creating
        print("ready", flush=True)
        sys.stdin.readline()
        store = Store(Path(sys.argv[1]))
        store.open()
        store.call(lambda tx: tx.ledger("here"))
        store.close()
        """
    processes = [python(code, path) for _ in range(3)]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    results = [(process.communicate(timeout=60)[1], process.returncode) for process in processes]
    assert results == [("", 0)] * 3
    db = sqlite3.connect(path)
    assert db.execute("SELECT count(*) FROM ledger WHERE event = 'here'").fetchone() == (3,)
    db.close()


def test_only_its_owner_may_read_a_store_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    before = os.umask(0o002)
    try:
        store = Store(path)
        store.open()
        store.call(lambda tx: tx.ledger("something"))
        files = [path, *path.parent.glob("store.db-*"), *path.parent.glob("store.db.d/*.lock")]
        modes = {file.name.split("/")[-1]: stat.S_IMODE(file.stat().st_mode) for file in files}
        directory = stat.S_IMODE((tmp_path / "store.db.d").stat().st_mode)
        store.close()
    finally:
        os.umask(before)
    assert {"store.db", "store.db-wal", "store.db-shm"} <= set(modes)
    assert set(modes.values()) == {0o600}
    assert directory == 0o700


def test_a_missing_store_is_not_made_by_looking_at_it(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="there is no such store") as refused:
        connect_writer(tmp_path / "none.db")
    assert "init" in refused.value.hint
    assert not (tmp_path / "none.db").exists()


def test_a_store_in_a_missing_directory_is_refused_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"missing/store\.db: cannot be created: No such file"):
        Store(tmp_path / "missing" / "store.db").open()


@pytest.mark.parametrize("content", [b"\x8f\x1c" * 4096, b"not a database", b"SQLite format 3"], ids=str)
def test_a_file_that_is_encrypted_or_no_database_is_locked_and_nothing_is_touched(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(content)
    path.chmod(0o644)
    before = path.stat()
    for open_it in (lambda: Store(path).open(), lambda: wsrm_mq.connect(path), lambda: connect_reader(path)):
        with pytest.raises(StoreLocked, match=r"store\.db: file is not a database\. An encrypted store is opened once"):
            open_it()
    after = path.stat()
    assert path.read_bytes() == content
    assert (after.st_mode, after.st_mtime_ns, after.st_ino) == (before.st_mode, before.st_mtime_ns, before.st_ino)
    assert [one.name for one in tmp_path.iterdir()] == ["store.db"]


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE orders (id)")
    db.close()
    path.chmod(0o644)
    before = path.stat()
    with pytest.raises(StoreCorrupt, match="not a wsrm_mq store") as refused:
        Store(path).open()
    assert "another file" in refused.value.hint
    assert tables(path) == {"orders"}
    after = path.stat()
    assert (after.st_mode, after.st_mtime_ns, after.st_ctime_ns) == (
        before.st_mode,
        before.st_mtime_ns,
        before.st_ctime_ns,
    )
    assert [one.name for one in tmp_path.iterdir()] == ["store.db"]


def test_a_damaged_store_says_corrupt_and_what_to_do(path: Path) -> None:
    db = sqlite3.connect(path)
    (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'ledger'").fetchone()
    db.close()
    with path.open("r+b") as file:
        file.seek((root - 1) * 4096)
        file.write(b"\xff" * 4096)
    store = Store(path)
    store.open()
    try:
        with pytest.raises(StoreCorrupt, match="malformed") as refused:
            store.call(lambda tx: tx.ledger("something"))
        assert "backup" in refused.value.hint
        with store.reader() as db, pytest.raises(sqlite3.DatabaseError):
            db.execute("SELECT * FROM ledger").fetchall()
    finally:
        store.close()


@pytest.mark.parametrize("where", ["{}/store.db", "sqlite:///{}/store.db", "{}"])
def test_a_path_an_address_and_a_directory_name_the_same_file(tmp_path: Path, where: str) -> None:
    assert store_path(where.format(tmp_path)) == tmp_path / "store.db"


def test_a_relative_address_is_below_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert store_path("sqlite:///q/store.db") == tmp_path / "q" / "store.db"


def test_another_kind_of_database_is_refused() -> None:
    with pytest.raises(StoreUnavailable, match="only SQLite stores exist"):
        store_path("postgresql://localhost/q")
