"""What a migration makes of rows that were there."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from wsrm_mq.store import schema
from wsrm_mq.store.invariants import all_findings

SEQUENCE = """
INSERT INTO sequence (id, queue, identifier, rm, soap, addressing, behavior, assurance, ordered, incomplete_reason,
    created_at, state, active_at, expected, cursor, "limit", discard_from, fence)
VALUES (?, 1, ?, '1.1', '1.2', '1.0', 'NoDiscard', 'exactly_once', 1, 'first_gap', 0, ?, 0, ?, ?, ?, ?, 0)
"""


def test_what_waited_before_there_were_columns_for_it_is_counted(
    older_store: Callable[[str], Path],
) -> None:
    path = older_store("0001")
    with closing(sqlite3.connect(path)) as db:
        db.execute("INSERT INTO queue (id, name, kind, created_at) VALUES (1, '/orders', 'app', 0)")
        for key, state, expected, limit, discard_from, ranges in (
            (1, "created", 3, 3, None, ((1, 2), (4, 5), (7, 7))),
            (2, "created", 3, 3, None, ((1, 2),)),
            (3, "created", 1, 1, None, ((2, 2),)),
            (4, "created", 4, 1, None, ((1, 3),)),  # held as a whole
            (5, "ended", 1, 1, 1, ((2, 2),)),
        ):
            db.execute(SEQUENCE, (key, f"urn:{key}", state, expected, limit, limit, discard_from))
            for lower, upper in ranges:
                db.execute("INSERT INTO range VALUES (?, ?, ?)", (key, lower, upper))
                for number in range(lower, upper + 1):
                    row = db.execute("INSERT INTO message (environ, received_at, body_size) VALUES ('{}', 0, 10)")
                    db.execute(
                        "INSERT INTO entry (queue, message, sequence, number) VALUES (1, ?, ?, ?)",
                        (row.lastrowid, key, number),
                    )
        db.commit()
    schema.ensure(path)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT id, held, held_bytes FROM sequence ORDER BY id").fetchall() == [
            (1, 3, 30),
            (2, 0, 0),
            (3, 1, 10),
            (4, 3, 30),
            (5, 0, 0),
        ]


def test_the_messages_that_were_there_are_in_the_index_of_connections(
    older_store: Callable[[str], Path],
) -> None:
    path = older_store("0005")
    with closing(sqlite3.connect(path)) as db:
        db.executemany(
            "INSERT INTO message (id, connection, environ, received_at, body_size) VALUES (?, ?, '{}', 0, 0)",
            ((3, "b"), (4, None), (6, "a"), (7, "b"), (9, None)),
        )
        db.commit()
    schema.ensure(path)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT connection, message FROM connection_message").fetchall() == [
            ("a", 6),
            ("b", 3),
            ("b", 7),
        ]
        assert db.execute("SELECT upto FROM watermark WHERE name = 'connection_message'").fetchall() == [(9,)]
        assert not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'message_by_connection'").fetchall()
        assert [
            found for found in all_findings(db) if "index" in found.invariant or "watermark" in found.invariant
        ] == []


def test_the_entries_that_were_there_are_in_the_index_of_sequences(
    older_store: Callable[[str], Path],
) -> None:
    path = older_store("0006")
    with closing(sqlite3.connect(path)) as db:
        db.execute("INSERT INTO message (id, environ, received_at, body_size) VALUES (1, '{}', 0, 0)")
        db.executemany(
            """INSERT INTO entry (id, queue, message, sequence, number, outcome, settled_at)
            VALUES (?, 1, 1, ?, ?, ?, iif(? IS NULL, NULL, 1))""",
            (
                (position, sequence, number, outcome, outcome)
                for position, sequence, number, outcome in (
                    (2, 7, 2, None),
                    (3, 7, 1, "delivered"),
                    (5, 4, 1, "dead"),
                    (8, None, None, None),
                )
            ),
        )
        db.commit()
    schema.ensure(path)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT * FROM sequence_entry").fetchall() == [(4, 1, 5), (7, 1, 3), (7, 2, 2)]
        assert db.execute("SELECT upto FROM watermark WHERE name = 'sequence_entry'").fetchall() == [(8,)]
        assert not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'entry_by_number'").fetchall()
        assert [found for found in all_findings(db) if "index of seq" in found.invariant] == []


LETTER = """
INSERT INTO entry (id, queue, message, outcome, settled_at, origin) VALUES (?, ?, 1, ?, iif(? IS NULL, NULL, 1), ?)
"""


def test_dead_letters_that_went_into_a_queue_of_a_path_are_dead_letters_again(
    older_store: Callable[[str], Path],
) -> None:
    path = older_store("0007")
    with closing(sqlite3.connect(path)) as db:
        db.executemany(
            "INSERT INTO queue (id, name, kind, parent, created_at) VALUES (?, ?, ?, ?, 0)",
            (
                (1, "/orders", "app", None),
                (2, "/orders#dead", "app", None),  # a stranger's path was first
                (3, "/bills", "app", None),
                (4, "/bills#dead", "dead_letter", 3),
                (5, "/a#b", "app", None),
                (6, "/a%23b", "app", None),
            ),
        )
        db.execute("INSERT INTO message (id, environ, received_at, body_size) VALUES (1, '{}', 0, 0)")
        db.executemany(
            LETTER,
            (
                (1, 2, "dead", "dead", 1),  # of /orders
                (2, 2, "delivered", "delivered", None),  # of the stranger
                (3, 4, "dead", "dead", 3),
            ),
        )
        db.commit()
    schema.ensure(path)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT id, name, kind, parent FROM queue ORDER BY id").fetchall() == [
            (1, "/orders", "app", None),
            (2, "/orders%23dead", "app", None),
            (3, "/bills", "app", None),
            (4, "/bills#dead", "dead_letter", 3),
            (5, "/a%23b%235", "app", None),
            (6, "/a%23b", "app", None),
            (7, "/orders#dead", "dead_letter", 1),
        ]
        assert db.execute("SELECT id, queue FROM entry ORDER BY id").fetchall() == [(1, 7), (2, 2), (3, 4)]
        assert [found for found in all_findings(db) if found.table == "queue"] == []


def test_sequences_of_a_path_in_the_dead_letters_of_another_get_a_queue_of_their_own(
    older_store: Callable[[str], Path],
) -> None:
    path = older_store("0007")
    with closing(sqlite3.connect(path)) as db:
        db.executemany(
            "INSERT INTO queue (id, name, kind, parent, created_at) VALUES (?, ?, ?, ?, 0)",
            ((1, "/orders", "app", None), (2, "/orders#dead", "dead_letter", 1)),
        )
        db.execute(SEQUENCE.replace("VALUES (?, 1,", "VALUES (?, 2,"), (1, "urn:1", "created", 2, 2, 2, None))
        db.execute("INSERT INTO message (id, environ, received_at, body_size) VALUES (1, '{}', 0, 0)")
        db.executemany(LETTER, ((1, 2, "dead", "dead", 1), (2, 2, None, None, None)))
        db.commit()
    schema.ensure(path)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT id, name, kind, parent FROM queue ORDER BY id").fetchall() == [
            (1, "/orders", "app", None),
            (2, "/orders#dead", "dead_letter", 1),
            (3, "/orders%23dead", "app", None),
        ]
        assert db.execute("SELECT queue FROM sequence").fetchall() == [(3,)]
        assert db.execute("SELECT id, queue FROM entry ORDER BY id").fetchall() == [(1, 2), (2, 3)]


def test_what_the_ledger_says_of_what_is_gone_goes_with_an_upgrade(older_store: Callable[[str], Path]) -> None:
    path = older_store("0007")
    with closing(sqlite3.connect(path)) as db:
        db.executemany(
            "INSERT INTO ledger (at, event, sequence, position) VALUES (0, ?, ?, ?)",
            (("created", 7, None), ("failed", 7, 9), ("pruned", None, None)),
        )
        db.commit()
    schema.ensure(path)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT event FROM ledger").fetchall() == [("pruned",)]
