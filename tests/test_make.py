"""``make`` says what it does while nothing is to be seen, and has a way to test one room."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "--no-print-directory", f"PYTHON={sys.executable}", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("target", ["demo", "test", "bench-floor", "bench-spark", "mutants", "pipeline"])
def test_an_installation_is_told_with_the_time_it_takes_before_it_begins(target: str, tmp_path: Path) -> None:
    lines = make("--dry-run", target, f"VENV={tmp_path}").stdout.splitlines()
    installations = [line for line in lines if " pip install " in line]
    assert installations
    for line in installations:
        assert re.match(r'echo "Installing into \S+, once: .*(minute).*"; \S+ -m pip install', line), line


def test_the_suite_says_how_long_it_takes_and_names_the_quick_way() -> None:
    said = make("--dry-run", "test").stdout
    assert "minutes" in said
    assert "make quick" in said


def test_quick_runs_the_tests_of_one_room() -> None:
    def tests_of(room: str) -> list[str]:
        (command,) = [
            line for line in make("--dry-run", "quick", f"ROOM={room}").stdout.splitlines() if "pytest" in line
        ]
        return re.findall(r"tests/\S+", command.partition("test_imports.py")[2])

    assert tests_of("events") == ["tests/events"]
    assert tests_of("wsgi") == ["tests/test_wsgi.py"]
    assert set(tests_of("asgi")) == {"tests/test_asgi.py", "tests/test_asgi_in_process.py"}
    refused = make("quick", "ROOM=nowhere", "STAMP=")
    assert refused.returncode == 2
    assert "No tests are named nowhere" in refused.stderr


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_the_quick_way_is_told_where_contributors_look(page: str) -> None:
    assert "make quick ROOM=events" in (ROOT / page).read_text()
    assert "make quick " in make("help").stdout
