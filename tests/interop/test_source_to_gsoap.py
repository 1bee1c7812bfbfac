"""Requests to a gSOAP server: its RM Destination is another one than ours, and keeps what it knows in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.orders import ECHO, PUT_ORDER, echo, put_order
from tests.support.orders_server import within
from tests.support.proxy import Numbered, Proxy
from wsrm_mq.source import RMSource
from wsrm_mq.testing import Fate, Reply, RMVersion

from .gsoap_client import Variant, build, missing, one_variant
from .gsoap_server import GsoapServer

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


class EverySecondIsLate(Numbered):
    """The first transmission of every second request is lost. gSOAP has no reply for one that comes twice."""

    def fate(self, number: int, transmission: int) -> Fate:
        return Fate.REQUEST_LOST if number % 2 == 0 and transmission == 1 else Fate.ARRIVES


@pytest.fixture
def server(variant: Variant, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[GsoapServer]:
    program = build(variant, Path(request.config.rootpath, "build", "gsoap")).with_name("rmserver")
    server = GsoapServer(program, tmp_path)
    yield server
    server.kill()


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
            source.send(envelope(put_order(n, f"p{n}")), to=line.url, action=PUT_ORDER)
        wanted = [*(f"e{n}" for n in range(6)), *(f"p{n}" for n in range(3))]
        assert within(20, server.calls, lambda calls: len(calls) >= 9) == wanted
        assert source.waiting == 3
        source.close_sequence(line.url)
        assert source.flush(20)
        assert (source.dead, server.calls()) == ([], wanted)
