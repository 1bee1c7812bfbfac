"""The help of every command: it has an example that can be typed, and fits a terminal."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.support.commands import Wsrm
from tests.test_docs import COMMANDS, problem


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_has_an_example_that_can_be_typed(wsrm: Wsrm, command: str) -> None:
    text = wsrm(*command.split()[1:], "--help").stdout.replace("\\\n", "")
    examples = re.findall(r'^ +(?:Example: )?(?:eval "\$\()?(wsrm-mq .*?)(?:\)")?$', text, re.M)
    assert examples
    for words in map(shlex.split, examples):
        assert words[: command.count(" ") + 1] == command.split()
        assert problem(words) is None, words


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_fits_eighty_columns(wsrm: Wsrm, command: str) -> None:
    text = wsrm(*command.split()[1:], "--help", terminal_width=80).stdout
    assert [line for line in text.splitlines() if len(line) > 80] == []
