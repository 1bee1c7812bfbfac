"""Starting: help is cheap, every name works, statuses are kept."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.cli.conftest import Service, Shell
from tests.support.commands import Wsrm
from wsrm_mq.cli import COMMANDS, program

HEAVY = ("sqlalchemy", "lxml", "msgspec", "rich", "sqlite3", "spyne", "uvicorn", "wsrm_mq.store")


def modules_of(*arguments: str) -> set[str]:
    """What a run of the command has imported at its end."""
    code = (
        "import sys, atexit; atexit.register(lambda: print('\\n'.join(sys.modules), file=sys.stderr));"
        "from wsrm_mq.cli import main; sys.argv[0] = 'wsrm-mq'; main()"
    )
    done = subprocess.run([sys.executable, "-E", "-c", code, *arguments], capture_output=True, text=True, check=True)
    return set(done.stderr.splitlines())


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("store", "--help"), ("sequence", "resume", "-h")])
def test_help_imports_nothing_heavy(arguments: tuple[str, ...]) -> None:
    assert modules_of(*arguments).isdisjoint(HEAVY)


def test_the_module_of_no_command_imports_anything_heavy() -> None:
    modules = ", ".join({module for module, _text in COMMANDS.values()})
    code = f"import sys, {modules}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-E", "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()).isdisjoint(HEAVY)


def test_every_command_is_there_and_helps(wsrm: Wsrm) -> None:
    listed = wsrm("--help").stdout
    for name, (_module, text) in COMMANDS.items():
        assert text in listed
        assert wsrm(name, "--help").exit_code == 0


def test_every_subcommand_helps_in_lines_that_are_not_cut(wsrm: Wsrm) -> None:
    listed = {name: wsrm(name, "--help").stdout.partition("Commands:")[2] for name in COMMANDS}
    assert sum(map(bool, listed.values())) > 8
    assert [name for name, subcommands in listed.items() if "..." in subcommands] == []


def test_an_unknown_command_is_a_usage_error(shell: Shell) -> None:
    done = shell("sequense")
    assert done.returncode == 2
    assert b"No such command 'sequense'" in done.stderr


def test_both_ways_to_start_are_one(shell: Shell) -> None:
    assert shell("--version").stdout.startswith(b"wsrm-mq ")
    assert program.name == "wsrm-mq"


def test_the_version_is_a_name_and_a_number(shell: Shell) -> None:
    assert re.fullmatch(rb"wsrm-mq [0-9]\S+\n", shell("--version").stdout)


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_a_completion_script_calls_back_under_its_name(wsrm: Wsrm, name: str) -> None:
    assert "_WSRM_MQ_COMPLETE" in wsrm("completion", name).stdout


def test_the_shell_is_told_what_can_follow(shell: Shell) -> None:
    asked = {**os.environ, "_WSRM_MQ_COMPLETE": "bash_complete", "COMP_WORDS": "wsrm-mq sequence ", "COMP_CWORD": "2"}
    words = shell(env=asked).stdout.decode().split()
    assert "plain,explain" in words
    assert "plain,resume" in words


def test_a_wrong_configuration_is_a_usage_error_of_every_command(wsrm: Wsrm, service: Service) -> None:
    (service.path.parent / "wsrm-mq.toml").write_text("on_posion = 'block'")
    for command in (("sequence", "list"), ("store", "info"), ("config", "check"), ("serve", "x:y")):
        result = wsrm(*command)
        assert result.exit_code == 2
        assert result.stderr == "wsrm-mq: wsrm-mq.toml: on_posion: there is no such option; did you mean on_poison?\n"
