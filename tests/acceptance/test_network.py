"""What holds over the network is shown over the network."""

from __future__ import annotations

from pathlib import Path

import pytest

from .network import HEADER, Row, read_network, shown_in, without, written_in
from .sources import shown_by
from .supported import ROOT
from .tables import Cell, TableError, project_tables
from .tally import Tally


def test_each_yes_has_a_test_and_each_no_has_none() -> None:
    assert [*without(written_in(shown_by(ROOT, project_tables()), ROOT), read_network())] == []


def test_a_yes_whose_test_fails_or_is_gone_is_named() -> None:
    tally = Tally(project_tables())
    rows = {"Q-001": Row(True, False, "–"), "Q-002": Row(True, True, "–"), "Q-003": Row(False, False, "It is not.")}
    tally.add("tests/client/test_over_http.py::test_putting::test_a", [Cell("Q-001")], "call", "passed")
    tally.add("tests/client/test_over_http.py::test_putting::test_b", [Cell("Q-002")], "call", "failed")
    tally.add("tests/node/test_putting.py::test_c", [Cell("Q-003")], "call", "passed")
    tally.add("tests/server/stomp/test_wire.py::test_d", [Cell("Q-002"), Cell("Q-003")], "call", "passed")
    assert [*without(shown_in(tally), rows)] == [
        "network.tsv: Q-002 over http: no test shows it",
        "network.tsv: Q-003 over stomp: a test shows it all the same",
    ]


@pytest.mark.parametrize("line", ["Q-001\tyes\tperhaps\t–", "Q-001\tyes\tno\t ", "D-SEQ-004\tyes\tno\t–", "Q-001\tno"])
def test_a_line_that_is_none_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "network.tsv"
    path.write_text("\t".join(HEADER) + f"\n{line}\n")
    with pytest.raises(TableError, match=r"network.tsv:2: "):
        read_network(path)
