"""The pages on partners are followed as they stand.

A ``console`` block is typed into a shell. ``http`` blocks are exchanges: a request, and the response that comes of it.
Of a response the envelope is compared, without white space between elements; identifiers are compared by what they
stand for.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from tests.deploy.page import HOWTO
from tests.interop.gsoap_client import missing
from tests.support.pages import DOCS, Shell, blocks, session
from tests.support.proxy import EverySecond, Proxy
from wsrm_mq import WSRMMiddleware
from wsrm_mq.config import load
from wsrm_mq.config.settings import OPTIONS, PARTNER_OPTIONS
from wsrm_mq.testing import HTTPAnswer, WSGIWire

PARTNERS = DOCS / "partners"
EXCHANGES = [path for path in sorted(PARTNERS.glob("*.md")) if any(block.kind == "http" for block in blocks(path))]
_UUID = re.compile(r"urn:uuid:[0-9a-f-]{36}")
_SOAP = "http://schemas.xmlsoap.org/soap/envelope/"


def echo(environ: Any, start_response: Any) -> Iterator[bytes]:
    """Answers a request with its own Body, in an envelope of its own version."""
    root = etree.fromstring(environ["wsgi.input"].read())
    namespace = etree.QName(root).namespace
    envelope = etree.Element(f"{{{namespace}}}Envelope", nsmap={"s": namespace})
    envelope.append(root.find(f"{{{namespace}}}Body"))
    content = etree.tostring(envelope)
    media_type = "text/xml" if namespace == _SOAP else "application/soap+xml"
    start_response("200 OK", [("Content-Type", media_type), ("Content-Length", str(len(content)))])
    yield content


class Exchanged:
    """An exchange as a page shows it, made now: ``given`` says what its identifiers stand for."""

    def __init__(self, application: Any) -> None:
        self._wire = WSGIWire(application, "/orders")
        self.given: dict[str, str] = {}

    def ask(self, shown: str) -> HTTPAnswer:
        head, _, envelope = shown.partition("\n\n")
        fields = dict(line.split(": ", 1) for line in head.splitlines()[1:])
        return self._wire.post(_UUID.sub(self._meant, envelope).encode(), fields)

    def _meant(self, found: re.Match[str]) -> str:
        return self.given.get(found[0], found[0])

    def compare(self, answer: HTTPAnswer, shown: str) -> None:
        head, _, envelope = shown.partition("\n\n")
        assert head.splitlines()[0] == f"HTTP/1.1 {answer.status} {answer.reason}"
        for told, expected in zip(_lines(answer.body), _lines(envelope.encode()), strict=True):
            for mine, its in zip(_UUID.findall(told), _UUID.findall(expected), strict=True):
                self.given.setdefault(its, mine)
            assert told == _UUID.sub(self._meant, expected)


def _lines(document: bytes) -> list[str]:
    """A line for each element, in the order of the document."""
    return [
        f"{element.tag} {sorted(element.attrib.items())} {(element.text or '').strip()}"
        for element in etree.fromstring(document).iter(etree.Element)
    ]


@pytest.mark.parametrize("page", EXCHANGES, ids=lambda page: page.stem)
def test_the_exchange_of_a_page_goes_as_it_shows(page: Path, tmp_path: Path) -> None:
    """The service is set as the page says."""
    shown = [block.text for block in blocks(page) if block.kind == "http"]
    (settings,) = [block.text for block in blocks(page) if block.kind == "toml"]
    file = tmp_path / "wsrm-mq.toml"
    file.write_text(settings)
    with WSRMMiddleware.from_settings(echo, load(file, {}, store=str(tmp_path / "wsrm.db"))) as application:
        exchange = Exchanged(application)
        for request, response in zip(shown[::2], shown[1::2], strict=True):
            exchange.compare(exchange.ask(request), response)


@pytest.mark.parametrize("page", sorted(PARTNERS.glob("*.md")), ids=lambda page: page.stem)
def test_what_a_page_sets_here_can_be_set(page: Path, tmp_path: Path) -> None:
    """In its ``toml`` blocks, and between backticks."""
    inline = re.findall(r"`([a-z_]+ = [^`\n]+)`", page.read_text())
    for text in [block.text for block in blocks(page) if block.kind == "toml"] + inline:
        file = tmp_path / "wsrm-mq.toml"
        is_of_partner = text.partition(" = ")[0] in set(PARTNER_OPTIONS) - set(OPTIONS)
        file.write_text(f'[partner.one]\npath = "/orders"\n{text}' if is_of_partner else text)
        assert load(file, {}), text


def test_gsoap_sends_as_its_page_says(shell: Shell, tmp_path: Path) -> None:
    """And so it does over a line that loses every second message."""
    follow_gsoap("gsoap", shell, tmp_path)
    orders = tmp_path / "server.txt"
    for program in ("send", "listen"):
        before = orders.read_text()
        with Proxy(shell.port, line := EverySecond()) as proxy:
            shell.type(f"./{program} {proxy.url} a b c d")
        assert line.traffic.requests_lost == line.traffic.answers_lost == 1
        assert re.findall("order: (.+)", orders.read_text().removeprefix(before)) == ["a", "b", "c", "d"]


def test_gsoap_is_sent_to_as_its_page_says(shell: Shell, tmp_path: Path) -> None:
    follow_gsoap("to-gsoap", shell, tmp_path)


def test_what_takes_the_versions_of_wcf_is_sent_to_as_its_page_says(shell: Shell) -> None:
    assert shell.follow_page(PARTNERS / "to-wcf.md") > 4


def follow_gsoap(page: str, shell: Shell, directory: Path) -> None:
    """Build and type what the page shows."""
    if why := missing():
        pytest.skip(why)
    for file in (*PARTNERS.glob("*.[ch]"), *PARTNERS.glob("*.py"), HOWTO / "orders.py"):
        shutil.copy(file, directory)
    for block in blocks(PARTNERS / f"{page}.md"):
        if block.kind == "sh" and not block.text.startswith("pip "):
            assert "error" not in shell.type(block.text.strip())
        for typed in session(block.text) if block.kind == "console" else ():
            shell.follow(typed)
