"""Requests to a gSOAP server: its RM Destination is another one than ours, and keeps what it knows in memory."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.orders import ECHO, PUT_ORDER, echo, put_order
from tests.support.orders_server import within
from tests.support.programs import free_port
from tests.support.proxy import Numbered, Proxy
from wsrm_mq.queue.policy import Resend
from wsrm_mq.source import RMSource
from wsrm_mq.testing import Fate, Reply, RMVersion

from .gsoap_client import Variant, build, missing, one_variant

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


class EverySecondIsLate(Numbered):
    """The first transmission of every second request is lost. gSOAP has no reply for one that comes twice."""

    def fate(self, number: int, transmission: int) -> Fate:
        return Fate.REQUEST_LOST if number % 2 == 0 and transmission == 1 else Fate.ARRIVES


class GsoapServer(NamedTuple):
    port: int
    said: Path

    @property
    def calls(self) -> list[str]:
        return self.said.read_text().splitlines()


@pytest.fixture
def server(variant: Variant, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[GsoapServer]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    program = build(variant, Path(request.config.rootpath, "build", "gsoap")).with_name("rmserver")
    said = tmp_path / "said.txt"
    with said.open("w") as out:
        running = subprocess.Popen([program, str(port)], stdout=out, stderr=subprocess.PIPE)
    assert running.stderr is not None
    assert running.stderr.readline() == b"up\n"
    yield GsoapServer(port, said)
    running.kill()
    running.wait()
    running.stderr.close()


@one_variant
def test_one_way_requests_are_acknowledged_at_an_address_of_ours_and_replies_come_there(
    server: GsoapServer, rm: RMVersion, variant: Variant, tmp_path: Path
) -> None:
    """It acknowledges them when one comes again, and on no response."""
    soap = variant.soap.namespace
    acks_to = f"http://127.0.0.1:{free_port()}/acks"

    def envelope(body: str) -> bytes:
        return f'<s:Envelope xmlns:s="{soap}"><s:Body>{body}</s:Body></s:Envelope>'.encode()

    with (
        Proxy(server.port, EverySecondIsLate()) as line,
        RMSource(tmp_path / "outbox.db", rm=rm.label, acks_to=acks_to, resend=Resend((300,) * 60)) as source,
    ):
        for n in range(6):
            source.send(envelope(put_order(n)), to=line.url, action=PUT_ORDER)
        assert source.flush(20)
        for n in range(3):
            sent = source.ask(envelope(echo(f"e{n}")), to=line.url, action=ECHO)
            assert Reply.parse(source.reply(sent, 20).content).body.findtext("{*}echoResult") == f"e{n}"
        assert source.flush(20)
        wanted = [*(f"put {n}" for n in range(6)), *(f"echo e{n}" for n in range(3))]
        assert (source.dead, server.calls) == ([], wanted)


@one_variant
def test_requests_reach_a_gsoap_server_once_in_order_over_a_bad_line(
    server: GsoapServer, rm: RMVersion, variant: Variant, tmp_path: Path
) -> None:
    """It acknowledges one-way requests in CloseSequenceResponse alone."""
    soap = variant.soap.namespace

    def envelope(body: str) -> bytes:
        return f'<s:Envelope xmlns:s="{soap}"><s:Body>{body}</s:Body></s:Envelope>'.encode()

    with (
        Proxy(server.port, EverySecondIsLate()) as line,
        RMSource(tmp_path / "outbox.db", rm=rm.label) as source,
    ):
        for n in range(6):
            sent = source.ask(envelope(echo(f"e{n}")), to=line.url, action=ECHO)
            assert Reply.parse(source.reply(sent, 20).content).body.findtext("{*}echoResult") == f"e{n}"
        for n in range(3):
            source.send(envelope(put_order(n)), to=line.url, action=PUT_ORDER)
        wanted = [*(f"echo e{n}" for n in range(6)), *(f"put {n}" for n in range(3))]
        assert within(20, lambda: server.calls, lambda calls: len(calls) >= 9) == wanted
        assert source.waiting == 3
        source.close_sequence(line.url)
        assert source.flush(20)
        assert (source.dead, server.calls) == ([], wanted)
