"""The read views: made by every way to a store, as documented, and quick where the documentation says so."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from tests.queue.build import Instance
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.store.late_index import BY_LANE
from wsrm_mq.store.published import VERSION, texts
from wsrm_mq.store.sqlite import schema
from wsrm_mq.testing import ManualClock

PINNED = {
    "0019": "91cfaedaf926397003690c032b4a18bc4a41c86df8419b4e0d15c6cada9f2ae8",
    "0020": "91cfaedaf926397003690c032b4a18bc4a41c86df8419b4e0d15c6cada9f2ae8",
    "0021": "5d23a07c62b77112a9b1cd6c7f186bded9de9429efc4332b11e3926bc6f7bd01",
    "0022": "5d23a07c62b77112a9b1cd6c7f186bded9de9429efc4332b11e3926bc6f7bd01",
    "0023": "6626fb535923b3a27f95665b324ccd431bc8024716bc0c4f6c17f265d4e99f9a",
}
"""By revision that stores in use may have: the digest of the views that it makes, which do not change any more."""
PAGE = Path(__file__).parents[2] / "docs" / "views.md"


def views(path: Path) -> dict[str, str]:
    with closing(sqlite3.connect(path)) as db:
        return dict(db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'view'").fetchall())


def columns(db: sqlite3.Connection) -> dict[str, set[str]]:
    return {name: {row[1] for row in db.execute(f"PRAGMA table_info({name})")} for name in texts()}


def documented() -> dict[str, set[str]]:
    """The columns of each view as the page has them: below a heading, or a line, that names the view alone."""
    found: dict[str, set[str]] = {}
    name = ""
    for line in PAGE.read_text().splitlines():
        if named := re.fullmatch(r"(?:## )?`(\w+)`:?", line):
            name = named[1]
        elif line.startswith("| `"):
            found.setdefault(name, set()).update(re.findall(r"`(\w+)`", line.split("|")[1]))
    return found


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Instance]:
    path = tmp_path / "store.db"
    schema.ensure(path)
    instance = Instance(path, ManualClock(), "one")
    yield instance
    instance.close()


def test_a_new_store_has_the_views_as_they_are_defined(path: Path) -> None:
    assert views(path) == texts()


def test_the_views_of_a_revision_do_not_change_without_another_one() -> None:
    """A store that has the revision already would keep the old ones. A new revision is pinned when it is released."""
    digest = sha256("\n".join(texts().values()).encode()).hexdigest()
    assert digest == PINNED.get(schema.HEAD, digest), f"add a revision behind {schema.HEAD} for the changed views"
    assert PINNED.keys() >= set(schema.KNOWN[:-1]), "pin the revision before the last"


@pytest.mark.parametrize("revision", [one for one in schema.KNOWN if one != schema.HEAD])
def test_a_store_of_any_older_version_has_them_when_it_was_brought_forward(
    older_store: Callable[[str], Path], revision: str
) -> None:
    path = older_store(revision)
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE VIEW of_an_older_version AS SELECT * FROM sequence")
    schema.migrate(path)
    assert views(path) == texts()


def test_the_page_has_each_view_with_its_columns_and_the_version(one: Instance) -> None:
    assert documented() == columns(one.db)
    assert f"answers the version of what this page promises: **{VERSION}**" in PAGE.read_text()
    assert one.rows("SELECT version FROM read_views") == [{"version": VERSION}]


def test_every_entry_is_a_message_and_in_its_sequence_however_far_the_index_is(one: Instance) -> None:
    first, second = (one.create().terms.identifier for _ in range(2))
    for identifier, number in ((first, 2), (second, 1), (first, 1), (second, 3)):
        one.take(identifier, number)
    for upto in (0, 3, 10):
        one.run(lambda tx, most=upto: BY_LANE.bring_forward(tx, most))
        found = [tuple(row.values()) for row in one.rows("SELECT * FROM sequence_messages ORDER BY position")]
        assert found == [(first, 2, 1), (second, 1, 2), (first, 1, 3), (second, 3, 4)]
        assert one.rows("SELECT sequence, number, position FROM messages ORDER BY position") == one.rows(
            "SELECT sequence, number, position FROM sequence_messages ORDER BY position"
        )


def test_a_sequence_says_what_waits_of_it_and_since_when(one: Instance) -> None:
    identifier = one.create().terms.identifier
    began = one.clock()
    for number in (1, 2, 5, 6, 9):
        one.clock.advance(1_000)
        one.take(identifier, number)
    (row,) = one.rows('SELECT received, held, ready, oldest_at, cursor, "limit" FROM sequences')
    assert row == {"received": 5, "held": 3, "ready": 2, "oldest_at": began + 1_000, "cursor": 1, "limit": 3}
    assert one.rows("SELECT lower, upper FROM ranges") == [
        {"lower": 1, "upper": 2},
        {"lower": 5, "upper": 6},
        {"lower": 9, "upper": 9},
    ]


def test_dead_letters_are_counted_at_the_queue_that_they_come_from(one: Instance) -> None:
    policy = QueuePolicy(retry=(), on_poison="dead_letter")
    claim = one.take(one.create(policy).terms.identifier, 1, policy=policy).claim
    assert claim is not None
    one.fail(claim, 1, policy, "no disk")
    assert one.rows("SELECT queue, origin, state FROM messages") == [
        {"queue": "/orders#dead", "origin": "/orders", "state": "dead"}
    ]
    assert one.rows("SELECT queue, dead_letters FROM queues ORDER BY key") == [
        {"queue": "/orders", "dead_letters": 1},
        {"queue": "/orders#dead", "dead_letters": 0},
    ]


def test_no_counter_of_a_queue_that_is_gone_is_that_of_none(one: Instance) -> None:
    one.db.execute("INSERT INTO counter VALUES ('event', 0, 'x', 1), ('accepted', -1, '', 2)")
    assert one.rows("SELECT name, queue FROM counters WHERE name IN ('event', 'accepted') AND value < 3") == [
        {"name": "accepted", "queue": None},
        {"name": "event", "queue": ""},
    ]


BY_INDEX = {
    "a message": ("SELECT * FROM messages WHERE position = 1", []),
    "messages in order": ("SELECT * FROM messages WHERE position > 1 ORDER BY position LIMIT 50", []),
    "the newest messages": ("SELECT * FROM messages ORDER BY position DESC LIMIT 50", ["SCAN entry"]),
    "those of a sequence": (
        "SELECT * FROM messages WHERE position IN (SELECT position FROM sequence_messages WHERE sequence = 'x')",
        [],
    ),
    "those of it that wait": ("SELECT * FROM messages WHERE sequence = 'x' AND outcome IS NULL", []),
    "those of a connection": (
        "SELECT * FROM messages WHERE position IN (SELECT position FROM connection_messages WHERE connection = 'x')",
        [],
    ),
    "a sequence": ("SELECT * FROM sequences WHERE sequence = 'x'", []),
    "its ranges": ("SELECT * FROM ranges WHERE sequence = 'x'", []),
    "its ledger": ("SELECT * FROM ledger_events WHERE sequence = 'x' ORDER BY key DESC LIMIT 20", []),
    "its attempts": ("SELECT * FROM attempts WHERE sequence = 'x'", []),
    "the attempts of a message": ("SELECT * FROM attempts WHERE position = 1", []),
    "a body": ("SELECT * FROM bodies WHERE position = 1", []),
    "a reply": ("SELECT * FROM replies WHERE position = 1", []),
    "faulted ones": ("SELECT * FROM faulted WHERE settled_at > 1", []),
    "how many are faulted": ("SELECT count(*) FROM faulted", []),
    "outcomes": ("SELECT outcome FROM messages", ["SCAN entry"]),
}


@pytest.mark.parametrize("what", BY_INDEX)
def test_what_is_asked_for_by_its_key_is_found_by_an_index_and_nothing_is_read_that_is_not_wanted(
    one: Instance, what: str
) -> None:
    question, scanned = BY_INDEX[what]
    steps = [row["detail"] for row in one.rows(f"EXPLAIN QUERY PLAN {question}")]
    assert [step for step in steps if step.startswith("SCAN") and "INDEX" not in step] == scanned, steps
    assert not [step for step in steps if "AUTOMATIC" in step], steps
