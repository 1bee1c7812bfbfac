"""The event loop's front behind real servers, around ASGI and WSGI applications."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.asgi_server import COMMANDS, ASGIServer
from tests.support.orders import OrderSender, chunked, echo
from tests.support.orders_server import within
from tests.support.stored import write_locked

Servers = Callable[..., ASGIServer]
KINDS = ("asgi", "wsgi")

each_server = pytest.mark.parametrize(("make", "kind"), [(make, kind) for make in COMMANDS for kind in KINDS])
each_kind = pytest.mark.parametrize(("make", "kind"), [("uvicorn", kind) for kind in KINDS])
"""What depends on the application and not on the server."""
each_make = pytest.mark.parametrize(("make", "kind"), [(make, "asgi") for make in COMMANDS])
once = pytest.mark.parametrize(("make", "kind"), [("uvicorn", "wsgi")])


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    running: dict[tuple[str, str], ASGIServer] = {}

    def having(make: str, kind: str) -> ASGIServer:
        if (make, kind) not in running:
            home = tmp_path_factory.mktemp(f"{make}-{kind}")
            running[make, kind] = ASGIServer(home, make, kind, hold_wait=3.0, max_waiting=1, max_body=20_000_000)
            running[make, kind].start()
        return running[make, kind]

    yield having
    for server in running.values():
        server.kill()


@pytest.fixture
def server(shared: Servers, make: str, kind: str) -> ASGIServer:
    """One that the tests of the module share."""
    return shared(make, kind)


@pytest.fixture
def mortal(tmp_path: Path, make: str, kind: str) -> Iterator[ASGIServer]:
    """One that the test may kill."""
    server = ASGIServer(tmp_path, make, kind)
    server.start()
    yield server
    server.kill()


def in_background(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


# a server that loses the body of a request that offers HTTP/2


@pytest.mark.parametrize("framing", ["length", "chunks"])
@once
def test_a_body_that_the_server_lost_is_refused_aloud(server: ASGIServer, framing: str) -> None:
    with OrderSender(server) as client:
        offer = ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk"]
        content = client.message(1)
        if framing == "chunks":
            request = client.orders.request(b"", "Transfer-Encoding: chunked", *offer) + chunked(content, [])
        else:
            request = client.orders.request(content, *offer)
        answer = client.wire.ask(request)
        assert (answer.status, b"the server lost it to the Upgrade" in answer.body) == (400, True)
        assert "request.body_lost" in server.log.read_text()
        assert not server.store.received(client.identifier)
        with client.another() as again:
            assert again.send(1).acked == [(1, 1)]


# one-way


@each_server
@pytest.mark.spec("D-DEL-001", versions="all")
def test_messages_out_of_order_and_twice_are_delivered_once_and_in_order(server: ASGIServer) -> None:
    with OrderSender(server) as client:
        assert client.send(1).acked == [(1, 1)]
        assert client.send(3).acked == [(1, 1), (3, 3)]
        assert client.send(5).acked == [(1, 1), (3, 3), (5, 5)]
        assert client.send(3).acked == [(1, 1), (3, 3), (5, 5)]
        assert client.send(2).acked == [(1, 3), (5, 5)]
        assert server.effects_soon(client.identifier, [1, 2, 3]) == [1, 2, 3]
        assert client.send(4).acked == [(1, 5)]
        assert server.effects_soon(client.identifier, [1, 2, 3, 4, 5]) == [1, 2, 3, 4, 5]
        assert server.calls(client.identifier) == [1, 2, 3, 4, 5]


@each_kind
def test_many_connections_at_once_get_each_its_own_answer(server: ASGIServer) -> None:
    def exchange(failures: list[object]) -> None:
        with OrderSender(server) as client:
            answers = [client.send(number).acked for number in range(1, 21)]
            if answers != [[(1, number)] for number in range(1, 21)]:
                failures.append(answers)
            if server.effects_soon(client.identifier, list(range(1, 21))) != list(range(1, 21)):
                failures.append(server.effects(client.identifier))

    failures: list[object] = []
    threads = [in_background(lambda: exchange(failures)) for _ in range(12)]
    for thread in threads:
        thread.join(60)
    assert failures == []


@each_server
def test_a_large_body_in_chunks_and_one_compressed_are_taken_as_they_are(server: ASGIServer) -> None:
    with OrderSender(server) as client:
        large = client.message(1, "x" * 3_000_000)
        head = client.orders.request(large, "Transfer-Encoding: chunked").removesuffix(large)
        assert client.wire.ask(head + chunked(large, [10, 100_000, 7])).acked == [(1, 1)]
        packed = gzip.compress(client.message(2))
        assert client.wire.ask(client.orders.request(packed, "Content-Encoding: gzip")).acked == [(1, 2)]
        assert server.store.body(client.identifier, 1) == large
        assert server.store.body(client.identifier, 2) == packed
        assert within(10, lambda: server.store.outcomes(client.identifier)[1], bool) == "delivered"


@each_server
def test_a_body_over_the_limit_is_refused_whether_it_says_so_or_not(server: ASGIServer) -> None:
    with OrderSender(server) as client:
        too_large = b"x" * 20_000_001
        head = client.orders.request(too_large, "Transfer-Encoding: chunked").removesuffix(too_large)
        assert client.wire.ask(head + chunked(too_large, [1_000_000] * 20)).status == 413
    with OrderSender(server) as client:
        client.wire.send(client.orders.request(too_large).removesuffix(too_large))
        assert client.wire.read().status == 413


# two-way


@each_server
@pytest.mark.spec("D-DEL-020", versions="all")
def test_a_reply_is_stored_and_sent_again_without_a_second_call(server: ASGIServer) -> None:
    with OrderSender(server) as client:
        first, again = client.echo(1, "hello"), client.echo(1, "hello")
        assert first.status == again.status == 200
        assert first.text("echoResponse") == again.text("echoResponse") == "hello"
        assert first.acked == again.acked == [(1, 1)]
        assert server.calls(client.identifier) == [1]


@each_server
def test_a_request_that_waits_is_answered_when_another_connection_fills_the_gap(server: ASGIServer) -> None:
    with OrderSender(server) as client, client.another() as other:
        client.wire.send(client.request_echo(2, "second"))
        assert within(5, lambda: server.store.received(client.identifier), bool) == [(2, 2)]
        begun = time.monotonic()
        assert other.send(1).status == 200
        answer = client.wire.read()
        assert time.monotonic() - begun < 2
        assert (answer.status, answer.text("echoResponse")) == (200, "second")
        assert answer.acked == [(1, 2)]


@each_make
def test_a_request_waits_no_longer_than_hold_wait_and_its_resend_gets_the_reply(server: ASGIServer) -> None:
    with OrderSender(server) as client:
        begun = time.monotonic()
        assert client.echo(2, "second").status == 202
        assert 2.5 < time.monotonic() - begun < 6
        client.send(1)
        assert client.echo(2, "second").text("echoResponse") == "second"
        assert server.calls(client.identifier) == [1, 2]


@each_server
def test_a_client_that_goes_away_leaves_its_place_to_another(server: ASGIServer) -> None:
    """One request at a time may wait for a gap here."""
    with OrderSender(server) as first, OrderSender(server) as second:
        first.wire.send(first.request_echo(2, "gone"))
        assert within(5, lambda: server.store.received(first.identifier), bool)
        assert second.echo(2, "no place").status == 202
        first.wire.close()
        time.sleep(0.3)
        with second.another() as other:
            second.wire.send(second.request_echo(3, "a place"))
            assert within(5, lambda: server.store.received(second.identifier), lambda seen: seen == [(2, 3)])
            other.send(1)
            assert second.wire.read().text("echoResponse") == "a place"


@each_kind
def test_operations_that_block_stop_no_other_request(mortal: ASGIServer) -> None:
    clients = [OrderSender(mortal) for _ in range(70)]
    for client in clients:
        client.wire.send(client.request_echo(1, "wait"))
    query = "select count(*) from calls"
    assert within(10, lambda: mortal.rows(query)[0][0], lambda count: count >= 64) >= 64
    begun = time.monotonic()
    with OrderSender(mortal) as client:
        assert client.send(1).acked == [(1, 1)]
        assert mortal.effects_soon(client.identifier, [1]) == [1]
        large = client.message(2, "x" * 200_000)
        assert client.wire.ask(client.orders.request(large)).acked == [(1, 2)]
    assert time.monotonic() - begun < 3
    (mortal.home / "go").touch()
    for client in clients:
        assert client.wire.read().text("echoResponse") == "wait"
        client.wire.close()


# what is not reliable


@pytest.mark.timed
@each_server
def test_a_plain_request_streams_through_as_the_application_sends_it(server: ASGIServer) -> None:
    with OrderSender(server) as client:
        begun = time.monotonic()
        client.wire.send(b"GET /stream HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
        seen = b""
        while b"0\n" not in seen:
            seen += client.wire.socket.recv(1000)
        assert time.monotonic() - begun < 0.35, "the first piece waits for no other"
        assert b"4\n" not in seen
        while b"4\n" not in seen:
            seen += client.wire.socket.recv(1000)


@each_server
def test_soap_without_rm_reaches_the_application_once_and_is_not_stored(server: ASGIServer) -> None:
    with OrderSender(server) as client:
        before = server.store.everything()
        body = echo("plainly")
        large = body.replace("<t:text>", f"<t:pad>{'x' * 200_000}</t:pad><t:text>")
        for content in (body, large):
            answer = client.post(client.orders.envelope("urn:x", content, reply_to=""))
            assert (answer.status, answer.text("echoResponse")) == (200, "plainly")
        answer = client.post(client.orders.put_plain(1))
        assert (answer.status, answer.body) == (202, b"")
        assert server.store.everything() == before
        assert server.rows("select count(*) from calls where sequence is null and said = 'plainly'") == [(2,)]


@each_server
def test_the_wsdl_tells_that_one_way_operations_have_no_answer(server: ASGIServer) -> None:
    answer = server.get("/?wsdl")
    assert answer.status == 200
    assert b"<w:input" in answer.body
    assert b"output" not in answer.body


@each_kind
@pytest.mark.parametrize("content_type", ["text/plain", "application/json"])
def test_rm_in_disguise_is_refused(server: ASGIServer, content_type: str) -> None:
    with OrderSender(server) as client:
        request = client.request_put(1).replace(b"application/soap+xml; charset=utf-8", content_type.encode())
        assert client.wire.ask(request).status == 415
        assert server.store.received(client.identifier) == []


@each_kind
def test_who_is_turned_away_leaves_nothing(server: ASGIServer) -> None:
    with OrderSender(server) as client:
        answer = client.wire.ask(client.request_put(1, "", "X-User: nobody"))
        assert (answer.status, answer.fields["www-authenticate"]) == (401, "Basic")
        assert server.store.received(client.identifier) == []


# the application


@each_kind
@pytest.mark.parametrize("wish", ["raise", "silent"])
def test_an_application_that_raises_or_says_nothing_is_asked_again(server: ASGIServer, wish: str) -> None:
    with OrderSender(server) as client:
        client.send(1, wish)
        client.send(2)
        assert server.effects_soon(client.identifier, [1, 2]) == [1, 2]
        assert server.calls(client.identifier) == [1, 1, 2]


@each_make
def test_an_asgi_application_is_called_within_its_own_life_with_what_its_start_left(mortal: ASGIServer) -> None:
    with OrderSender(mortal) as client:
        client.send(1, "wait")
        assert within(5, lambda: mortal.calls(client.identifier), bool) == [1]
        client.send(2)
        mortal.begin_to_stop()
        time.sleep(0.5)
        assert mortal.rows("select step from life") == [("started",)]
        (mortal.home / "go").touch()
        mortal.ended()
        assert 1 in mortal.effects(client.identifier)
        assert mortal.rows("select distinct state from calls") == [("hello",)]
        assert mortal.rows("select step from life") == [("started",), ("stopped",)]
        assert mortal.store.outcomes(client.identifier)[1] == "delivered"


# troubles


@each_kind
@pytest.mark.spec("D-DUR-001", versions="all")
def test_what_a_kill_left_is_delivered_at_the_start_and_no_failure_is_counted(mortal: ASGIServer) -> None:
    with OrderSender(mortal) as client:
        client.send(1, "wait")
        client.send(2)
        client.send(3)
        assert within(5, lambda: mortal.calls(client.identifier), bool) == [1]
    mortal.kill()
    (mortal.home / "go").touch()
    mortal.start()
    assert mortal.effects_soon(client.identifier, [1, 2, 3]) == [1, 2, 3]
    assert within(5, lambda: mortal.store.unsettled(client.identifier), lambda left: not left) == 0
    assert mortal.store.rows("select sum(failures) from entry") == [(0,)]
    assert mortal.rows("select number, redelivery from calls order by rowid")[:2] == [(1, 0), (1, 1)]


@pytest.mark.timed
@each_make
@pytest.mark.spec("D-DUR-003", versions="all")
@pytest.mark.invariant("I16")
def test_while_another_process_writes_the_loop_goes_on_and_nothing_is_lost(server: ASGIServer) -> None:
    with OrderSender(server) as client, client.another() as other:
        client.send(1)
        with write_locked(server.store._path):
            client.wire.send(client.request_put(2))
            other.wire.send(other.request_echo(3, "third"))
            time.sleep(0.1)
            for _ in range(5):
                begun = time.monotonic()
                assert server.get("/").status == 200
                assert time.monotonic() - begun < 0.3
        assert client.wire.read().status == 200
        assert other.wire.read().text("echoResponse") == "third"
        assert server.effects_soon(client.identifier, [1, 2, 3]) == [1, 2, 3]


@once
def test_who_waits_for_the_lock_too_long_is_sent_away_and_comes_again(server: ASGIServer) -> None:
    with OrderSender(server) as client:
        with write_locked(server.store._path):
            begun = time.monotonic()
            answer = client.send(1)
            assert 4 < time.monotonic() - begun < 9
            assert (answer.status, int(answer.fields["retry-after"]) > 0) == (503, True)
        assert client.send(1).acked == [(1, 1)]
        assert server.effects_soon(client.identifier, [1]) == [1]


@each_make
@pytest.mark.spec("D-DUR-001", "D-ACK-030", versions="all")
def test_killed_again_and_again_under_load_it_loses_repeats_and_swaps_nothing(mortal: ASGIServer) -> None:
    over = threading.Event()
    clients = [OrderSender(mortal) for _ in range(3)]

    def work(client: OrderSender) -> int:
        """Each second message before the first; answers the last one."""
        last = 0
        while not over.is_set():
            client.send_until_acknowledged(last + 2)
            client.send_until_acknowledged(last + 1)
            last += 2
        return last

    with ThreadPoolExecutor() as threads:
        works = [threads.submit(work, client) for client in clients]
        for life in range(3):
            time.sleep(0.2 + 0.15 * life)
            mortal.kill()
            mortal.start()
        over.set()
        last = [work.result(60) for work in works]
    for client, count in zip(clients, last, strict=True):
        assert count > 0
        wanted = list(range(1, count + 1))
        assert mortal.effects_soon(client.identifier, wanted) == wanted
        query = "select number from calls where sequence = ? and redelivery = 0 group by number having count(*) > 1"
        assert mortal.rows(query, client.identifier) == [], "called again without a mark of redelivery"
        client.wire.close()
