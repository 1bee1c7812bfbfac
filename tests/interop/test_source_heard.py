"""Our RM Source to servers of other stacks and to our own, which answer it at an address of its own, or are polled,
over a line that loses one in five of the requests.

The program that sends to our own server is killed twice, and that once, as in ``test_source_live``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.orders import echo, put_order
from tests.support.processes import Python
from tests.support.programs import free_port
from tests.support.proxy import Proxy
from wsrm_mq.source import RMSource, Sent
from wsrm_mq.testing import WSRM_1_0, WSRM_1_1, Fate, Reply, RMVersion, SOAPVersion

from .conftest import both_versions, texts
from .java_server import JavaServer
from .test_source_live import (
    COUNT,
    OneInFive,
    Ours,
    have_all_sent,
    in_doubt,
    java_server,
    rows,
    stored,
    without_reply,
)

__all__ = ["java_server"]

pytestmark = [pytest.mark.live, pytest.mark.timeout(420)]

FEW: Final = 40
POLL: Final = b"/MakeConnection<"
StartJavaServer = Callable[..., JavaServer]


class ToMetro(OneInFive):
    """What is lost is the request. Metro gives no reply twice: a copy of a poll would have one that nothing reads, and
    a copy of a request with a reply that comes while that is done makes Metro lose its fiber, and all later replies
    with it."""

    def number(self, body: bytes) -> int | None:
        return None if POLL in body else super().number(body)

    def fate(self, number: int, transmission: int) -> Fate:
        fate = super().fate(number, transmission)
        return Fate.ARRIVES if fate is Fate.ARRIVES else Fate.REQUEST_LOST

    def transmit(self, number: int) -> tuple[Fate, bool, float]:
        fate, _repeats, seconds = super().transmit(number)
        return fate, False, seconds


def envelope(body: str) -> bytes:
    return f'<s:Envelope xmlns:s="{SOAPVersion.SOAP_1_2.namespace}"><s:Body>{body}</s:Body></s:Envelope>'.encode()


@pytest.fixture
def acks_to() -> Iterator[tuple[str, str]]:
    """AcksTo, which leads over a line of its own, and the place where the source listens."""
    port = free_port()
    with Proxy(port, OneInFive()) as line:
        yield f"{line.url}acks", f"127.0.0.1:{port}"


@both_versions
@pytest.mark.parametrize(("name", "argument"), [("cxf", "orders"), ("metro", "")], ids=["cxf", "metro"])
def test_a_server_that_replies_at_an_address_does_each_order_once_and_each_reply_comes(
    java_server: StartJavaServer,
    tmp_path: Path,
    rm: RMVersion,
    acks_to: tuple[str, str],
    name: str,
    argument: str,
) -> None:
    server = java_server(name, argument or rm.label)
    address, listen = acks_to if name == "cxf" else (f"http://{acks_to[1]}/acks", acks_to[1])
    with Proxy(server.port, OneInFive() if name == "cxf" else ToMetro()) as line:
        send_few(line, tmp_path, rm, acks_to=address, listen=listen)
    assert server.calls() == texts(1, FEW)


def test_a_metro_server_that_is_polled_does_each_order_once_and_each_reply_is_fetched(
    java_server: StartJavaServer, tmp_path: Path
) -> None:
    """It leaves each reply to a MakeConnection, and each acknowledgement too."""
    server = java_server("metro", "1.1", "polled")
    with Proxy(server.port, ToMetro()) as line:
        send_few(line, tmp_path, WSRM_1_1, polls=True)
    assert server.calls() == texts(1, FEW)
    fetched = [one for one in line.exchanges if POLL in one.request and one.answer is not None and one.answer.body]
    assert sum(b"echoResponse" in one.answer.body for one in fetched if one.answer is not None) >= FEW / 2


def send_few(line: Proxy, directory: Path, rm: RMVersion, **options: Any) -> None:
    """Each order is acknowledged, and has its own reply where it wants one, when this returns."""
    with RMSource(directory / "outbox.db", rm=rm.label, addressing="1.0", offers=True, **options) as source:
        asked: dict[str, Sent] = {}
        for n in range(1, FEW + 1):
            if n % 2:
                source.send(envelope(put_order(n, f"order {n}")), to=f"{line.url}orders", action="put_order")
            else:
                body = envelope(echo(f"order {n}"))
                asked[f"order {n}"] = source.ask(body, to=f"{line.url}orders", action="echo")
        assert source.flush(90)
        for text, sent in asked.items():
            assert Reply.parse(source.reply(sent, 1).content).body.findtext("{*}echoResult") == text


@pytest.mark.parametrize("rm", [WSRM_1_1, pytest.param(WSRM_1_0, marks=pytest.mark.long)], ids=["rm1.1", "rm1.0"])
def test_our_server_that_replies_at_an_address_does_each_order_once_over_kills(
    tmp_path: Path, rm: RMVersion, python: Python, acks_to: tuple[str, str]
) -> None:
    address, listen = acks_to
    store = tmp_path / "outbox.db"
    with Ours(tmp_path, once=True, decoupled="127.0.0.1") as server:
        have_all_sent(server, OneInFive(), store, rm, python, is_replied, acks_to=address, listen=listen)
        assert server.done(COUNT) == texts(1, COUNT)
    assert in_doubt(store) == set()
    assert without_reply(store) == set()


def test_our_server_that_is_polled_does_each_order_once_over_kills(tmp_path: Path, python: Python) -> None:
    """No reply is there in time for the response to its request, so each is fetched."""
    store = tmp_path / "outbox.db"
    with Ours(tmp_path, once=True, hold_wait="0.01", takes=0.02) as server:
        have_all_sent(server, OneInFive(), store, WSRM_1_1, python, is_replied, polls=True)
        assert server.done(COUNT) == texts(1, COUNT)
    assert in_doubt(store) == set()
    assert without_reply(store) == set()


def is_replied(store: Path) -> bool:
    """Whether all orders are acknowledged, and replied to."""
    query = "SELECT count(*) FROM entry WHERE outcome IS NULL AND number >= 1 AND lane IS NOT NULL"
    return stored(store) == COUNT and rows(store, query) == [(0,)]
