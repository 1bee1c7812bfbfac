"""Clients of STOMP in Java (Vert.x) and JavaScript (@stomp/stompjs), as they are."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.server.stomp.conftest import SECRET, Running
from tests.server.test_pages import follow_stomp
from tests.support.pages import Shell

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

SCRIPTS: Final = Path(__file__).with_name("javascript")
SECONDS: Final = 120
HARD: Final = "a:b\nc\\d Größe"
"""A header that has to be escaped, which the client in JavaScript does in 1.2 alone."""
both_versions = pytest.mark.parametrize("version", ["1.1", "1.2"])


@pytest.fixture
def stomp(tmp_path: Path) -> Iterator[Running]:
    server = Running(tmp_path / "store.db")
    yield server
    server.close()


@pytest.fixture(scope="session")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs in JavaScript, beside the packages that they import."""
    absent = [tool for tool in ("node", "npm") if shutil.which(tool) is None]
    if absent:
        pytest.skip(f"no {', '.join(absent)}: apt-get install nodejs npm")
    place = tmp_path_factory.mktemp("javascript") / "peers"
    shutil.copytree(SCRIPTS, place)
    done = subprocess.run(["npm", "install", "--no-audit"], cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return place


def told(*command: object) -> dict[str, Any]:
    """The events that a client says have happened."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        found.update(json.loads(line))
    return found


def wanted(version: str, language: str) -> dict[str, Any]:
    return {
        "version": version,
        "special": f"{'Größe' if (version, language) == ('1.1', 'js') else HARD}|Größe 🐘",
        "client": "order 1 true",
        "client-individual": "order 1 true",
        "auto": f"/topic/{language}/created event",
        "transaction": "commit",
        "beat": True,
        "reconnect": "again true",
    }


def test_a_client_in_java_sends_acknowledges_commits_and_reconnects(java: Path, stomp: Running) -> None:
    version = "1.2"  # in 1.1 this client acknowledges as in 1.2
    home = java / "stomp"
    path = f"{home / 'stomp-1.jar'}:{home}/lib/*"
    said = told("java", "-XX:TieredStopAtLevel=1", "-cp", path, "peers.StompPeer", stomp.port, version, SECRET)
    assert said == wanted(version, "java")


@both_versions
def test_a_client_in_javascript_sends_acknowledges_commits_and_reconnects(
    scripts: Path, stomp: Running, version: str
) -> None:
    said = told("node", scripts / "stomp_peer.mjs", stomp.websocket_port, version, SECRET)
    assert said == wanted(version, "js")


def test_consumers_in_javascript_and_java_take_what_a_partner_has_sent_as_their_page_says(
    scripts: Path, java: Path, shell: Shell, tmp_path: Path
) -> None:
    (tmp_path / "node_modules").symlink_to(scripts / "node_modules")
    (tmp_path / "lib").symlink_to(java / "stomp" / "lib")
    follow_stomp(shell, tmp_path)
