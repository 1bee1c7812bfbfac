"""The state of a delivery in SQL is that in Python, over every combination of the columns that it depends on."""

from __future__ import annotations

import sqlite3
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import bindparam, select

from wsrm_mq.sequence.running import ENTRY, DeliveryState, decide, is_paused
from wsrm_mq.store import lanes, running
from wsrm_mq.store.records import Lane
from wsrm_mq.store.sql import compiled
from wsrm_mq.store.tables import entry, lane
from wsrm_mq.versions import WSA_2005, SOAPVersion

NOW = bindparam("now")
AT = 1_000
WAITS = [(None, None), (None, AT + 1), (AT - 1, AT + 1), (AT, AT + 1), (AT + 1, AT + 2), (AT - 2, AT), (AT - 2, AT - 1)]
"""``retry_from`` and ``retry_at``: none, under way, of a clock that was stepped back, over."""
COLUMNS = (
    *("on_hold_since", "blocked", "owner", "cursor", "limit"),
    *("discard_from", "retry_from", "retry_at", "discarding", "held"),
)
LANES = [
    (on_hold_since, blocked, owner, cursor, 5, discard_from, *wait, discarding, held)
    for on_hold_since, blocked, owner, cursor, discard_from, wait, discarding, held in product(
        (None, 0), (None, 0, 9), (None, 0, 7), (1, 4, 5), (None, 1, 4, 5, 6), WAITS, (0, 1), (0, 1, 2)
    )
]
ENTRY_COLUMNS = "id INTEGER PRIMARY KEY, number, retry_from, retry_at, owner, hold"
ENTRIES = [(key, *entry) for key, entry in enumerate(product((1, 4, 5, 6), WAITS))]


_DECIDED = decide(ENTRY)


def entry_state(
    number: int,
    *,
    is_paused: bool,
    on_hold_since: int | None,
    blocked: int | None,
    owner: int | None,
    cursor: int,
    limit: int,
    discard_from: int | None,
) -> tuple[str, str | None]:
    """State and reason of an entry without an outcome; ``is_paused``: it or its sequence is."""
    return _DECIDED[
        discard_from is not None and number >= discard_from,
        number >= limit,
        blocked is not None,
        on_hold_since is not None,
        is_paused,
        owner is not None and number == cursor,
    ]


def stored() -> sqlite3.Connection:
    """Every lane with each of the entries, in tables that have no other columns."""
    db = sqlite3.connect(":memory:")
    columns = ", ".join(f'"{name}"' for name in COLUMNS)
    db.execute(f"CREATE TABLE lane (id INTEGER PRIMARY KEY, {columns}, queue, served_at, leased_below)")
    db.execute(f"CREATE TABLE entry ({ENTRY_COLUMNS})")
    db.executemany(f"INSERT INTO lane VALUES (NULL{', ?' * len(COLUMNS)}, 1, NULL, NULL)", LANES)
    db.executemany(
        "INSERT INTO entry VALUES (?, ?, ?, ?, NULL, NULL)", [(key, number, *wait) for key, number, wait in ENTRIES]
    )
    return db


def expected(columns: tuple[int | None, ...]) -> DeliveryState:
    row = dict(zip(COLUMNS, columns, strict=True))
    return state_of(AT, **row | {"discarding": bool(row["discarding"])})


def state_of(now: int, **columns: Any) -> DeliveryState:
    one = Lane(queue=1, kind="rm", identifier="urn:x", soap=SOAPVersion.SOAP_1_2, addressing=WSA_2005, **columns)
    return one.delivery_state(now)


def test_the_state_of_a_delivery_is_the_same_in_sql() -> None:
    text = compiled(select(running.delivery_state(NOW)).select_from(lane).order_by(lane.c.id))
    found = [state for (state,) in stored().execute(text, {"now": AT})]
    assert found == [expected(columns).value for columns in LANES]
    assert set(found) == set(DeliveryState)


def test_what_the_watch_looks_for_is_a_state() -> None:
    db = stored()
    states = [expected(columns) for columns in LANES]
    runnable = db.execute(lanes.RUNNABLE, {"now": AT, "count": -1, "after": 0, "foreign": "[]"})
    assert {key for (key,) in runnable} == {n for n, state in enumerate(states, 1) if state is DeliveryState.READY}
    db.execute("DELETE FROM lane WHERE retry_at <= ?", (AT,))
    (retry_at,) = db.execute(lanes.NEXT_RETRY, {"now": AT, "foreign": "[]"}).fetchone()
    retrying = [row for row, state in zip(LANES, states, strict=True) if state is DeliveryState.RETRYING]
    assert retry_at == min(row[COLUMNS.index("retry_at")] or 0 for row in retrying)


def test_the_state_of_an_entry_is_the_same_in_sql() -> None:
    asked = select(running.entry_state(NOW), running.entry_reason(NOW), lane.c.id, entry.c.id)
    found = stored().execute(compiled(asked.select_from(lane.join(entry, lane.c.id > 0))), {"now": AT})
    seen = set()
    for state, reason, key, entry_key in found:
        row = dict(zip(COLUMNS, LANES[key - 1], strict=True))
        _key, number, wait = ENTRIES[entry_key]
        waits = is_paused(*wait, AT) or is_paused(row.pop("retry_from"), row.pop("retry_at"), AT)
        columns = {name: row[name] for name in ("on_hold_since", "blocked", "owner", "cursor", "limit", "discard_from")}
        assert (state, reason) == entry_state(number, is_paused=waits, **columns)  # type: ignore[arg-type]
        seen.add((state, reason))
    assert len(seen) == 6


def test_a_loose_entry_is_ready_leased_or_waits_for_its_retry() -> None:
    db = sqlite3.connect(":memory:")
    columns = ", ".join(f'"{name}"' for name in COLUMNS)
    db.execute(f"CREATE TABLE lane (id INTEGER PRIMARY KEY, {columns}, leased_below)")
    db.execute(f"CREATE TABLE entry ({ENTRY_COLUMNS})")
    waits = [*WAITS, (None, None)]
    db.executemany(
        "INSERT INTO entry VALUES (?, NULL, ?, ?, NULL, NULL)", [(key, *wait) for key, wait in enumerate(waits)]
    )
    db.execute("UPDATE entry SET owner = 1 WHERE id = ?", (len(WAITS),))
    asked = select(running.entry_state(NOW), running.entry_reason(NOW)).select_from(
        entry.outerjoin(lane, lane.c.id == 0)
    )
    found = db.execute(compiled(asked.order_by(entry.c.id)), {"now": AT}).fetchall()
    paused = [("held", "backoff") if is_paused(*wait, AT) else ("ready", None) for wait in WAITS]
    assert found == [*paused, ("leased", None)]


def test_the_index_of_what_is_runnable_holds_what_the_machine_calls_so(path: Path) -> None:
    db = sqlite3.connect(path)
    plan = db.execute(
        f"EXPLAIN QUERY PLAN {lanes.RUNNABLE}", {"now": AT, "count": 1, "after": 0, "foreign": "[]"}
    ).fetchall()
    assert "lane_runnable" in plan[0][3]


@pytest.mark.parametrize(
    ("columns", "state"),
    [
        ({}, DeliveryState.IDLE),
        ({"held": 1}, DeliveryState.WAITING),
        ({"held": 1, "discard_from": 5, "discarding": True}, DeliveryState.DISCARDING),
        ({"cursor": 4, "discard_from": 4, "discarding": True}, DeliveryState.DISCARDING),
        ({"cursor": 3, "discard_from": 4, "discarding": True}, DeliveryState.READY),
        ({"cursor": 4}, DeliveryState.READY),
        ({"cursor": 4, "retry_from": 900, "retry_at": 1_001}, DeliveryState.RETRYING),
        ({"cursor": 4, "retry_from": 900, "retry_at": 1_000}, DeliveryState.READY),
        ({"cursor": 4, "retry_from": 900, "retry_at": 1_001, "owner": 1}, DeliveryState.RUNNING),
        ({"owner": 1}, DeliveryState.RUNNING),
        ({"cursor": 4, "blocked": 17}, DeliveryState.BLOCKED),
        ({"on_hold_since": 900}, DeliveryState.HELD),
        ({"cursor": 4, "on_hold_since": 900}, DeliveryState.HELD),
        ({"cursor": 4, "on_hold_since": 900, "blocked": 17, "owner": 1}, DeliveryState.HELD),
    ],
)
def test_the_columns_of_a_sequence_say_what_its_delivery_does(columns: dict[str, int], state: DeliveryState) -> None:
    assert state_of(1_000, **{"cursor": 5, "limit": 5} | columns) is state
