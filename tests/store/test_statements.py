from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import bindparam, select

from wsrm_mq.store import consuming, entries, journals, lanes, queues, repairs, subscribing
from wsrm_mq.store.filtering import Filtered
from wsrm_mq.store.sql import compiled
from wsrm_mq.store.tables import entry

TEXTS = {
    name: text
    for module in (queues, entries, lanes, repairs, consuming, journals, subscribing)
    for name, made in vars(module).items()
    for text in (made.text if isinstance(made, Filtered) else made,)
    if name.isupper() and isinstance(text, str) and " " in text and not text.startswith("(")  # a word; a part of some
}
INDEX = {
    "LAST_TOLD": "SEARCH ledger",  # the last key alone
    "TRY_NOW": "entry_live (lane=? AND number>? AND number<?)",
    "EXPRESS": "entry_consumed (queue=? AND id>?)",
    "LOST": "queue_dead_letters (parent=?)",
    "ANSWERED_WITH": "reply_numbered (outbound=?)",
    "KEEPERS": "SCAN queue",
    "KEPT_BY": "queue_kept (keeper=?)",
    "OLD_GAPS": "lane_holding (held>?)",
    "APPLICATION": "sqlite_autoindex_queue_1",
    "DEAD_LETTERS": "queue_dead_letters (parent=?)",
    "ENTRY_BY_NUMBER": "INTEGER PRIMARY KEY (rowid=?)",
    "COUNT_BETWEEN": "entry_live (lane=? AND number>? AND number<?)",
    "TALLY": "entry_consumed (queue=? AND id>? AND id<?)",
    "RUN_IS_AT": "entry_live (lane=? AND number>? AND number<?)",
    "RUN": "entry_live (lane=? AND number>? AND number<?)",
    "REPLAY_OF": "entry_by_message (message=?)",
    "RUN_REPLAYS": "entry_live (lane=? AND number>? AND number<?)",
    "DELIVERED_BEYOND": "PRIMARY KEY (lane=? AND number>?)",
    "REPLAYS_OF": "lane_replays (replay_of=?)",
    "NEXT_LIVE": "entry_live (lane=? AND number>? AND number<?)",
    "COUNT_UNSETTLED": "entry_live (lane=? AND number>?)",
    "NTH_LIVE": "entry_live (lane=? AND number>? AND number<?)",
    "RETRIES": "entry_live (lane=? AND number>? AND number<?)",
    "DOOMED": "entry_live (lane=? AND number>?)",
    "UNNAMED": "entry_unnamed",
    "LANE_BY_IDENTIFIER": "sqlite_autoindex_lane_1",
    "SEQUENCE_BY_CREATE_ID": "sequence_create_id",
    "OPEN_OF_CONNECTION": "lane_by_connection (connection=? AND queue=?)",
    "OPEN_OF_CONNECTIONS": "lane_by_connection (connection=?)",
    "LAST_OF_CONNECTION": "watermark USING PRIMARY KEY (name=?)",
    "UNSETTLED_INDEXED": "PRIMARY KEY (connection=? AND message>?)",
    "UNSETTLED_BEHIND": "INTEGER PRIMARY KEY (rowid>?)",
    "OWNED": "lane_owned",
    "CLAIMS_OF": "lane_owned",
    "RUNNABLE": "lane_runnable",
    "RUNNABLE_CALLS": "lane_leasable",
    "RUNNABLE_SENDS": "lane_runnable",
    "NEXT_RETRY": "lane_runnable",
    "DISCARDING": "lane_discarding",
    "DUE": "lane_due",
    "OPEN_OF_PRINCIPAL": "lane_open (principal=?)",
    "OPEN_OF_ADDRESS": "lane_open (principal=? AND peer=?)",
    "UNUSED_OF_PRINCIPAL": "lane_open (principal=?)",
    "UNUSED_OF_ADDRESS": "lane_open (principal=? AND peer=?)",
    "IN_LEDGER": "ledger_by_sequence (sequence=?)",
    "FAILED_AS": "ledger_by_position (position=?)",
    "HELD_IN_ALL": "lane_holding",
    "HELD_BYTES": "entry_live (lane=? AND number>?)",
    "RANGES": "PRIMARY KEY (lane=?)",
    "DROP_RANGE": "PRIMARY KEY (lane=? AND lower=?)",
    "DROP_RANGES": "PRIMARY KEY (lane=?)",
    "ENDED_OWNERS": "lane_owned (owner>?)",
    "LIVE_INSTANCES": "instance_live",
    "END_INSTANCES": "instance_live",
    "UNSETTLED_IN_ALL": "queue",
    "QUEUE_ROW": "sqlite_autoindex_queue_1",
    "LET_GO_OF_QUEUES": "queue_held (owner=?)",
    "ADD_DEDUPE": "",
    "PUT_BEFORE": "PRIMARY KEY (queue=? AND message_id=?)",
    "FORGET_PUT": "PRIMARY KEY (queue=? AND message_id=?)",
    "FORGET_DEDUPE": "PRIMARY KEY (queue=?)",
    "DUE_TO_BE_FORGOTTEN": "dedupe_until (until<?)",
    "FORGOTTEN": "dedupe_until (until<?)",
    "POSITION_IN": "entry_by_message (message=?)",
    "IS_RECORDED": "entry_by_message (message=?)",
    "READY": "entry_ready (queue=? AND priority>?)",
    "COUNT_READY": "entry_ready (queue=? AND priority>?)",
    "LETTERS": "entry_dead (queue=?)",
    "COUNT_LETTERS": "entry_dead (queue=?)",
    "FREE_LETTERS": "entry_dead (queue=? AND id>?)",
    "LEASABLE": "lane_leasable (queue=? AND served_at>?)",
    "COUNT_GROUPED": "lane_leasable (queue=? AND served_at>?)",
    "RUN_OF_LANE": "entry_live (lane=? AND number>? AND number<?)",
    "COUNT_RUN": "entry_live (lane=? AND number>? AND number<?)",
    "LEFT_OF_RUN": "entry_live (lane=? AND number<?)",
    "DUE_WAITS": "entry_waiting (hold=? AND retry_at<?)",
    "NEXT_ENDS": "entry_waiting (hold=?",
    "TURNED_BACK": "entry_waiting (hold=?)",
    "EXPIRED": "entry_expiring (expires_at>? AND expires_at<?)",
    "FIRST_ENDS": "instance_live",
    "LEASED_BY": "entry_leased (owner=? AND leased_until>? AND leased_until<?)",
    "LANES_LEASED_BY": "lane_leased (owner=? AND leased_until>? AND leased_until<?)",
    "HOLDERS": "instance",
    "PEEK": "entry_consumed (queue=? AND id>?)",
    "PEEK_LETTERS": "entry_dead (queue=? AND id>?)",
    "UNSETTLED_IN": "entry_consumed (queue=? AND id>? AND id<?)",
    "STATES": "entry_consumed (queue=?)",
    "LAST_UNSETTLED": "entry_consumed (queue=?)",
    "TO_COME": "entry_consumed (queue=? AND id<?)",
    "LETTERS_OF": "queue_dead_letters (parent=?)",
    "DECLARED_QUEUES": "sqlite_autoindex_queue_1",
    "EVERY_QUEUE": "sqlite_autoindex_queue_1",
    "HAS_ROUTE": "route_by_pattern",
    "LEASED_IN": "instance",
    "CLIENT": "client_live (instance=?",
    "OTHER_LOADS": "subscription_by_queue (queue=?",
    "IS_SERVED": "SCAN queue",
    "LEFT_BEHIND": "entry_leased (owner=?",
    "MOVE_ENTRIES": "entry_live (lane=? AND number>?)",
    "ENDPOINTS": "queue",
    "LANES_BY_PARTNER": "lane",
    "LANES_OF": "lane",
    "LOOSE_BY_PARTNER": "entry",
    "LOOSE_OF": "loose",
    "FIRST_BARRIER": "entry_waiting (hold=?)",
    "UNSETTLED_BEFORE": "entry_consumed (queue=? AND id<?)",
    "SUBSCRIBED_WITHOUT": "subscription_by_queue (queue=?)",
    "END_CLIENT": "client_live (instance=?)",
    "OUTBOX_LAST": "PRIMARY KEY (principal=? AND lane=?)",
    "MOVE_OUTBOX": "PRIMARY KEY (principal=? AND lane=?)",
    "TOKENS": "token",
    "TOKEN": "PRIMARY KEY (name=?)",
    "TOKEN_OF_CERTIFICATE": "(certificate=?)",
    "DROP_TOKEN": "PRIMARY KEY (name=?)",
    "TOKEN_USED": "PRIMARY KEY (name=?)",
    "WAS_HAD": "subscription_by_queue (queue=?)",
    "BINDINGS": "SCAN binding",
    **dict.fromkeys(("BOUND", "UNBIND_ONE", "UNBIND", "UNBIND_ALL"), "binding_by_queue (queue=?)"),
    "LOGS": "SCAN queue",
    "EVENTS": "entry_consumed",
    **dict.fromkeys(("DURABLE", "SET_DURABLE", "SET_COLLECTED", "END_DURABLE"), "subscription_by_queue (queue=?)"),
    "CLIENTS": "SCAN client",
    "SUBSCRIBED": "SCAN subscription",
}
"""What each statement has to find its rows by, beside those that name one row by its key."""
AT_A_START = {"ENDPOINTS", "LANES_BY_PARTNER", "LANES_OF", "LOOSE_BY_PARTNER", "LOOSE_OF"}
"""Asked once by a process whose mode is, or was, pull."""
LOOKS_AT_ALL = {
    *("UNSETTLED_IN_ALL", "HOLDERS", "IS_SERVED", "LEASED_IN", "DECLARED_QUEUES", "EVERY_QUEUE", "HAS_ROUTE"),
    *("TOKENS", "KEEPERS", "BINDINGS", "LOGS", "CLIENTS", "SUBSCRIBED"),
}
"""Instances, queues, bindings, clients and tokens are few."""
SORTED = {"STATES", "LEFT_BEHIND", "EVENTS", *AT_A_START}
PARTIAL = {
    "FIRST_ENDS",
    "NEXT_ENDS",
    "RUNNABLE",
    "RUNNABLE_CALLS",
    "RUNNABLE_SENDS",
    "DISCARDING",
    "LIVE_INSTANCES",
    "END_INSTANCES",
    "HELD_IN_ALL",
}
"""Read all of an index that holds nothing but what is looked for."""


READS_NO_TABLE = re.compile(
    "SUBQUERY|VIRTUAL TABLE|CONSTANT ROW|CO-ROUTINE|COMPOUND QUERY|UNION ALL|SEARCH settled$|SCAN anon_1$"
)
"""Steps that put others together, or read a list that is given."""


@pytest.fixture
def db(path: Path) -> Iterator[sqlite3.Connection]:
    db = sqlite3.connect(path)
    yield db
    db.close()


def plan(db: sqlite3.Connection, text: str) -> list[str]:
    parameters = dict.fromkeys(re.findall(r":(\w+)", text))
    steps = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {text}", parameters)]
    return [step for step in steps if not READS_NO_TABLE.search(step)]


def test_there_are_statements_to_look_at() -> None:
    assert len(TEXTS) > 30
    assert set(INDEX) <= set(TEXTS)


@pytest.mark.parametrize("name", TEXTS)
def test_a_statement_fits_the_schema_and_scans_no_table(db: sqlite3.Connection, name: str) -> None:
    steps = plan(db, TEXTS[name])
    wanted = INDEX.get(name, "INTEGER PRIMARY KEY")
    if steps:
        assert wanted in steps[0]
    else:
        assert TEXTS[name].startswith("INSERT")
    for step in steps:
        assert "TEMP B-TREE" not in step or name in SORTED, "nothing is sorted that an index could bring in order"
        assert step.startswith("SEARCH") or name in PARTIAL | LOOKS_AT_ALL | SORTED, step


def test_constants_are_written_in_place_and_parameters_stay_named() -> None:
    text = compiled(select(entry.c.id).where(entry.c.outcome == "it's", entry.c.number == bindparam("number")))
    assert "'it''s'" in text
    assert re.findall(r":(\w+)", text) == ["number"]
