"""A request that is given up leaves a gap in its sequence, and nothing behind that would be delivered: what waits goes
on in another sequence."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.source.conftest import Open, Source
from tests.source.partner import ACTION, THERE, Partner, envelope
from tests.source.test_acknowledgements import ONE
from tests.source.test_replies import none_left
from tests.source.test_sending import send
from wsrm_mq.queue import dead_letters

TWO = "urn:there:2"
MOST = 100_000
"""Bytes of the largest request that the server reads."""


@pytest.fixture(params=["413", "no answer"])
def front(request: pytest.FixtureRequest, partner: Partner) -> Iterator[str]:
    """The address of a server that reads no large request: it answers 413, or nothing, and closes the connection."""

    class Front(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            if length == 0:
                self.send_error(400)
            elif length > MOST:
                if request.param == "413":
                    self.wfile.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                self.close_connection = True
            else:
                self.pass_on(length)

        def pass_on(self, length: int) -> None:
            answer = partner.post(self.path, {}, self.rfile.read(length))
            self.send_response(answer.status)
            for name, value in (*answer.headers, ("Content-Length", str(len(answer.content)))):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, *_arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Front) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/orders"
        server.shutdown()


def test_what_is_too_large_for_its_host_is_given_up_after_four_tries_and_what_is_behind_it_goes_on(
    open_source: Open, partner: Partner, front: str
) -> None:
    """Nothing passes it meanwhile: what was acknowledged behind a gap would never be delivered."""
    source = open_source(post=None)
    for text in ("a", "b" * 10 * MOST, "c", "d"):
        source.send(envelope(partner.speak, text), to=front, action=ACTION)
    assert source.in_time(20)
    ((reason, error),) = [(one.reason, one.error or "") for one in source.dead]
    assert reason == "too_large"
    assert "answered 413" in error or "Connection aborted" in error
    assert source.rows("SELECT failures FROM entry WHERE outcome = 'dead'") == [(4,)]
    assert partner.places == [(ONE, 1), (TWO, 1), (TWO, 2)]
    assert partner.texts() == ["a", "c", "d"]
    assert not any("behind" in told for told in source.ledger("requests_in_doubt"))


def test_what_has_failed_for_other_reasons_is_tried_four_times_all_the_same_before_it_is_too_large(
    source: Source, partner: Partner
) -> None:
    """The code of a fault beside the 413 changes nothing."""
    said = [partner.answered(500)] * 3 + [none_left(partner, status=413), *[partner.answered(413)] * 2]
    partner.says = lambda received: said.pop(0) if said and received.sequence is not None else None
    send(source, "a")
    assert source.in_time(step=600)
    assert (source.dead, said, partner.texts()) == ([], [], ["a"])
    said += [none_left(partner, status=413)] * 4
    send(source, "b")
    assert source.in_time(step=600)
    assert [one.reason for one in source.dead] == ["too_large"]
    assert source.rows("SELECT failures FROM entry WHERE outcome = 'dead'") == [(4,)]


def test_what_an_operator_takes_out_before_its_sequence_is_there_holds_nothing_up(
    open_source: Open, partner: Partner
) -> None:
    partner.says = lambda _received: partner.answered(503)
    source = open_source()
    first = source.send(envelope(partner.speak, "a"), to=THERE, action=ACTION)
    send(source, "b", "c")
    source._engine.store.call(lambda tx: dead_letters.discard(tx, first.position, actor="a", reason="b"))
    partner.says = lambda _received: None
    source.try_now()
    assert source.in_time()
    assert partner.texts() == ["b", "c"]
    assert len({identifier for identifier, _number in partner.places}) == 1
    assert [number for _identifier, number in partner.places] == [1, 2]


def test_what_was_acknowledged_behind_a_gap_is_told(source: Source, partner: Partner) -> None:
    partner.says = lambda received: (
        partner.answered(500) if received.sequence is not None and received.sequence[:2] == (ONE, 1) else None
    )
    send(source, *"abc")
    assert partner.within(lambda: (ONE, 3) in partner.places)
    assert source.in_time(30, step=4_000)
    assert [one.reason for one in source.dead] == ["max_failures"]
    assert source.ledger("requests_in_doubt")[0] == f"acknowledged behind number 1, which was given up: 2-3 of {ONE}"
