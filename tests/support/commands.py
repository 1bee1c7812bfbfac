"""The command line, run in this process, in a directory of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from wsrm_mq.cli import program, status

Wsrm = Callable[..., Result]


@pytest.fixture
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A test works in a directory without configuration, in an environment without options."""
    in_directory(tmp_path, monkeypatch)
    return tmp_path


def in_directory(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a directory, in an environment without options."""
    monkeypatch.chdir(directory)
    for name in [name for name in os.environ if name.startswith("WSRM_MQ_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def wsrm(monkeypatch: pytest.MonkeyPatch) -> Wsrm:
    """Run a command in this process: ``wsrm("sequence", "list")``. `status` does not wait for its second look."""
    monkeypatch.setattr(status, "SAMPLE_SECONDS", 0.01)
    return typed


def typed(*arguments: object, **options: Any) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(program, [str(argument) for argument in arguments], prog_name="wsrm-mq", **options)


def document(result: Result) -> dict[str, Any]:
    """The JSON that a command wrote."""
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    assert found.pop("schema_version") == 1
    return found
