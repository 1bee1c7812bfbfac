"""The page of queues, and that of each task with them: their programs run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.pages import DOCS, blocks
from wsrm_mq.node import Node

PAGE = DOCS / "queues.md"


@pytest.mark.local("opens the store that the page names")
def test_the_programs_of_the_page_run_as_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(programs) == 11
    names: dict[str, Node] = {}
    for program in programs:
        exec(program, names)
    node = names["node"]
    said = capsys.readouterr().out
    assert "{'id': '9'}" in said
    assert "missed {'id': '10'}\ncaught up" in said
    assert "again orders/paid {'id': '10'}" in said
    assert node.stats("audit").ready == 4
    assert node.stats("invoices").ready == 1
    node.close()


TASKS = ("consume", "publish", "dead-letters", "groups", "filters", "journals", "express")


@pytest.mark.local("opens the store that the page names")
@pytest.mark.parametrize("task", TASKS)
def test_the_program_of_a_task_shows_what_its_page_says(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    program, shown = blocks(DOCS / "howto" / f"queues-{task}.md")
    assert (program.kind, shown.kind) == ("python", "text")
    exec(program.text, {})
    said = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert said == shown.text.splitlines()
