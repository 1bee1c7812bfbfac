"""The pages on nginx and STOMP are followed as they stand; ``tests/interop`` follows what is in JavaScript and Java."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.deploy.page import HOWTO, Page
from tests.support.pages import Shell, blocks, session
from tests.support.programs import free_port


@pytest.mark.skipif(shutil.which("curl") is None or shutil.which("openssl") is None, reason="needs curl and openssl")
def test_the_queues_behind_nginx_are_used_with_a_token_or_a_certificate_as_its_page_says(tmp_path: Path) -> None:
    with Page("queues-nginx", tmp_path) as page:
        page.follow()


def follow_stomp(shell: Shell, directory: Path, *, consoles: int | None = None) -> None:
    """Follow the page on STOMP in the shell's directory: its first blocks of commands, or all."""
    page = blocks(HOWTO / "queues-stomp.md")
    for name in ("orders.py", "send.py"):
        shutil.copy(HOWTO / name, directory)
    for block in page:
        named = re.match(r"(?:#|//) (\S+\.(?:toml|py|mjs|java))\n", block.text)
        if named is not None:
            (directory / named[1]).write_text(block.text)
    shell.type(f"export STOMP_PORT={free_port()} WEBSOCKET_PORT={free_port()}")
    for text in [block.text for block in page if block.kind == "console"][:consoles]:
        for typed in session(text):
            shell.follow(typed)


def test_a_consumer_in_python_takes_over_stomp_what_a_partner_has_sent_as_its_page_says(
    shell: Shell, tmp_path: Path
) -> None:
    pytest.importorskip("stomp", reason="stomp.py is not installed: pip install stomp-py")
    follow_stomp(shell, tmp_path, consoles=2)
