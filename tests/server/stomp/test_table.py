"""The demands of the specifications of STOMP on a server, against the tests that show it."""

from __future__ import annotations

from tests.acceptance.sources import shown_by
from tests.acceptance.supported import ROOT
from tests.acceptance.tables import Cell, project_tables


def test_each_statement_is_shown_by_bytes() -> None:
    shown = shown_by(ROOT, project_tables())
    rows = [row for row in project_tables().rows.values() if row.kind == "stomp"]
    assert {row.id: row.statement for row in rows if Cell(row.id) not in shown} == {}
