"""``wsrm-mq envelope decode``: words for people, a document for programs, a status for scripts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

import pytest

from tests.cli.conftest import Shell
from tests.cli.test_terminal import typed
from tests.support.commands import Wsrm
from tests.support.programs import ROOT
from wsrm_mq.cli import envelope
from wsrm_mq.testing import EnvelopeFactory

SEQUENCE: Final = "urn:uuid:5a7d0b7e-0000-4000-8000-000000000001"
MESSAGE: Final = EnvelopeFactory().message(SEQUENCE, 3)


def test_a_message_is_told_in_words(wsrm: Wsrm, somewhere: Path) -> None:
    (somewhere / "m.xml").write_bytes(MESSAGE)
    done = wsrm("envelope", "decode", "m.xml")
    assert (done.exit_code, done.stderr) == (0, "")
    told = [line[:12].strip() for line in done.stdout.splitlines()]
    assert [head for head in told if head] == ["message", "versions", "headers", "body", "receiver", "wrong"]
    assert f"Message 3 of the sequence {SEQUENCE}." in done.stdout
    assert "SOAP 1.2, WS-Addressing 1.0, WS-ReliableMessaging 1.1 (1.2 is the same on the wire)" in done.stdout
    assert f"Sequence, mandatory: Identifier {SEQUENCE}, MessageNumber 3" in done.stdout
    assert done.stdout.splitlines()[-1].split() == ["wrong", "nothing"]


def test_what_is_wrong_is_told_with_its_place_and_a_status(wsrm: Wsrm, somewhere: Path) -> None:
    (somewhere / "m.http").write_bytes(
        b"POST / HTTP/1.1\nContent-Type: text/xml\nAuthorization: Basic c2VjcmV0\nContent-Length: 9\n\n<a>\n<b></a>"
    )
    done = wsrm("envelope", "decode", "m.http")
    assert done.exit_code == 1
    assert "The XML cannot be read" in done.stdout
    assert re.search(r"Line 2, column \d+ of the envelope: ", done.stdout)
    assert "c2VjcmV0" not in done.output
    document = json.loads(wsrm("envelope", "decode", "m.http", "--json").stdout)
    [message] = document["messages"]
    assert message["start"] == "POST / HTTP/1.1"
    http, *_ = message["problems"]
    assert http == {"problem": "Behind it are 2 bytes that are no message of HTTP.", "line": None, "column": None}


def test_standard_input_is_read_too(shell: Shell, somewhere: Path) -> None:
    done = shell("envelope", "decode", "-", input=MESSAGE)
    assert done.returncode == 0
    assert b"Message 3 of the sequence" in done.stdout


@pytest.mark.parametrize("name", ["nosuch", "."])
def test_a_file_that_cannot_be_read_is_a_line(wsrm: Wsrm, somewhere: Path, name: str) -> None:
    done = wsrm("envelope", "decode", name)
    assert done.exit_code == 2
    assert "Traceback" not in done.output


def test_a_file_that_is_too_large_is_a_line(wsrm: Wsrm, somewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelope, "_LARGEST", 10)
    (somewhere / "large").write_bytes(b"x" * 11)
    done = wsrm("envelope", "decode", "large")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "wsrm-mq: large is larger than 10 bytes; cut the message out of it.\n"


def test_text_of_a_peer_stays_text_on_a_terminal_of_eighty_columns(tmp_path: Path) -> None:
    hostile = MESSAGE.replace(b"</wsa:To>", b"/\xc2\x9b31m[red]</wsa:To>")
    (tmp_path / "m.xml").write_bytes(hostile)
    status, written = typed("envelope", "decode", tmp_path / "m.xml", columns=80)
    assert status == 0
    assert "\x9b" not in written
    assert "[red]" in written
    plain = [re.sub(r"\x1b\[\d*m", "", line) for line in written.splitlines()]
    assert [line for line in plain if len(line) > 80 and " " in line[12:]] == [], "one word may be longer"


def test_the_operating_page_shows_what_is_written(wsrm: Wsrm, somewhere: Path) -> None:
    section = (ROOT / "docs" / "operating.md").read_text().partition("\n## A message from the wire\n")[2]
    request, written = re.findall(r"^```(?:http|text)\n(.*?)^```$", section, re.M | re.S)[:2]
    (somewhere / "request.http").write_text(request)
    assert wsrm("envelope", "decode", "request.http").stdout == written
