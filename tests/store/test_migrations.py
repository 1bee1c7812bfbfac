"""What a migration makes of rows that were there."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from wsrm_mq.store.invariants import all_findings
from wsrm_mq.store.sqlite import schema

SEQUENCE = """
INSERT INTO sequence (id, queue, identifier, rm, soap, addressing, behavior, assurance, ordered, incomplete_reason,
    created_at, state, ended, ended_at, active_at, expected, cursor, "limit", fence, kind, connection, replay_of, late,
    held, held_bytes)
VALUES (?, ?, ?, ?, '1.2', '1.0', 'NoDiscard', 'exactly_once', 1, 'first_gap', 5, ?, ?, ?, 7, ?, ?, ?, 2, ?, ?, ?, ?,
    ?, ?)
"""
ENTRY = """
INSERT INTO entry (id, queue, message, sequence, number, outcome, settled_at, replay_of, reason, origin)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


def test_a_sequence_becomes_a_lane_and_what_rules_it_and_all_that_leads_to_it_still_does(
    older_store: Callable[[str], Path],
) -> None:
    path = older_store("0014")
    with closing(sqlite3.connect(path)) as db:
        db.executemany(
            "INSERT INTO queue (id, name, kind, parent, created_at) VALUES (?, ?, ?, ?, 0)",
            ((1, "/orders", "app", None), (2, "/orders#dead", "dead_letter", 1), (3, "send//orders", "outgoing", 1)),
        )
        ended = ("ended", "terminated", 9)
        for row in (
            (1, 1, "urn:open", "1.1", "created", None, None, 3, 3, 3, "rm", None, None, "accept", 1, 10),
            (2, 1, "urn:closed", "1.0", "closed", None, None, 2, 1, 2, "rm", None, None, None, 0, 0),
            (3, 1, "urn:connection", "none", "created", None, None, 2, 2, 2, "connection", "c", None, None, 0, 0),
            (4, 1, "urn:replays", "1.1", *ended, 2, 2, 2, "replay", None, 1, None, 0, 0),
            (5, 3, "urn:sent", "1.1", *ended, 2, 1, 2, "outgoing", None, None, None, 0, 0),
            (6, 3, "urn:replies", "1.1", *ended, 2, 1, 2, "outgoing", None, None, None, 0, 0),
            (7, 3, "urn:sent-before", "1.1", *ended, 1, 1, 1, "outgoing", None, None, None, 0, 0),
        ):
            db.execute(SEQUENCE, row)
        db.executemany(
            "INSERT INTO range VALUES (?, ?, ?)",
            ((1, 1, 2), (1, 4, 4), (2, 1, 1), (3, 1, 1), (4, 1, 1), (5, 1, 1), (6, 1, 1)),
        )
        for key in range(1, 9):
            db.execute(
                "INSERT INTO message (id, environ, received_at, body_size, body) VALUES (?, '{}', 0, 10, ?)",
                (key, b"0123456789"),
            )
        db.executemany(
            ENTRY,
            (
                (1, 1, 1, 1, 1, "delivered", 8, None, None, None),
                (2, 2, 2, 1, 2, "dead", 8, None, "skipped", 1),
                (3, 1, 3, 1, 4, None, None, None, None, None),
                (4, 1, 4, 2, 1, None, None, None, None, None),
                (5, 1, 5, 3, 1, "delivered", 8, None, None, None),
                (6, 3, 6, 5, 1, None, None, None, None, None),
                (7, 1, 1, 4, 1, "delivered", 9, 1, None, None),
                (8, 3, 8, 6, 1, None, None, None, None, None),
            ),
        )
        db.execute("INSERT INTO sequence_entry SELECT sequence, number, id FROM entry WHERE id <= 4")
        db.execute("UPDATE watermark SET upto = 4 WHERE name = 'sequence_entry'")
        # What was sent about a replay is about what is replayed; so there may be two of one endpoint.
        db.executemany(
            "INSERT INTO channel VALUES (?, ?, 'http://client.example/', '[]', ?)", ((5, 4, 0), (6, 2, 1), (7, 1, 0))
        )
        db.execute("INSERT INTO reply VALUES (4, '200 OK', '[]', 8, x'00', 2, 1, 8)")
        db.execute(
            "INSERT INTO outgoing (sequence, identifier, state, given, acknowledged, unacknowledged, is_final)"
            " VALUES (2, 'urn:offered', 'created', 2, '1', 1, 0)"
        )
        db.commit()
    schema.ensure(path)
    with closing(sqlite3.connect(path)) as db:
        assert list(all_findings(db)) == []
        assert db.execute(
            "SELECT sequence, kind, rm, state, ended, expected, cursor, received, connection, replay_of, answers"
            " FROM sequences ORDER BY key"
        ).fetchall() == [
            ("urn:open", "rm", "1.1", "created", None, 3, 3, 3, None, None, None),
            ("urn:closed", "rm", "1.0", "closed", None, 2, 1, 1, None, None, None),
            ("urn:connection", "connection", "none", "created", None, 2, 2, 1, "c", None, None),
            ("urn:replays", "replay", "1.1", "ended", "terminated", 2, 2, 1, None, "urn:open", None),
            ("urn:sent", "outgoing", "1.1", "ended", "terminated", 2, 1, 1, None, None, "urn:open"),
            ("urn:replies", "outgoing", "1.0", "ended", "terminated", 2, 1, 1, None, None, "urn:closed"),
            ("urn:sent-before", "outgoing", "1.1", "ended", "terminated", 1, 1, 0, None, None, "urn:open"),
        ]
        assert db.execute("SELECT lane, late FROM sequence ORDER BY lane").fetchall() == [(1, "accept"), (2, None)]
        assert db.execute("SELECT sequence, number, state FROM messages ORDER BY position").fetchall() == [
            ("urn:open", 1, "delivered"),
            ("urn:open", 2, "dead"),
            ("urn:open", 4, "held"),
            ("urn:closed", 1, "ready"),
            ("urn:connection", 1, "delivered"),
            ("urn:sent", 1, "ready"),
            ("urn:replays", 1, "delivered"),
            ("urn:replies", 1, "ready"),
        ]
        assert db.execute("SELECT key, sequence, answers, sent FROM outgoing_sequences").fetchall() == [
            (2, "urn:offered", "urn:closed", 2)
        ]
        assert db.execute("SELECT sequence, number FROM replies").fetchall() == [("urn:offered", 1)]
        own = "SELECT queue, rm, soap, addressing FROM outbound_sequence"
        assert db.execute(own).fetchall() == [(1, "1.0", "1.2", "1.0")]
        assert db.execute("SELECT lane, answers, outbound, is_numbered FROM channel ORDER BY lane").fetchall() == [
            (5, 1, None, 0),
            (6, 2, 1, 1),
            (7, 1, None, 0),
        ]
