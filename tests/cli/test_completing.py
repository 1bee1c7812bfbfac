"""What a shell is offered: keys and values of queries, names that the store has, and nothing where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli.conftest import Service
from tests.support.commands import Wsrm, document
from wsrm_mq.cli import completing, program

UUID = 9
"""An identifier without its scheme begins here."""


def offered(words: str, *, shell: str = "zsh") -> list[str]:
    """The words that are offered for the last of these."""
    done = CliRunner().invoke(program, env=_asked(words, shell), prog_name="wsrm-mq")
    assert done.stderr == ""
    return _read(done.stdout, shell)


def offered_in_a_process(words: str, *, shell: str) -> list[str]:
    """What is offered for the last of these words, in a process as the shell begins it."""
    done = subprocess.run(
        [sys.executable, "-c", "from wsrm_mq.cli import main; main()"],
        env={**os.environ, **_asked(words, shell)},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.stderr == ""
    return _read(done.stdout, shell)


def _asked(words: str, shell: str) -> dict[str, str]:
    at = str(len(words.split(" ")) - 1)
    return {"_WSRM_MQ_COMPLETE": f"{shell}_complete", "COMP_WORDS": words, "COMP_CWORD": at}


def _read(said: str, shell: str) -> list[str]:
    lines = said.splitlines()
    if shell == "bash":
        return [line.partition(",")[2] for line in lines]
    return [line.replace("\\:", ":") for line in lines[1::3]]


def test_a_word_of_a_query_is_completed_its_key_and_then_its_value() -> None:
    assert offered("wsrm-mq sequence list ver") == ["verdict:"]
    assert offered("wsrm-mq message list state:d") == ["state:delivered", "state:dead", "state:discarded"]
    assert "partner:" in offered("wsrm-mq sequence hold ")
    assert offered("wsrm-mq sequence list --verdict bl") == ["blocked"]


def test_bash_which_takes_a_colon_for_a_word_is_offered_the_value_alone() -> None:
    assert offered_in_a_process("wsrm-mq sequence list verdict : bl", shell="bash") == ["blocked"]
    assert "running" in offered("wsrm-mq sequence list verdict :", shell="bash")


def test_names_of_the_store_are_completed(service: Service) -> None:
    made = [service.sequence(1, connection="a:1").terms.identifier[UUID:] for _ in range(2)]
    assert sorted(offered("wsrm-mq sequence show ")) == sorted(made)
    assert offered(f"wsrm-mq sequence explain {made[0][:7]}") == [made[0]]
    assert offered(f"wsrm-mq message list seq:urn:uuid:{made[0][:7]}") == [f"seq:urn:uuid:{made[0]}"]
    assert offered(f"wsrm-mq sequence hold {made[0][:7]}") == [made[0]]
    assert offered("wsrm-mq message list queue:/o") == ["queue:/orders"]
    assert offered("wsrm-mq message list --connection a") == ["a:1"]


def test_positions_and_plans_and_connections_are_completed(service: Service, wsrm: Wsrm) -> None:
    made = service.sequence(1, 2, 3, connection="a:1")
    service.fail(made, 1, "no disk")
    wsrm("sequence", "skip", made.terms.identifier, 1, "--reason", "why", "--yes")
    wsrm("replay", "plan", "seq:" + made.terms.identifier, "-o", "plan.json", "--reason", "why")
    assert sorted(offered("wsrm-mq message show ")) == ["1", "2", "3"]
    assert offered("wsrm-mq message body 2") == ["2"]
    assert offered("wsrm-mq dead-letter show ") == ["1"]
    assert offered("wsrm-mq connection show a") == ["a:1"]
    (plan,) = document(wsrm("replay", "list", "--json"))["plans"]
    assert offered("wsrm-mq replay status " + plan["id"][:3]) == [plan["id"]]


def test_partners_of_the_configuration_are_completed(somewhere: Path) -> None:
    (somewhere / "wsrm-mq.toml").write_text('[partner.acme]\nprincipal = "cn=acme"\n')
    assert offered("wsrm-mq sequence list partner:a") == ["partner:acme"]


def test_the_store_is_the_one_that_the_command_names(service: Service, somewhere: Path) -> None:
    made = service.sequence(1).terms.identifier[UUID:]
    elsewhere = f"wsrm-mq sequence show --store {somewhere / 'other.db'} "
    assert offered(elsewhere) == []
    assert offered(f"wsrm-mq sequence show --store {service.path} ") == [made]


@pytest.mark.parametrize("content", [b"", b"no store", None], ids=["empty", "no store", "none"])
def test_nothing_is_offered_where_there_is_no_store_to_read(somewhere: Path, content: bytes | None) -> None:
    if content is not None:
        (somewhere / "wsrm.db").write_bytes(content)
    assert offered("wsrm-mq sequence show ") == []
    assert [file.name for file in somewhere.iterdir()] == (["wsrm.db"] if content is not None else [])


def test_no_more_is_offered_than_can_be_read(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(completing.MOST + 5):
        service.sequence()
    assert len(offered("wsrm-mq sequence show ")) == completing.MOST


def test_each_shell_has_its_script(wsrm: Wsrm) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "_WSRM_MQ_COMPLETE" in wsrm("completion", shell).stdout
