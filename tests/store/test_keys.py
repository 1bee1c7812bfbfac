"""A key is given once, in every table, whatever was deleted meanwhile: what remembers a row by it, an index, a log, a
person, never takes another row for it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from sqlalchemy import Integer

from tests.queue.build import Instance
from tests.queue.test_retention import HOUR, Kept, delivered, prune
from wsrm_mq.sequence.elements import TerminateSequence
from wsrm_mq.store.invariants import all_findings
from wsrm_mq.store.sqlite import schema
from wsrm_mq.store.tables import metadata

NEVER_DELETED_TO_THE_LAST = {"lane"}
POSITIONS = {"message", "reply"}
"""Their key is the position of an entry."""


def test_every_table_with_a_key_of_its_own_gives_it_once() -> None:
    for table in metadata.tables.values():
        keys = list(table.primary_key)
        is_own = len(keys) == 1 and isinstance(keys[0].type, Integer) and not keys[0].foreign_keys
        if not is_own or not table.dialect_options["sqlite"]["with_rowid"]:
            continue
        once = table.dialect_options["sqlite"]["autoincrement"]
        assert once or table.name in NEVER_DELETED_TO_THE_LAST | POSITIONS, table.name


def test_no_key_comes_back_after_everything_was_pruned(one: Instance) -> None:
    def keys(table: str) -> set[int]:
        return {row["id"] for row in one.rows(f"SELECT id FROM {table}")}

    seen: dict[str, set[int]] = {table: set() for table in ("message", "entry", "lane", "ledger")}
    for _round in range(3):
        before = {table: keys(table) for table in seen}
        identifier = delivered(one, 1, 2)
        one.end(TerminateSequence(identifier))
        for table, known in seen.items():
            assert not (keys(table) - before[table]) & known, f"a key of {table} is used again"
            known |= keys(table)
        one.clock.advance(100 * HOUR)
        prune(one, Kept(0, 0, 0))
        assert keys("message") == set()
        assert keys("entry") == set()


def test_positions_go_on_behind_the_messages_of_an_older_version(older_store: Callable[[str], Path]) -> None:
    path = older_store("0019")
    with closing(sqlite3.connect(path)) as db:
        db.execute("INSERT INTO message (id, environ, received_at, body_size) VALUES (41, '{}', 0, 0)")
        db.execute("INSERT INTO queue (id, name, kind, created_at) VALUES (1, '/orders', 'app', 0)")
        db.execute("INSERT INTO entry (id, queue, message) VALUES (41, 1, 41)")
        db.commit()
    schema.ensure(path)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'entry'").fetchone() == (41,)
        assert [finding for finding in all_findings(db) if "key" in finding.invariant] == []
