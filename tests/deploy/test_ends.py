"""Each how-to begins with what it installs, and ends with a message that is sent and seen."""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

from tests.deploy.client import Client
from tests.deploy.page import HOWTO, Page
from tests.node.test_page import TASKS as OF_QUEUES
from tests.support.pages import ROOT, Shell, blocks, session

TASKS: Final = [HOWTO / f"queues-{one}.md" for one in OF_QUEUES]
"""Each is one program, which ``tests/node`` runs; they install nothing beside the package, and send nothing."""
PAGES: Final = sorted({*HOWTO.glob("*.md")} - {HOWTO / "index.md", *TASKS})
BY_SPARK: Final = HOWTO / "spark.md"
ENDS: Final = re.compile(r"python \S*(send|post|listen|poll|call)\.py http|pytest |curl .*/messages|queue (get|put) ")
EXTRAS: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
OWN: Final = {"wsrm_mq", *sys.stdlib_module_names}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_how_to_begins_with_its_installation(page: Path) -> None:
    first = next(block for block in blocks(page) if block.kind in ("sh", "python", "console", "toml"))
    assert first.kind == "sh"
    assert re.search(r"pip install '/path/to/the/repository\[[a-z,]+\]'", first.text)


def installed(page: Path) -> set[str]:
    """The packages that a page installs."""
    words = " ".join(re.findall(r"pip install (.*)$", page.read_text(), re.M))
    named = (re.split(r"[\[>=<;]", word.strip("'"))[0] for word in words.split() if "repository" not in word)
    found = {name.removesuffix("-py") for name in named}
    wanted = [extra for extras in re.findall(r"repository\[([a-z,]+)\]", words) for extra in extras.split(",")]
    while wanted:
        for requirement in EXTRAS[wanted.pop()]:
            inner = re.match(r"wsrm-mq\[([a-z,]+)\]", requirement)
            wanted += inner[1].split(",") if inner else []
            found.add(re.split(r"[\[>=<; ]", requirement)[0])
    return found


@pytest.mark.parametrize("page", [page for page in PAGES if page != BY_SPARK], ids=lambda page: page.stem)
def test_it_installs_what_its_files_import_and_its_commands_are(page: Path) -> None:
    files = {match for block in blocks(page) for match in re.findall(r"^# (\w+)(?:\.py|/)", block.text)}
    python = "\n".join(block.text for block in blocks(page) if block.kind == "python")
    imported = set(re.findall(r"^(?:from|import) (\w+)", python, re.M)) - OWN - files - {"orders"}
    lines = [line for block in blocks(page) if block.kind in ("sh", "console") for line in block.text.splitlines()]
    programs = {words[0] for line in lines if (words := line.removeprefix("$ ").split())}
    programs &= {"gunicorn", "granian", "uvicorn", "uwsgi", "pytest"}
    assert (imported | programs) - installed(page) == set()
    for worker in re.findall(r'^worker_class = "(\w+)"', python, re.M):
        assert worker == "gthread" or f"'gunicorn[{worker}]'" in page.read_text(), "what its worker needs beside"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_it_ends_with_a_message_that_is_sent_and_seen(page: Path) -> None:
    """The tests that follow the pages type it."""
    consoles = [block.text for block in blocks(page) if block.kind == "console"]
    assert consoles
    assert any(ENDS.search(text) for text in consoles)


@pytest.mark.parametrize("name", ["decoupled", "make-connection", "queues-curl"])
def test_what_a_partner_of_another_way_sends_is_seen_as_the_page_says(name: str, shell: Shell, tmp_path: Path) -> None:
    if "curl" in name and shutil.which("curl") is None:
        pytest.skip("needs curl (Debian: apt-get install curl)")
    for file in HOWTO.glob("*.py"):
        shutil.copy(file, tmp_path)
    for block in blocks(HOWTO / f"{name}.md"):
        if block.kind == "toml":
            (tmp_path / "wsrm-mq.toml").write_text(block.text)
    for typed in (
        typed for block in blocks(HOWTO / f"{name}.md") if block.kind == "console" for typed in session(block.text)
    ):
        shell.follow(typed)


MTOM: Final = (
    b'--b\r\nContent-Type: application/xop+xml; charset=UTF-8; type="text/xml"\r\nContent-ID: <root>\r\n\r\n'
    b'<?xml version="1.0" encoding="utf-8"?>%s\r\n--b--\r\n'
)
MULTIPART: Final = 'multipart/related; type="application/xop+xml"; start="<root>"; start-info="text/xml"; boundary="b"'


def test_spyne_reads_mtom_with_a_declaration_as_its_page_says_and_a_failure_says_where_to_look(tmp_path: Path) -> None:
    for wrapped, is_read in (("without_declaration,", True), ("soap,", False)):
        directory = tmp_path / str(is_read)
        directory.mkdir()
        with Page("spyne", directory, {"    without_declaration,": f"    {wrapped}"}) as page:
            if is_read:
                page.follow()
            with Client(page.port, "/") as client:
                client.create()
                body = '<put xmlns="urn:example:orders"><text>a table</text></put>'
                client.wire.post(MTOM % client.message(1, body), {"Content-Type": MULTIPART})
                page.until_said("an order: a table" if is_read else "Hint: Spyne reads no multipart message (MTOM)")
