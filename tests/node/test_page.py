"""The page of queues: its programs run as they stand, one after the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from wsrm_mq.node import Node

PAGE = Path(__file__).parents[2] / "docs" / "queues.md"


def test_the_programs_of_the_page_run_as_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(programs) == 7
    names: dict[str, Node] = {}
    for program in programs:
        exec(program, names)
    node = names["node"]
    said = capsys.readouterr().out
    assert "{'id': '9'}" in said
    assert node.stats("audit").ready == 2
    assert node.stats("invoices").ready == 1
    node.close()
