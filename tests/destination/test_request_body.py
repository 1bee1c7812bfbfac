"""Bodies that break off, behind the server that does not tell: granian shows a WSGI application the end of the
connection as the end of a chunked body."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.support.asgi_server import ASGIServer
from tests.support.orders import OrderSender, chunked
from tests.support.orders_server import within

SPOOLED = 300_000
PARTS = 'multipart/related; type="application/xop+xml"; start-info="application/soap+xml"; boundary=edge'
BARE = "application/soap+xml; charset=utf-8"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ASGIServer]:
    bounds = {"wsrm_mq.wsgi.read_body": {"spool_over": SPOOLED // 2}}
    server = ASGIServer(tmp_path_factory.mktemp("granian"), "granian-wsgi", "wsgi", bounds=bounds)
    server.start()
    yield server
    server.kill()


def with_attachment(envelope: bytes, size: int) -> bytes:
    """As a sender of MTOM writes it."""
    root = b"--edge\r\nContent-Type: application/xop+xml\r\nContent-Transfer-Encoding: binary\r\n\r\n" + envelope
    attachment = b"\r\n--edge\r\nContent-Type: image/png\r\nContent-ID: <a@example>\r\n\r\n" + b"\x89PNG\r\n--" * (
        size // 8
    )
    return root + attachment + b"\r\n--edge--\r\n"


def ask(client: OrderSender, content: bytes, content_type: str, *, cut: int | None = None) -> None:
    """Send it in chunks; cut off behind ``cut`` bytes, the connection ends there."""
    whole = chunked(content if cut is None else content[:cut], [1_000, 60_000])
    request = client.orders.request(whole, "Transfer-Encoding: chunked").replace(BARE.encode(), content_type.encode())
    with client.another() as sender:
        sender.wire.send(request if cut is None else request.removesuffix(b"0\r\n\r\n"))
        if cut is None:
            assert sender.wire.read().acked == [(1, 1)]
            return
        sender.wire.socket.shutdown(socket.SHUT_WR)
        try:
            assert sender.wire.read().status in (400, 500)
        except ConnectionError:
            pass  # some end the connection


def refused_then_taken(
    server: ASGIServer, client: OrderSender, whole: bytes, content_type: str, cuts: list[int]
) -> None:
    """What was cut off leaves nothing, and the whole message is none that came before."""
    for cut in cuts:
        ask(client, whole, content_type, cut=cut)
    assert within(0.3, lambda: server.store.received(client.identifier), bool) == []
    assert server.calls(client.identifier) == []
    ask(client, whole, content_type)
    assert server.effects_soon(client.identifier, [1]) == [1]
    stored = server.store.rows("select body from message order by id desc limit 1")
    assert stored == [(whole,)]


@pytest.mark.parametrize("size", [80, SPOOLED], ids=["in memory", "spooled"])
def test_a_multipart_message_that_breaks_off_is_not_taken_and_its_resend_is_no_duplicate(
    server: ASGIServer, size: int
) -> None:
    with OrderSender(server) as client:
        whole = with_attachment(client.message(1), size)
        behind_envelope = whole.index(b"\r\n--edge\r\nContent-Type: image")
        refused_then_taken(
            server, client, whole, PARTS, [behind_envelope, len(whole) - 100, len(whole) - len("--\r\n")]
        )


@pytest.mark.parametrize("filler", ["", "x" * SPOOLED], ids=["in memory", "spooled"])
def test_an_envelope_that_breaks_off_behind_one_that_it_holds_is_not_taken(server: ASGIServer, filler: str) -> None:
    with OrderSender(server) as client:
        inner = f"{filler}<s:Envelope><s:Body/></s:Envelope>"
        envelope = client.message(1)
        whole = envelope.replace(b"</t:put_order>", f"<t:forwarded>{inner}</t:forwarded></t:put_order>".encode())
        refused_then_taken(server, client, whole, BARE, [whole.index(b"</t:forwarded>"), len(whole) - 1])
