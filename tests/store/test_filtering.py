"""Filters in SQL: the messages that one finds are those that a simple model finds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from tests.queue.filter_trees import PROPERTIES, VALUES, filters, truth
from tests.support.pages import DOCS
from wsrm_mq.errors import FilterError
from wsrm_mq.queue.filters import DEEPEST, LONGEST, MOST, parse
from wsrm_mq.store.filtering import FIELDS, Filter, Filtered, fits, fitting_message
from wsrm_mq.store.port import Database
from wsrm_mq.store.sql import bound
from wsrm_mq.store.sqlite import schema
from wsrm_mq.store.sqlite.connection import connect_writer
from wsrm_mq.store.tables import entry

PAGE = (DOCS / "reference" / "filters.md").read_text(encoding="utf-8")
EMPTY = {**dict.fromkeys(FIELDS), "size": 1, "received_at": 5, "deliveries": 0, "failures": 0, "cancels": 0}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    path = tmp_path_factory.mktemp("filtering") / "store.db"
    schema.ensure(path)
    db = connect_writer(path)
    db.execute("INSERT INTO queue (id, name, kind, created_at) VALUES (1, 'orders', 'app', 0)")
    yield db
    db.close()


@pytest.fixture
def db(store: Database) -> Database:
    clear(store)
    return store


def clear(db: Database) -> None:
    for table in ("header", "entry", "message"):
        db.execute(f"DELETE FROM {table}")


def put(db: Database, position: int, properties: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """Store a message as a row of each table has it; without ``properties``, one without a header."""
    row = {**EMPTY, **fields, "position": position}
    db.execute(
        "INSERT INTO message (id, message_id, action, environ, principal, received_at, body_size) "
        "VALUES (:position, :message_id, :type, '{}', :principal, :received_at, :size)",
        row,
    )
    db.execute(
        "INSERT INTO entry (id, queue, message, priority, deliveries, failures, cancels) "
        "VALUES (:position, 1, :position, :priority, :deliveries, :failures, :cancels)",
        row,
    )
    if properties is not None:
        db.execute(
            "INSERT INTO header (message, topic, content_type, client, properties) "
            "VALUES (:position, :topic, :content_type, :client, :properties)",
            {**row, "properties": json.dumps(properties, ensure_ascii=False)},
        )
    return {**row, "properties": properties or {}}


FOUND = Filtered(lambda *conditions: select(entry.c.id).where(*conditions).order_by(entry.c.id))


def found(db: Database, wanted: Filter | str) -> list[int]:
    statement, values = FOUND.of(parse(wanted) if isinstance(wanted, str) else wanted)
    return [position for (position,) in db.execute(statement, values)]


def test_the_filter_of_the_seed_finds_what_is_of_an_order_and_no_cancellation(db: Database) -> None:
    for position in range(1, 21):
        put(db, position, {"id": "7", "status": "cancel" if position in (3, 9, 20) else "new"})
    put(db, 21, {"id": "8", "status": "new"})
    put(db, 22, {"id": "7"})
    put(db, 23)
    wanted = [position for position in range(1, 20) if position not in (3, 9)]
    assert found(db, "/id = '7' and /status != 'cancel'") == wanted
    assert found(db, "id = '7' and status != 'cancel'") == wanted


@pytest.mark.scenario("Q-074")
@pytest.mark.parametrize(
    "value",
    ["O'Hara", "' OR 1=1 --", "'; DROP TABLE entry; --", '"', ":id", "?", "%", "\\", "json_extract(", "now_ms()", "[]"],
)
def test_quotes_and_sql_in_a_value_are_data(db: Database, value: str) -> None:
    put(db, 1, {"id": value}, type=value)
    put(db, 2, {"id": "other"}, type="other")
    text = "'" + value.replace("'", "''") + "'"
    for wanted in (f"id = {text}", f"type = {text}", f"id in ({text}, 'x')", f"not (id != {text})"):
        statement, values = bound(select(entry.c.id).where(fits(parse(wanted))))
        assert value in values.values()
        assert text not in statement
        assert found(db, wanted) == [1]


def test_filters_that_differ_in_their_values_alone_are_one_statement() -> None:
    wanted = (
        "id = '1' and not (amount < 5 or kind in ('a', 'b'))",
        "id = '2' and not (amount < 6.5 or kind in ('c', ''))",
    )
    (one, its_values), (other, other_values) = (FOUND.of(parse(text)) for text in wanted)
    assert one == other
    assert {*other_values.values()} - {*its_values.values()} == {"2", 6.5, "c", ""}
    assert FOUND.of(parse("amount < 5"))[0] != FOUND.of(parse("amount < '5'"))[0]


def test_a_property_of_a_columns_name_is_found_with_a_slash(db: Database) -> None:
    put(db, 1, {"type": "paper", "priority": "high"}, type="Order", priority=4)
    assert found(db, "type = 'Order' and /type = 'paper' and priority = 4 and /priority = 'high'") == [1]
    assert found(db, "/type = 'Order'") == []


def test_what_is_not_there_is_null_and_no_comparison_with_it_is_true(db: Database) -> None:
    put(db, 1, {"id": None})
    put(db, 2)
    assert found(db, "id is null and topic is null and nothing is null") == [1, 2]
    for wanted in ("id = 1", "id != 1", "not id = 1", "id < 1", "id not in (1)", "id like '%'", "id not like '%'"):
        assert found(db, wanted) == []


def test_a_text_is_no_number_and_has_no_order_with_one(db: Database) -> None:
    put(db, 1, {"amount": "50"})
    put(db, 2, {"amount": 50})
    assert found(db, "amount = 50") == [2]
    assert found(db, "amount != 50") == [1]
    assert found(db, "amount < 100") == [2]
    assert found(db, "amount < '6'") == [1]
    assert found(db, "amount like '5%'") == [1]
    assert found(db, "not amount > 100") == [2]


def test_like_knows_two_signs_and_a_backslash_before_one_makes_it_a_character(db: Database) -> None:
    for position, value in enumerate(("100%", "1000", "a_b", "axb", "AXB"), 1):
        put(db, position, {"id": value})
    assert found(db, "id like '100_'") == [1, 2]
    assert found(db, "id like '100\\%'") == [1]
    assert found(db, "id like 'a\\_b'") == [3]
    assert found(db, "id like 'A%'") == [3, 4, 5]


def test_every_column_can_be_asked_for(db: Database) -> None:
    values = {name: "x" if known.kind is str else 3 for name, known in FIELDS.items() if "outcome" not in name}
    put(db, 3, {}, **{name: value for name, value in values.items() if name != "position"})
    put(db, 4, {})
    for name, value in values.items():
        assert found(db, f"{name} = {value!r}") == [3]


def test_of_a_journal_the_outcome_can_be_asked_for_of_what_it_records(db: Database) -> None:
    put(db, 3)
    put(db, 4)
    db.execute("UPDATE entry SET outcome = 'dead', reason = 'rejected', settled_at = 1 WHERE id = 3")
    db.execute("UPDATE entry SET journal_of = 3 WHERE id = 4")
    assert found(db, "outcome = 'dead'") == found(db, "outcome_reason = 'rejected'") == [4]
    assert found(db, "outcome is null") == [3]


def test_the_page_says_every_field_and_its_filters_find_what_it_says(db: Database) -> None:
    fields = PAGE.partition("## Fields")[2].partition("\n##")[0]
    assert re.findall(r"^\| `(\w+)` \| (.*) \|$", fields, re.M) == [
        (name, known.help) for name, known in FIELDS.items()
    ]
    (json_lines,) = re.findall(r"```json\n(.*?)```", PAGE, re.S)
    for position, line in enumerate(json_lines.splitlines(), 1):
        put(db, position, json.loads(line))
    examples = re.findall(r"^\| `(.+)` \| ([0-9, ]+|none) \|$", PAGE, re.M)
    assert len(examples) > 5
    for wanted, positions in examples:
        assert found(db, wanted) == ([] if positions == "none" else [int(one) for one in positions.split(", ")])
    (filters_shown,) = re.findall(r"```sql\n(.*?)```", PAGE, re.S)
    assert [found(db, line) for line in filters_shown.splitlines()] == [[1], [1], [], []]


def test_the_page_shows_what_a_mistake_is_told() -> None:
    (shown,) = re.findall(r"```text\n(.*?)```", PAGE, re.S)
    said, line, mark = shown.splitlines()
    with pytest.raises(FilterError) as raised:
        parse(line)
    assert (str(raised.value), raised.value.pointed) == (said, (line, mark))
    bounds = f"{LONGEST:,} characters, {MOST} values, and {DEEPEST} brackets and nots"
    assert bounds in PAGE


def messages() -> st.SearchStrategy[dict[str, Any]]:
    properties = st.dictionaries(st.sampled_from(PROPERTIES), VALUES | st.none())
    columns = {
        name: st.none() | st.sampled_from(["a", "Ab", "O'Hara", "7"])
        for name in ("type", "message_id", "principal", "topic", "content_type", "client")
    }
    numbers = {name: st.integers(0, 8) for name in ("size", "deliveries", "failures", "cancels", "received_at")}
    with_header = st.fixed_dictionaries({"properties": properties, **columns, **numbers, "priority": st.integers(0, 9)})
    own = {name: columns[name] for name in ("type", "message_id", "principal")}
    return with_header | st.fixed_dictionaries({**own, **numbers})


@settings(deadline=None, max_examples=300)
@given(wanted=filters(), rows=st.lists(messages(), min_size=1, max_size=8))
def test_sql_finds_what_a_simple_model_finds(store: Database, wanted: Filter, rows: list[dict[str, Any]]) -> None:
    clear(store)
    stored = [put(store, position, **row) for position, row in enumerate(rows, 1)]
    assert found(store, wanted) == [row["position"] for row in stored if truth(wanted, row) is True]


@settings(deadline=None, max_examples=100)
@given(wanted=filters(), row=messages())
def test_a_message_is_judged_before_it_has_an_entry_as_its_new_entry_is(
    store: Database, wanted: Filter, row: dict[str, Any]
) -> None:
    clear(store)
    stored = put(store, 1, **{**row, "deliveries": 0, "failures": 0, "cancels": 0})
    as_entry = found(store, wanted)
    store.execute("DELETE FROM entry")
    statement, values = bound(fitting_message(wanted))
    judged = store.execute(statement, {**values, "message": 1, "priority": stored["priority"]})
    assert [position for (position,) in judged] == as_entry


def test_filters_that_differ_in_how_their_conditions_are_joined_are_different_statements(db: Database) -> None:
    put(db, 1, {"id": 1})
    put(db, 2, {"id": 2})
    for _ in range(2):
        assert found(db, "id = 1 and id < 5") == [1]
        assert found(db, "id = 1 or id < 5") == [1, 2]


def test_filters_as_large_as_they_may_be_are_answered(db: Database) -> None:
    put(db, 1, {"id": 1})
    most = ", ".join("1" * MOST)
    deepest = "not (id = 2 or " * (DEEPEST // 2) + "id = 1" + ")" * (DEEPEST // 2)
    for wanted in (f"id in ({most})", " or ".join(["id = 1"] * MOST), deepest):
        assert found(db, wanted) == [1]
    hard = "%a" * (LONGEST // 2 - 10)
    put(db, 2, {"id": "a" * 4_000})
    assert found(db, f"id like '{hard}b'") == []
