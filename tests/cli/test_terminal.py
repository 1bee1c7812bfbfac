"""On a real terminal: drawn tables, questions, and text of peers that stays text."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Service
from tests.support.orders_server import within
from wsrm_mq.events.inert import inert
from wsrm_mq.queue.arrival import Body

WHY = ("--reason", "the disk is back")


def asleep(pid: int) -> bool:
    """Whether it waits to be typed at. A question is on the terminal a little before its answer is read, and Python
    keeps a signal that comes between the two until a key is pressed: a person presses Ctrl-C twice."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def typed(
    *arguments: object, answer: bytes = b"", interrupt_at: bytes | None = None, columns: int = 200
) -> tuple[int, str]:
    """Run a command on a terminal of its own; answers its status and all it wrote."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "wsrm_mq", *map(str, arguments)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "COLUMNS": str(columns), "TERM": "xterm-256color"},
    )
    os.close(theirs)
    os.write(ours, answer)
    written = b""
    with contextlib.suppress(OSError):  # the other end is closed: all is read
        while piece := os.read(ours, 65_536):
            written += piece
            if interrupt_at is not None and interrupt_at in written:
                assert within(30, lambda: asleep(process.pid), bool)
                process.send_signal(signal.SIGINT)
                interrupt_at = None
    os.close(ours)
    return process.wait(30), written.decode()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31m", "\\x1b[31m"),
        ("[red]x[/red]", "[red]x[/red]"),
        ("a\r\nb\tc", "a\\r\\nb\\tc"),
        ("\x9b2J", "\\x9b2J"),
        ("\u202eevil", "\\u202eevil"),
        ("\u200b\ud800", "\\u200b\\ud800"),
        ("Ärger 日本", "Ärger 日本"),
    ],
)
def test_text_without_effect_reads_as_it_is_and_the_rest_as_escapes(text: str, shown: str) -> None:
    assert inert(text) == shown


def test_markup_and_control_characters_of_a_peer_are_inert_in_a_drawn_table(service: Service) -> None:
    service.sequence(1, action="[bold red]put[/] \x1b]0;owned\x07", connection=":smile:")
    status, written = typed("message", "list")
    assert status == 0
    assert "[bold red]put[/] \\x1b]0;owned\\x07" in written
    assert ":smile:" in written
    assert "\x1b]0;" not in written


def test_an_error_of_the_application_is_inert_in_the_verdict(service: Service) -> None:
    sequence = service.sequence(1)
    service.fail(sequence, 1, "\x1b[2J[red]gone")
    for command in ("explain", "show"):
        status, written = typed("sequence", command, sequence.terms.identifier)
        assert status == 0
        assert "[red]gone" in written
        assert "\x1b[2J" not in written


def test_an_argument_is_inert_in_the_complaint_about_it(service: Service) -> None:
    status, written = typed("sequence", "show", "\x1b[2Jnobody")
    assert status == 3
    assert "\\x1b[2Jnobody" in written


def test_on_a_terminal_control_characters_and_those_that_turn_text_are_escapes_also_with_raw(service: Service) -> None:
    service.sequence(1, body=Body("<a><b>\x1b[2J\x9b31m\u202etxt</b></a>".encode()))
    status, written = typed("message", "body", 1, "--raw")
    assert (status, written) == (0, "<a><b>\\x1b[2J\\x9b31m\\u202etxt</b></a>\r\n")
    status, written = typed("message", "body", 1)
    assert (status, written) == (0, "<a>\r\n  <b>\\x1b[2J\\x9b31m\\u202etxt</b>\r\n</a>\r\n")


def test_a_repair_asks_and_does_it_after_yes(service: Service) -> None:
    sequence = service.sequence(1)
    service.fail(sequence, 1, "no disk")
    status, written = typed("sequence", "resume", sequence.terms.identifier, *WHY, answer=b"y\n")
    assert status == 0
    short = sequence.terms.identifier.removeprefix("urn:uuid:")[:8]
    assert f"This will let {short} go on with number 1 now." in written
    assert service.instance.record(sequence.terms.identifier).blocked is None


@pytest.mark.parametrize(
    ("typing", "status"), [({"answer": b"n\n"}, 4), ({"answer": b"\n"}, 4), ({"interrupt_at": b"Go on?"}, 130)]
)
def test_a_repair_that_is_not_agreed_to_changes_nothing(
    service: Service, typing: dict[str, bytes], status: int
) -> None:
    sequence = service.sequence(1)
    service.fail(sequence, 1, "no disk")
    assert typed("sequence", "skip", sequence.terms.identifier, 1, *WHY, **typing)[0] == status  # type: ignore[arg-type]
    assert service.instance.outcomes(service.key(sequence)) == {1: None}


def test_what_needs_attention_fits_a_terminal_of_80_columns(service: Service) -> None:
    """But for commands: they are typed as they stand."""
    waiting = service.sequence(2, 3, partner="acme")
    service.fail(service.sequence(1), 1, "an error of many words " * 9)
    commands = (("status",), ("doctor",), ("sequence", "explain", waiting.terms.identifier))
    for command in commands:
        status, shown = typed(*command, columns=80)
        assert status in (0, 1), shown
        lines = [re.sub(r"\x1b\[[\d;]*m", "", line).rstrip() for line in shown.splitlines()]
        assert [line for line in lines if len(line) > 80 and "wsrm-mq " not in line] == []
        assert waiting.terms.identifier not in shown
    assert "\x1b[33mWARNING" in typed("status")[1]


def test_a_long_error_fits_too_and_the_command_in_it_is_whole(path: Path) -> None:
    status, shown = typed("store", "info", "--store", path.with_name("there is no such one"), columns=80)
    first, *others = shown.splitlines()
    assert (status, first[:8], {line[:2] for line in others}) == (5, "wsrm-mq:", {"  "})
    command = f"`wsrm-mq store init --store '{path.parent}/there is no such one'`"
    assert sum(command in line for line in others) == 1
    assert [line for line in shown.splitlines() if len(line) > 80 and str(path.parent) not in line] == []


def test_a_list_of_sequences_names_the_partner_in_80_columns(service: Service) -> None:
    service.sequence(1, 3, partner="acme")
    service.sequence(1, 3)
    status, shown = typed("sequence", "list", columns=80)
    lines = re.sub(r"\x1b\[[\d;]*m", "", shown).splitlines()
    assert (status, max(map(len, lines)) <= 80) == (0, True)
    assert [line.split()[-1] for line in lines[:3]] == ["from", "192.0.2.1", "acme"]
