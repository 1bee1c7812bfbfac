"""The schema of exports: held against the read views, and against the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.filled import Filled
from wsrm_mq.errors import ConfigurationError
from wsrm_mq.export import TABLES, Kind
from wsrm_mq.export.schema import VERSION, chosen, table_named
from wsrm_mq.store import published

PAGE = (Path(__file__).parents[2] / "docs" / "export.md").read_text()
OWN = {"store", "node", "envelope", "replayable", "body_digest"}
"""Columns of the export that are in no view of the same name."""


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_every_column_of_its_read_view(name: str) -> None:
    view = getattr(published, "ledger_events" if name == "ledger" else name)
    missing = {column.name for column in view.columns} - {column.name for column in TABLES[name].columns}
    assert not missing, "a new column of a read view belongs into wsrm_mq/export/schema.py, with its kind"
    assert {column.name for column in TABLES[name].columns} - OWN <= {column.name for column in view.columns}


@pytest.mark.parametrize("name", TABLES)
def test_a_kind_is_what_the_view_has(name: str, filled: Filled) -> None:
    """As far as a row says it: text is text, what is bytes is bytes, anything else an integer."""
    kinds = {Kind.TEXT: str, Kind.BYTES: bytes}
    view = "ledger_events" if name == "ledger" else name
    for row in filled.instance.rows(f"SELECT * FROM {view}"):
        for column in TABLES[name].columns:
            value = row.get(column.name)
            assert value is None or type(value) is kinds.get(column.kind, int), column
            assert column.kind is not Kind.BOOLEAN or value in (None, 0, 1), column
            assert column.kind is not Kind.TIME or value is None or value > 1_500_000_000_000, column


def test_the_page_names_each_table_and_the_version() -> None:
    tables = {
        one
        for row in re.findall(r"^\| (`[^|]+) \| [^|]* \|[^|]*\|$", PAGE, re.M)
        for one in re.findall(r"`(\w+)`", row)
    }
    assert set(TABLES) <= tables
    assert f"the version of what this page promises: **{VERSION}**" in PAGE


def test_what_is_not_there_is_told_with_what_is() -> None:
    with pytest.raises(ConfigurationError, match="there is no table 'message'; there are messages, sequences"):
        table_named("message")
    with pytest.raises(ConfigurationError, match="messages has no column 'body'; it has store, node, position"):
        chosen(TABLES["messages"], ["position", "body"])
