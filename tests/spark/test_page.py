"""The page on Spark ends with a message that is sent, and seen in Spark."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.pages import DOCS, Shell, blocks, fits, session

HOWTO = DOCS / "howto"


@pytest.mark.timeout(300)
def test_what_is_sent_is_in_the_first_table_as_the_page_says(shell: Shell, tmp_path: Path) -> None:
    for file in HOWTO.glob("*.py"):
        shutil.copy(file, tmp_path)
    (console,) = (block.text for block in blocks(HOWTO / "spark.md") if block.kind == "console")
    for typed in session(console):
        shown = shell.type(typed.command, lines=typed.shown.count("\n"), seconds=240)
        assert fits(shown, typed.shown), f"$ {typed.command}\n{shown}"
